// SPDX-License-Identifier: Apache-2.0
#include "memory/reserved_credit.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/round_up.hpp"
#include "memory/huge_pages.hpp"

namespace outboard::memory {

std::size_t reserved_for(const topology::Machine& machine, const ArenaPlace& place,
                         const std::string& root) {
  if (!machine.real) return 0;
  // One node in the machine need not be the only one there: the others may be forbidden.
  if (!machine.numa_known) return reserved_huge_bytes(root, {});
  return reserved_huge_bytes(root, os_node_of(machine, place));
}

ReservedCredit::ReservedCredit(const topology::Machine& machine, std::string root)
    : machine_(machine),
      root_(std::move(root)),
      left_(machine.real ? reserved_huge_bytes(root_, {}) : 0) {}

std::size_t& ReservedCredit::left_at(const ArenaPlace& place) {
  const auto [at, fresh] = of_node_.try_emplace(os_node_of(machine_, place), 0);
  if (fresh) at->second = reserved_for(machine_, place, root_);
  return at->second;
}

std::uint64_t ReservedCredit::take(const ArenaPlace& place, std::size_t bytes) {
  const std::size_t mapped = core::round_up(bytes, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  std::size_t& here = left_at(place);
  if (mapped < kHugePage || core::round_up(mapped, kHugePage) > std::min(here, left_)) return 0;
  const std::size_t huge = mapped / kHugePage * kHugePage;
  here -= huge;
  left_ -= huge;
  return huge;
}

void ReservedCredit::leave(std::uint32_t node, std::size_t bytes) {
  const std::size_t pages = core::round_up(bytes, kHugePage);
  std::size_t& here = left_at(node);
  here -= std::min(here, pages);
  left_ -= std::min(left_, pages);
}

}  // namespace outboard::memory
