// SPDX-License-Identifier: Apache-2.0
/// JSON that may come from anywhere: parsed with limits, and read member by member with messages
/// that name the file and the place. For the sources of this room only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "outboard/error.hpp"

namespace outboard::ckpt {

using Json = nlohmann::json;

/// "'/x/manifest.json': parameters[3].elems".
struct JsonPlace {
  std::string file;
  std::string path;

  [[nodiscard]] JsonPlace member(std::string_view key) const;
  [[nodiscard]] JsonPlace item(std::size_t index) const;
  [[noreturn]] void refuse(const std::string& why) const;  ///< Error{bad_checkpoint}
};

/// @throws Error{bad_checkpoint} for what is no JSON, deeper than kMaxJsonDepth, or has a key twice
/// in one object.
[[nodiscard]] Json parse_json(std::string_view text, const std::string& file);

/// A value and where it stands. Borrows the value.
class JsonRef {
 public:
  JsonRef(const Json& value, JsonPlace place) : value_(&value), place_(std::move(place)) {}

  [[nodiscard]] bool has(const char* key) const;
  [[nodiscard]] JsonRef at(const char* key) const;  ///< refuses what is no object, or lacks it
  [[nodiscard]] std::size_t items() const;          ///< refuses what is no array
  [[nodiscard]] JsonRef item(std::size_t index) const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::uint64_t count(std::uint64_t most = UINT64_MAX) const;
  [[nodiscard]] std::uint32_t count32() const {
    return static_cast<std::uint32_t>(count(UINT32_MAX));
  }
  [[nodiscard]] std::uint64_t bits() const;  ///< 16 hexadecimal digits
  [[nodiscard]] double number() const;       ///< finite
  [[nodiscard]] bool flag() const;
  [[nodiscard]] std::string file_name() const;  ///< no way out of its folder
  [[nodiscard]] const Json& value() const noexcept { return *value_; }
  [[nodiscard]] const JsonPlace& place() const noexcept { return place_; }

 private:
  const Json* value_;
  JsonPlace place_;
};

}  // namespace outboard::ckpt
