// SPDX-License-Identifier: Apache-2.0
#include "flags.hpp"

#include <CLI/CLI.hpp>
#include <iostream>

namespace example {
namespace {

bool is_first(const std::string& said, const char* flag, const std::string& words) {
  const std::size_t bar = words.find('|');
  const std::string first = words.substr(0, bar), second = words.substr(bar + 1);
  require(said == first || said == second,
          std::string(flag) + " is \"" + said + "\"; it must be " + first + " or " + second);
  return said == first;
}

}  // namespace

Flags::Flags(const About& about) : app_(std::make_unique<CLI::App>(about.what, about.program)) {
  app_->footer(about.examples);
  app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}
Flags::~Flags() = default;

void Flags::add(const Row& row, const std::function<void(const std::string&)>& take) {
  const std::string shown = row.shown.empty() ? "" : " (default: " + row.shown + ")";
  app_->add_option_function<std::string>(row.flag, take, row.help + shown)->type_name(row.kind);
}

void Flags::data(std::vector<std::filesystem::path>& target, const std::string& help) {
  app_->add_option("--data,data", target, help)
      ->type_name("FILE|DIR")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Flags::text(const char* flag, std::string& target, const std::string& help) {
  add({flag, "TEXT", help, target}, [&target](const std::string& said) { target = said; });
}

void Flags::mark(const char* flag, bool& target, const std::string& help) {
  app_->add_flag(flag, target, help);
}

void Flags::number(const char* flag, Sign sign, double& target, const std::string& help) {
  add({flag, "X", help, spell_number(target)},
      [=, &target](const std::string& said) { target = parse_number(said, flag, sign); });
}

void Flags::number(const char* flag, Sign sign, std::optional<double>& target,
                   const std::string& help, const std::string& shown) {
  add({flag, "X", help, shown},
      [=, &target](const std::string& said) { target = parse_number(said, flag, sign); });
}

void Flags::bytes(const Limits& limits, std::size_t& target, const std::string& help,
                  const std::string& shown) {
  add({limits.flag, "BYTES", help, shown.empty() ? spell_bytes(target) : shown},
      [=, &target](const std::string& said) { target = parse_bytes(said, limits); });
}

void Flags::either(const char* flag, const std::string& words, bool& target,
                   const std::string& help) {
  const std::size_t bar = words.find('|');
  add({flag, words, help, target ? words.substr(0, bar) : words.substr(bar + 1)},
      [=, &target](const std::string& said) { target = is_first(said, flag, words); });
}

void Flags::either(const char* flag, const std::string& words, std::optional<bool>& target,
                   const std::string& help, const std::string& shown) {
  add({flag, words, help, shown},
      [=, &target](const std::string& said) { target = is_first(said, flag, words); });
}

bool Flags::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app_->help();
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; see --help");
  }
  return true;
}

}  // namespace example
