// SPDX-License-Identifier: Apache-2.0
#include "simd/target.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "simd/dispatch.hpp"

namespace outboard::simd {
namespace {

struct Target {
  std::int64_t bit;
  std::string_view name;
};

// Best first, as Highway orders its bits.
constexpr std::array kTargets = {
#if HWY_ARCH_X86
    Target{HWY_AVX3, "avx512"}, Target{HWY_AVX2, "avx2"},
#elif HWY_ARCH_ARM
    Target{HWY_SVE, "sve"}, Target{HWY_NEON, "neon"},
#endif
    Target{HWY_SCALAR, "scalar"}};

class Selection {
 public:
  Selection() : cpu_(hwy::SupportedTargets() & HWY_TARGETS) {
    const char* value = std::getenv("OUTBOARD_SIMD");
    const std::string_view name = value == nullptr ? "" : value;
    if (const Target* asked = find(name)) {
      default_ = asked;
    } else {
      default_ = best();
      if (!name.empty()) problem_ = describe(name);
    }
    use(*default_);
  }

  [[nodiscard]] bool has(const Target& target) const {
    return target.bit == HWY_SCALAR || (cpu_ & target.bit) != 0;
  }
  [[nodiscard]] const Target* find(std::string_view name) const {
    for (const Target& target : kTargets) {
      if (target.name == name && has(target)) return &target;
    }
    return nullptr;
  }
  void use(const Target& target) {
    chosen_.Update(target.bit);
    active_ = &target;
  }
  void use_default() { use(*default_); }

  [[nodiscard]] const hwy::ChosenTarget& chosen() const { return chosen_; }
  [[nodiscard]] std::string_view active() const { return active_.load()->name; }
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  [[nodiscard]] const Target* best() const {
    for (const Target& target : kTargets) {
      if (has(target)) return &target;
    }
    return &kTargets.back();
  }
  [[nodiscard]] std::string describe(std::string_view name) const {
    std::string text = "OUTBOARD_SIMD=";
    text.append(name).append(" ignored: use one of");
    for (const Target& target : kTargets) {
      if (has(target)) text.append(" ").append(target.name);
    }
    return text;
  }

  std::int64_t cpu_;
  const Target* default_ = nullptr;
  std::string problem_;
  hwy::ChosenTarget chosen_;
  std::atomic<const Target*> active_ = nullptr;
};

Selection& selection() {
  static Selection instance;
  return instance;
}

}  // namespace

const hwy::ChosenTarget& chosen_target() noexcept {
  return selection().chosen();
}

std::vector<std::string> supported_targets() {
  std::vector<std::string> names;
  for (const Target& target : kTargets) {
    if (selection().has(target)) names.emplace_back(target.name);
  }
  return names;
}

std::string_view active_target() noexcept {
  return selection().active();
}

bool force_target(std::string_view name) {
  if (name.empty()) {
    selection().use_default();
    return true;
  }
  const Target* target = selection().find(name);
  if (target == nullptr) return false;
  selection().use(*target);
  return true;
}

std::string environment_problem() {
  return selection().problem();
}

}  // namespace outboard::simd
