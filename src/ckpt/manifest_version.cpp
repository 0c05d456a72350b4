// SPDX-License-Identifier: Apache-2.0
#include "ckpt/manifest_version.hpp"

#include <cstdint>
#include <optional>
#include <string>

#include "ckpt/format.hpp"

namespace outboard::ckpt {
namespace {

/// Ends the parse once it has both.
class VersionMembers final : public nlohmann::json_sax<Json> {
 public:
  std::optional<std::string> format;
  std::optional<std::uint64_t> version;

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ == 1 && key_ == "format_version") version = value;
    return missing();
  }
  bool string(string_t& value) override {
    if (depth_ == 1 && key_ == "format") format = value;
    return missing();
  }
  bool key(string_t& value) override {
    if (depth_ == 1) key_ = value;
    return true;
  }
  bool start_object(std::size_t /*elements*/) override { return enter(); }
  bool start_array(std::size_t /*elements*/) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const Json::exception& /*failure*/) override {
    return false;
  }

 private:
  [[nodiscard]] bool missing() const { return !format || !version; }
  bool enter() {
    depth_ += 1;
    return true;
  }
  bool leave() {
    depth_ -= 1;
    return true;
  }

  std::uint64_t depth_ = 0;
  std::string key_;
};

}  // namespace

void require_version(std::string_view text, const JsonPlace& place) {
  VersionMembers members;
  (void)Json::sax_parse(text, &members);
  if (members.format && *members.format != kFormatName) {
    place.member("format").refuse("is not '" + std::string(kFormatName) + "'");
  }
  if (!members.format || !members.version || *members.version <= kFormatVersion) return;
  throw Error(ErrorCode::unsupported,
              "'" + place.file + "' was written by format " + std::to_string(*members.version) +
                  ", this build reads \u2264 " + std::to_string(kFormatVersion) +
                  "; load it with the release that wrote it, or a later one");
}

}  // namespace outboard::ckpt
