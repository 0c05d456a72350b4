// SPDX-License-Identifier: Apache-2.0
/// The flags of a command line, and what of it the larger examples share.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"

namespace CLI {
class App;
}

namespace example {

/// Each call adds a flag that writes to `target`, which must outlive parse(); of a flag said twice
/// the last counts. Targets may be optional; then `shown` is the default that --help shows.
class Flags {
 public:
  struct About {
    std::string program, what, examples;
  };
  explicit Flags(const About& about);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  /// Files and folders: --data, or words without a flag.
  void data(std::vector<std::filesystem::path>& target, const std::string& help);
  void text(const char* flag, std::string& target, const std::string& help);
  /// Says that something is so; takes no value.
  void mark(const char* flag, bool& target, const std::string& help);
  void number(const char* flag, Sign sign, double& target, const std::string& help);
  void number(const char* flag, Sign sign, std::optional<double>& target, const std::string& help,
              const std::string& shown);
  /// `limits` must fit `Count`.
  template <class Count>
  void count(const Limits& limits, Count& target, const std::string& help) {
    add({limits.flag, "N", help, std::to_string(target)}, [=, &target](const std::string& said) {
      target = static_cast<Count>(parse_count(said, limits));
    });
  }
  template <class Count>
  void count(const Limits& limits, std::optional<Count>& target, const std::string& help,
             const std::string& shown = "") {
    add({limits.flag, "N", help, shown}, [=, &target](const std::string& said) {
      target = static_cast<Count>(parse_count(said, limits));
    });
  }
  void bytes(const Limits& limits, std::size_t& target, const std::string& help,
             const std::string& shown = "");
  /// Whatever `take` reads. `kind`: how --help shows the value.
  void value(const char* flag, const std::string& kind, const std::string& help,
             const std::string& shown, const std::function<void(const std::string&)>& take) {
    add({flag, kind, help, shown}, take);
  }
  /// One of two words, "on|off": the first means true.
  void either(const char* flag, const std::string& words, bool& target, const std::string& help);
  void either(const char* flag, const std::string& words, std::optional<bool>& target,
              const std::string& help, const std::string& shown);

  /// @return false if help was asked for and printed. @throws UsageError.
  [[nodiscard]] bool parse(int argc, const char* const* argv);

 private:
  struct Row {
    const char* flag;
    std::string kind, help, shown;
  };
  void add(const Row& row, const std::function<void(const std::string&)>& take);

  std::unique_ptr<CLI::App> app_;
};

}  // namespace example
