// SPDX-License-Identifier: Apache-2.0
#include "engine/parameter_checks.hpp"

#include <cstdint>
#include <variant>

namespace outboard::engine {

void refuse(const std::string& who, const std::string& what, ErrorCode code) {
  throw Error(code, who + " " + what);
}

void check_parameter(const std::string& who, const ParameterSpec& spec, std::size_t groups,
                     device::Backend& backend) {
  if (spec.dtype != DType::f16 && spec.dtype != DType::bf16 && spec.dtype != DType::f32) {
    refuse(who,
           "has dtype " + std::to_string(static_cast<unsigned>(spec.dtype)) +
               "; there are DType::f16, DType::bf16 and DType::f32",
           ErrorCode::unsupported);
  }
  if (spec.group.value >= groups) {
    refuse(who, "names group " + std::to_string(spec.group.value) + " of " +
                    std::to_string(groups) + "; use what add_group() returned");
  }
  if (!spec.master.empty() && spec.master.size() != spec.elems) {
    refuse(who, "has " + std::to_string(spec.elems) + " `elems` and a `master` of " +
                    std::to_string(spec.master.size()));
  }
  check_weight(who, {spec.data, spec.elems, spec.dtype}, backend);
}

void check_weight(const std::string& who, const WeightRange& weight, device::Backend& backend) {
  if (weight.elems == 0) return;
  if (weight.data == nullptr) refuse(who, "has no `data`");
  if (weight.elems > SIZE_MAX / 16) refuse(who, "has more `elems` than memory can hold");
  const std::size_t size = dtype_bytes(weight.dtype);
  if (reinterpret_cast<std::uintptr_t>(weight.data) % size != 0) {
    refuse(who, "has `data` that is not aligned to " + std::to_string(size) + " bytes");
  }
  try {
    backend.check_written_range(weight.data, weight.elems * size);
  } catch (const Error& failure) {
    refuse(who, std::string("has wrong `data`: ") + failure.what(), failure.code());
  }
}

void validate(const Rule& rule) {
  std::visit([](const auto& kind) { kind.validate(); }, rule);
}

}  // namespace outboard::engine
