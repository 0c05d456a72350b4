// SPDX-License-Identifier: Apache-2.0
#include "engine/parameter_checks.hpp"

#include <cstdint>

namespace outboard::engine {

void refuse(const std::string& name, const std::string& what, ErrorCode code) {
  throw Error(code, "add_parameter(): parameter '" + name + "' " + what);
}

void check_parameter(const ParameterSpec& spec, std::size_t groups, device::Backend& backend) {
  if (spec.dtype != DType::f16 && spec.dtype != DType::bf16 && spec.dtype != DType::f32) {
    refuse(spec.name,
           "has dtype " + std::to_string(static_cast<unsigned>(spec.dtype)) +
               "; there are DType::f16, DType::bf16 and DType::f32",
           ErrorCode::unsupported);
  }
  if (spec.group.value >= groups) {
    refuse(spec.name, "names group " + std::to_string(spec.group.value) + " of " +
                          std::to_string(groups) + "; use what add_group() returned");
  }
  if (!spec.master.empty() && spec.master.size() != spec.elems) {
    refuse(spec.name, "has " + std::to_string(spec.elems) + " `elems` and a `master` of " +
                          std::to_string(spec.master.size()));
  }
  if (spec.elems == 0) return;
  if (spec.data == nullptr) refuse(spec.name, "has no `data`");
  if (spec.elems > SIZE_MAX / 16) refuse(spec.name, "has more `elems` than memory can hold");
  const std::size_t size = dtype_bytes(spec.dtype);
  if (reinterpret_cast<std::uintptr_t>(spec.data) % size != 0) {
    refuse(spec.name, "has `data` that is not aligned to " + std::to_string(size) + " bytes");
  }
  try {
    backend.check_range(spec.data, spec.elems * size);
  } catch (const Error& failure) {
    refuse(spec.name, std::string("has wrong `data`: ") + failure.what(), failure.code());
  }
}

}  // namespace outboard::engine
