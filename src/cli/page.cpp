// SPDX-License-Identifier: Apache-2.0
#include "cli/page.hpp"

namespace outboard::cli {
namespace {

const char* const kStyle =
    ":root{color-scheme:light dark;--ink:#1b1f24;--soft:#6a737d;--line:#d8dee4;--page:#fff}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa4ae;--line:#30363d;"
    "--page:#0d1117}}"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);"
    "max-width:960px;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.4rem;margin-bottom:.2rem}p{color:var(--soft);margin:.3rem 0}"
    "h2{font-size:1.1rem;margin:1.6rem 0 .2rem}"
    "code{font:13px ui-monospace,monospace}figure{margin:1.5rem 0}"
    "svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}"
    "svg .soft{fill:var(--soft)}svg .axis{stroke:var(--line)}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;white-space:nowrap}"
    "td,th{padding:.3rem .8rem .3rem 0;text-align:right;border-bottom:1px solid var(--line)}"
    "td:first-child,th:first-child{text-align:left}";

}  // namespace

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<') {
      safe += "&lt;";
    } else if (c == '&') {
      safe += "&amp;";
    } else if (c == '\n') {
      safe += "<br>";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string page(const std::string& title, const std::string& style, const std::string& body) {
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
         "<meta name=\"viewport\" content=\"width=device-width\"><title>" +
         escaped(title) + "</title><style>" + kStyle + style + "</style></head><body>\n" + body +
         "</body></html>\n";
}

}  // namespace outboard::cli
