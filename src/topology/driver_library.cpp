// SPDX-License-Identifier: Apache-2.0
// The few calls of libcuda.so.1 that list devices. Their types are those of NVIDIA's cuda.h, which
// need not be there.
#include <dlfcn.h>

#include <array>
#include <memory>
#include <utility>

#include "topology/gpu_driver.hpp"

// An int stands for the driver's result codes: clang's sanitizer would call that another function.
#if defined(__clang__)
#define OUTBOARD_CALLS_DRIVER __attribute__((no_sanitize("function")))
#else
#define OUTBOARD_CALLS_DRIVER
#endif

namespace outboard::topology {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr int kComputeMode = 20;  // an attribute of a device
constexpr int kExclusiveProcess = 3;
constexpr int kDeviceUnavailable = 46;

using Uuid = std::array<unsigned char, 16>;

struct Closer {
  void operator()(void* library) const noexcept { (void)dlclose(library); }
};

class Library {
 public:
  explicit Library(DriverAnswer& answer) : answer_(answer) {
    (void)dlerror();
    library_.reset(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
    answer_.loaded = library_ != nullptr;
    if (!library_) note_error();
  }

  /// Calls `name` unless an earlier call failed.
  template <class... Arguments>
  OUTBOARD_CALLS_DRIVER void call(const char* name, Arguments... arguments) {
    if (!answer_.load_error.empty() || answer_.result != 0) return;
    const auto function = find<int (*)(Arguments...)>(name);
    if (function == nullptr) return;
    answer_.result = function(arguments...);
    if (answer_.result != 0) answer_.call = name;
  }

  /// Whether making a context fails because another process has the device.
  OUTBOARD_CALLS_DRIVER bool in_use(int device) {
    if (!answer_.load_error.empty() || answer_.result != 0) return false;
    void* context = nullptr;
    const auto retain = find<int (*)(void**, int)>("cuDevicePrimaryCtxRetain");
    const auto release = find<int (*)(int)>("cuDevicePrimaryCtxRelease_v2");
    if (retain == nullptr || release == nullptr) return false;
    const int result = retain(&context, device);
    // What else keeps it from starting is told by whoever starts it.
    if (result == 0) (void)release(device);
    return result == kDeviceUnavailable;
  }

  OUTBOARD_CALLS_DRIVER void name_result() {
    if (answer_.result == 0) return;
    const auto function =
        reinterpret_cast<int (*)(int, const char**)>(dlsym(library_.get(), "cuGetErrorName"));
    const char* name = nullptr;
    if (function != nullptr && function(answer_.result, &name) == 0 && name != nullptr) {
      answer_.result_name = name;
    }
  }

 private:
  template <class Function>
  Function find(const char* name) {
    void* address = dlsym(library_.get(), name);
    if (address == nullptr) note_error();
    return reinterpret_cast<Function>(address);
  }

  void note_error() {
    const char* text = dlerror();
    answer_.load_error = text == nullptr ? std::string(kLibrary) + " is strange" : text;
  }

  DriverAnswer& answer_;
  std::unique_ptr<void, Closer> library_;
};

std::string text_of(const Uuid& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 15];
  }
  return text;
}

DriverDevice read_device(Library& library, int ordinal) {
  int device = 0;
  std::array<char, 64> address{};
  std::array<char, 128> name{};
  Uuid uuid{};
  std::size_t bytes = 0;
  DriverDevice found;
  library.call("cuDeviceGet", &device, ordinal);
  library.call("cuDeviceGetPCIBusId", address.data(), static_cast<int>(address.size()), device);
  library.call("cuDeviceGetName", name.data(), static_cast<int>(name.size()), device);
  library.call("cuDeviceGetUuid", uuid.data(), device);
  library.call("cuDeviceTotalMem_v2", &bytes, device);
  library.call("cuDeviceGetAttribute", &found.compute_mode, kComputeMode, device);
  found.pci_address = pci_address_of(address.data());
  found.name = name.data();
  found.uuid = text_of(uuid);
  found.memory_bytes = bytes;
  if (found.compute_mode == kExclusiveProcess) found.in_use = library.in_use(device);
  return found;
}

}  // namespace

DriverAnswer ask_driver() {
  DriverAnswer answer;
  Library library(answer);
  int count = 0;
  library.call("cuInit", 0U);
  library.call("cuDriverGetVersion", &answer.cuda_version);
  library.call("cuDeviceGetCount", &count);
  for (int i = 0; i < count && answer.result == 0 && answer.load_error.empty(); ++i) {
    DriverDevice device = read_device(library, i);
    if (answer.result != 0 || !answer.load_error.empty()) break;  // half of it is unknown
    answer.devices.push_back(std::move(device));
  }
  if (answer.load_error.empty()) library.name_result();
  return answer;
}

}  // namespace outboard::topology
