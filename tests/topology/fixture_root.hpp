// SPDX-License-Identifier: Apache-2.0
/// A made-up root directory for what is read from /proc and /sys.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace outboard::testing {

/// An empty directory that is removed with everything in it.
class FixtureRoot {
 public:
  FixtureRoot() {
    std::string name = (std::filesystem::temp_directory_path() / "outboard-root-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    path_ = name;
  }
  ~FixtureRoot() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FixtureRoot(const FixtureRoot&) = delete;
  FixtureRoot& operator=(const FixtureRoot&) = delete;

  /// `name` starts with a slash.
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = path_ + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace outboard::testing
