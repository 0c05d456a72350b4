// SPDX-License-Identifier: Apache-2.0
#include "format.hpp"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>

namespace example {

std::string print(const char* format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

std::string show_bytes(std::size_t bytes) {
  const double mib = static_cast<double>(bytes) / 1048576.0;
  return mib < 10240.0 ? print("%.2f MiB", mib) : print("%.2f GiB", mib / 1024.0);
}

std::string show_digest(std::uint64_t digest) {
  return print("%016" PRIx64, digest);
}

const char* outcome_of(const outboard::StepResult& result) {
  if (result.applied()) return "applied";
  if (result.partial()) return "partial";
  return result.skipped() ? "skipped" : "empty";
}

}  // namespace example
