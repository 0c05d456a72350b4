// SPDX-License-Identifier: Apache-2.0
#include "topology/system_files.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>

namespace outboard::topology {
namespace {

constexpr std::string_view kBlank = " \t\r\n";
constexpr std::uint32_t kMostCpus = std::uint32_t{1} << 20;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  text = trimmed(text);
  return whole_number<std::uint64_t>(text.substr(0, text.find_first_of(kBlank)));
}

bool add_range(std::set<std::uint32_t>& numbers, std::string_view range) {
  const auto dash = range.find('-');
  const auto first = whole_number<std::uint32_t>(range.substr(0, dash));
  const auto last =
      dash == std::string_view::npos ? first : whole_number<std::uint32_t>(range.substr(dash + 1));
  if (!first || !last || *last < *first || *last >= kMostCpus) return false;
  for (std::uint32_t number = *first; number <= *last; ++number) numbers.insert(number);
  return true;
}

}  // namespace

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<std::uint64_t> first_number(const std::string& path) {
  const auto line = first_line(path);
  return line ? leading_number(*line) : std::nullopt;
}

std::optional<std::string> entry_text(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key))
      return std::string(trimmed(std::string_view(line).substr(key.size())));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> entry_number(const std::string& path, std::string_view key) {
  const auto text = entry_text(path, key);
  return text ? leading_number(*text) : std::nullopt;
}

std::optional<std::vector<std::uint32_t>> parse_cpu_list(std::string_view text) {
  std::set<std::uint32_t> numbers;
  text = trimmed(text);
  while (!text.empty()) {
    const auto comma = text.find(',');
    if (!add_range(numbers, trimmed(text.substr(0, comma)))) return std::nullopt;
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return std::vector<std::uint32_t>(numbers.begin(), numbers.end());
}

std::vector<std::string> names_in(const std::string& folder, std::string_view prefix, int* error) {
  std::vector<std::string> names;
  std::error_code problem;
  for (std::filesystem::directory_iterator i(folder, problem), end; !problem && i != end;
       i.increment(problem)) {
    std::string name = i->path().filename().string();
    if (name.starts_with(prefix)) names.push_back(std::move(name));
  }
  if (error != nullptr) *error = problem.value();
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace outboard::topology
