// SPDX-License-Identifier: Apache-2.0
#include "ckpt/json.hpp"

#include <cmath>
#include <set>
#include <vector>

#include "ckpt/checksum.hpp"
#include "ckpt/format.hpp"

namespace outboard::ckpt {
namespace {

/// Sees every event of a parse; throws what is refused.
class Limits {
 public:
  explicit Limits(const JsonPlace& place) : place_(place) {}

  void see(Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        keys_.emplace_back();
        if (keys_.size() > kMaxJsonDepth) {
          place_.refuse("is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
        }
        break;
      case Json::parse_event_t::key:
        if (!keys_.back().insert(parsed.get_ref<const std::string&>()).second) {
          place_.refuse("has the key '" + parsed.get_ref<const std::string&>() +
                        "' twice in one object");
        }
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        keys_.pop_back();
        break;
      case Json::parse_event_t::value:
        break;
    }
  }

 private:
  const JsonPlace& place_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

JsonPlace JsonPlace::member(std::string_view key) const {
  return {file, path.empty() ? std::string(key) : path + "." + std::string(key)};
}

JsonPlace JsonPlace::item(std::size_t index) const {
  return {file, path + "[" + std::to_string(index) + "]"};
}

void JsonPlace::refuse(const std::string& why) const {
  throw Error(ErrorCode::bad_checkpoint, "'" + file + "'" + (path.empty() ? "" : ": " + path) +
                                             " " + why +
                                             "; the file is damaged or was not written "
                                             "by this library");
}

Json parse_json(std::string_view text, const std::string& file) {
  const JsonPlace place{file, ""};
  Limits limits(place);
  try {
    return Json::parse(text, [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
      limits.see(event, parsed);
      return true;
    });
  } catch (const Json::exception& failure) {
    place.refuse(std::string("is no JSON: ") + failure.what());
  }
}

bool JsonRef::has(const char* key) const {
  return value_->is_object() && value_->contains(key);
}

JsonRef JsonRef::at(const char* key) const {
  if (!value_->is_object()) place_.refuse("is no object");
  const auto found = value_->find(key);
  if (found == value_->end()) place_.member(key).refuse("is missing");
  return {*found, place_.member(key)};
}

std::size_t JsonRef::items() const {
  if (!value_->is_array()) place_.refuse("is no array");
  return value_->size();
}

JsonRef JsonRef::item(std::size_t index) const {
  if (index >= items()) place_.item(index).refuse("is missing");
  return {(*value_)[index], place_.item(index)};
}

std::string JsonRef::text() const {
  if (!value_->is_string()) place_.refuse("is no string");
  return value_->get<std::string>();
}

std::uint64_t JsonRef::count(std::uint64_t most) const {
  if (!value_->is_number_unsigned()) place_.refuse("is no whole number of at most 64 bits");
  const auto number = value_->get<std::uint64_t>();
  if (number > most) {
    place_.refuse("is " + std::to_string(number) + " and may be at most " + std::to_string(most));
  }
  return number;
}

std::uint64_t JsonRef::bits() const {
  const auto value = from_hex(text());
  if (!value) place_.refuse("is not 16 hexadecimal digits");
  return *value;
}

double JsonRef::number() const {
  if (!value_->is_number()) place_.refuse("is no number");
  const auto number = value_->get<double>();
  if (!std::isfinite(number)) place_.refuse("is not finite");
  return number;
}

bool JsonRef::flag() const {
  if (!value_->is_boolean()) place_.refuse("is neither true nor false");
  return value_->get<bool>();
}

std::string JsonRef::file_name() const {
  std::string name = text();
  const bool plain = !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
                     name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (!plain) place_.refuse("is no plain file name");
  return name;
}

}  // namespace outboard::ckpt
