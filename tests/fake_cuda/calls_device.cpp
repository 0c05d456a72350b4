// SPDX-License-Identifier: Apache-2.0
// The driver's calls on devices, contexts and memory.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "fake_cuda/machine.hpp"

namespace fake = outboard::fake_cuda;
using fake::anywhere;
using fake::FakeDevice;
using fake::on_current;
using fake::World;

namespace {

/// Attributes that nobody asks for are 0.
int attribute_of(CUdevice_attribute wanted) {
  switch (wanted) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 4;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    default:
      return 0;
  }
}

struct ResultText {
  CUresult result;
  const char* name;
  const char* text;
};
constexpr ResultText kResults[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};
const ResultText* find(CUresult result) {
  const auto* const found = std::ranges::find(kResults, result, &ResultText::result);
  return found == std::end(kResults) ? nullptr : found;
}

void copy_text(const std::string& text, char* to, int bytes) {
  const auto room = static_cast<std::size_t>(std::max(bytes, 1)) - 1;
  const std::size_t count = std::min(text.size(), room);
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
}

FakeDevice* device_at(World& all, CUdevice number) {
  const auto index = static_cast<std::size_t>(number);
  return number < 0 || index >= all.devices.size() ? nullptr : all.devices[index].get();
}

CUresult answer(void* data, CUpointer_attribute wanted, const FakeDevice& device, CUdeviceptr first,
                std::size_t bytes) {
  switch (wanted) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = device.number;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = first;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(data) = bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned /*flags*/) {
  return anywhere("cuInit", [](World& all) {
    return all.devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
  });
}
CUresult cuDriverGetVersion(int* version) {
  return anywhere("cuDriverGetVersion", [&](World& all) {
    *version = all.machine.cuda_version;
    return CUDA_SUCCESS;
  });
}
CUresult cuGetErrorName(CUresult error, const char** name) {
  const ResultText* const found = find(error);
  *name = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  const ResultText* const found = find(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  return anywhere("cuDeviceGetCount", [&](World& all) {
    *count = static_cast<int>(all.devices.size());
    return CUDA_SUCCESS;
  });
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return anywhere("cuDeviceGet", [&](World& all) {
    *device = ordinal;
    return device_at(all, ordinal) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}
CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  return anywhere("cuDeviceGetName", [&](World&) {
    copy_text("stand-in " + std::to_string(device), name, bytes);
    return CUDA_SUCCESS;
  });
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute wanted, CUdevice /*device*/) {
  return anywhere("cuDeviceGetAttribute", [&](World&) {
    *value = attribute_of(wanted);
    return CUDA_SUCCESS;
  });
}
CUresult cuDeviceGetPCIBusId(char* address, int bytes, CUdevice device) {
  return anywhere("cuDeviceGetPCIBusId", [&](World&) {
    copy_text("0000:0" + std::to_string(device + 1) + ":00.0", address, bytes);
    return CUDA_SUCCESS;
  });
}

// Two more that list devices for people.
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return anywhere("cuDeviceGetUuid", [&](World&) {
    *uuid = {};
    uuid->bytes[15] = static_cast<char>(device);
    return CUDA_SUCCESS;
  });
}
CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice number) {
  return anywhere("cuDeviceTotalMem_v2", [&](World& all) {
    *bytes = all.machine.device.memory_bytes;
    return device_at(all, number) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice number) {
  return anywhere("cuDevicePrimaryCtxRetain", [&](World& all) {
    FakeDevice* const device = device_at(all, number);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    ++device->retained;
    *context = device->context();
    return CUDA_SUCCESS;
  });
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice number) {
  return anywhere("cuDevicePrimaryCtxRelease_v2", [&](World& all) {
    FakeDevice* const device = device_at(all, number);
    if (device == nullptr || device->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    --device->retained;
    return CUDA_SUCCESS;
  });
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return anywhere("cuCtxPushCurrent_v2", [&](World& all) {
    for (const auto& device : all.devices) {
      if (device->context() != context || device->retained == 0) continue;
      fake::push(device.get());
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_CONTEXT;
  });
}
/// Works on a device that is lost too, or contexts would stay current.
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  FakeDevice* const device = fake::pop();
  *context = device == nullptr ? nullptr : device->context();
  return device == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return on_current("cuMemGetInfo_v2", [&](FakeDevice& device) {
    const auto memory = device.backend->memory();
    *total = memory.limit_bytes;
    *free = memory.limit_bytes - memory.used_bytes;
    return CUDA_SUCCESS;
  });
}
CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  return on_current("cuMemAlloc_v2", [&](FakeDevice& device) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    *address = reinterpret_cast<CUdeviceptr>(device.backend->allocate(bytes));
    device.allocations[*address] = bytes;
    return CUDA_SUCCESS;
  });
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  return on_current("cuMemFree_v2", [&](FakeDevice& device) {
    if (device.allocations.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
    device.backend->release(reinterpret_cast<void*>(address));
    return CUDA_SUCCESS;
  });
}
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute wanted, CUdeviceptr address) {
  return anywhere("cuPointerGetAttribute", [&](World& all) {
    for (const auto& device : all.devices) {
      const auto next = device->allocations.upper_bound(address);
      CUdeviceptr first = address;
      std::size_t bytes = 0;
      if (next != device->allocations.begin() &&
          address - std::prev(next)->first < std::prev(next)->second) {
        std::tie(first, bytes) = *std::prev(next);
      } else {
        bytes = device->room_from(address);
      }
      if (bytes > 0) return answer(data, wanted, *device, first, bytes);
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  return anywhere("cuMemHostAlloc", [&](World& all) {
    void* const taken = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (taken == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    all.host_allocations[taken] = bytes;
    *memory = taken;
    return CUDA_SUCCESS;
  });
}
CUresult cuMemFreeHost(void* memory) {
  return anywhere("cuMemFreeHost", [&](World& all) {
    const auto found = all.host_allocations.find(memory);
    if (found == all.host_allocations.end()) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& device : all.devices) device->forget_words(memory, found->second);
    all.host_allocations.erase(found);
    std::free(memory);
    return CUDA_SUCCESS;
  });
}
/// Unified addresses: the host's own.
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* memory, unsigned /*flags*/) {
  return anywhere("cuMemHostGetDevicePointer_v2", [&](World&) {
    *address = reinterpret_cast<CUdeviceptr>(memory);
    return CUDA_SUCCESS;
  });
}
CUresult cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned /*flags*/) {
  return on_current("cuMemHostRegister_v2", [&](FakeDevice& device) {
    if (device.registrations.contains(memory)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (!device.backend->register_host({static_cast<std::byte*>(memory), bytes})) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    device.registrations[memory] = bytes;
    return CUDA_SUCCESS;
  });
}
CUresult cuMemHostUnregister(void* memory) {
  return on_current("cuMemHostUnregister", [&](FakeDevice& device) {
    const auto found = device.registrations.find(memory);
    if (found == device.registrations.end()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    device.backend->unregister_host({static_cast<std::byte*>(memory), found->second});
    device.registrations.erase(found);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
