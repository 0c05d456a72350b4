// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/context.hpp"

#include <array>

#include "device/cuda/check.hpp"
#include "outboard/error.hpp"

namespace outboard::device::cuda {
namespace {

std::string in_words(const Subject& subject, int ordinal) {
  std::string text;
  if (subject.amount != ~0ULL) text = "of " + std::to_string(subject.amount) + " ";
  text += subject.what;
  if (!text.empty()) text += " ";
  return text + "on device " + std::to_string(ordinal);
}

}  // namespace

Context::Context(int ordinal) : api_(driver()), ordinal_(ordinal) {
  require(api_.init(0), "cuInit");
  int count = 0;
  require(api_.device_count(&count), "cuDeviceGetCount");
  if (ordinal < 0 || ordinal >= count) {
    throw Error(ErrorCode::invalid_argument, "CUDA: there is no device " + std::to_string(ordinal) +
                                                 "; this process has " + std::to_string(count) +
                                                 ", numbered from 0");
  }
  require(api_.device_get(&device_, ordinal), "cuDeviceGet");
  std::array<char, 128> name{};
  require(api_.device_name(name.data(), static_cast<int>(name.size() - 1), device_),
          "cuDeviceGetName");
  name_ = name.data();
  require(api_.context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

Context::~Context() {
  (void)api_.context_release(device_);
}

int Context::attribute(CUdevice_attribute wanted) const {
  int value = 0;
  require(api_.device_attribute(&value, wanted, device_), "cuDeviceGetAttribute");
  return value;
}

void Context::require(CUresult result, const char* call, const Subject& subject) const {
  if (result == CUDA_SUCCESS) return;
  throw Error(ErrorCode::device_failure, describe(api_, result, call, in_words(subject, ordinal_)));
}

Current::Current(const Context& context) : api_(context.api()) {
  context.require(api_.context_push(context.handle()), "cuCtxPushCurrent_v2");
}

Current::~Current() {
  CUcontext popped = nullptr;
  (void)api_.context_pop(&popped);
}

}  // namespace outboard::device::cuda
