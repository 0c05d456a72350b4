// SPDX-License-Identifier: Apache-2.0
#include "exec/rig.hpp"

namespace outboard::exec {

std::vector<Kind> all_kinds() {
  return {Kind::threads, Kind::virtual_time};
}
std::vector<Kind> real_kinds() {
  return {Kind::threads};
}

}  // namespace outboard::exec
