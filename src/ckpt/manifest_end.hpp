// SPDX-License-Identifier: Apache-2.0
/// The manifest's last lines, which hold the checksum of all before them. The same in every version
/// of the format, so that a version is believed before anything else of the file is.
#pragma once

#include <cstdint>
#include <string>

#include "ckpt/checksum.hpp"

namespace outboard::ckpt {

[[nodiscard]] inline std::string manifest_end(std::uint64_t checksum) {
  return "\"manifest_checksum\": \"" + to_hex(checksum) + "\"\n}\n";
}

}  // namespace outboard::ckpt
