// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "device/cuda/driver_api.hpp"
#include "outboard/error.hpp"

namespace outboard::device::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

std::string last_load_error() {
  const char* text = dlerror();
  return text == nullptr ? std::string(kLibrary) + " is strange" : text;
}

template <class Function>
Function find(void* library, const char* symbol, int version) {
  void* address = dlsym(library, symbol);
  if (address != nullptr) return reinterpret_cast<Function>(address);
  throw Error(ErrorCode::unsupported,
              std::string("CUDA: the driver is too old: it has no ") + symbol + " (its CUDA is " +
                  std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) +
                  "); install one for CUDA 11.7 or newer");
}

int version_of(void* library) {
  const auto ask =
      reinterpret_cast<PFN_cuDriverGetVersion_v2020>(dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  if (ask != nullptr) (void)ask(&version);
  return version;
}

DriverApi load() {
  (void)dlerror();
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    throw Error(ErrorCode::unsupported, "CUDA: no driver: " + last_load_error() +
                                            "; install NVIDIA's, or use the software GPU");
  }
  const int version = version_of(library);
  DriverApi api;
#define OUTBOARD_CUDA_FIND(name, symbol, type) api.name = find<type>(library, #symbol, version);
  OUTBOARD_CUDA_DRIVER_CALLS(OUTBOARD_CUDA_FIND)
#undef OUTBOARD_CUDA_FIND
  return api;
}

}  // namespace

const DriverApi& driver() {
  static const DriverApi api = load();
  return api;
}

}  // namespace outboard::device::cuda
