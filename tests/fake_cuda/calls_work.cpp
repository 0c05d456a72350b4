// SPDX-License-Identifier: Apache-2.0
// The driver's calls that queue work: copies, fills and kernels; and modules.
#include <cstring>

#include "device/cuda/driver_api.hpp"
#include "fake_cuda/machine.hpp"

namespace fake = outboard::fake_cuda;
using fake::FakeDevice;
using fake::on_current;
using outboard::NativeStream;

namespace {

void* host(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

/// Fills with a pattern, through a kernel: it may be of any width.
template <class Element>
CUresult fill(const char* call, CUdeviceptr to, Element value, std::size_t count, CUstream stream) {
  return on_current(call, [&](FakeDevice& device) {
    device.backend->check_range(host(to), count * sizeof(Element));
    device.in_order(stream, [&](NativeStream on) {
      const auto body = [=](outboard::sim::KernelView& view) {
        for (Element& element : view.as<Element>(host(to), count)) element = value;
      };
      device.backend->launch(on, 0, body, "fill");
    });
    return CUDA_SUCCESS;
  });
}

/// A CUfunction: its name.
const std::string& name_of(CUfunction function) {
  return *reinterpret_cast<const std::string*>(function);
}

const std::string* known_name(const char* name) {
  static std::set<std::string> names;  // addresses stay
  return fake::is_kernel(name) ? &*names.insert(name).first : nullptr;
}

}  // namespace

extern "C" {

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return on_current("cuMemcpyDtoHAsync_v2", [&](FakeDevice& device) {
    device.in_order(stream, [&](NativeStream on) {
      device.backend->copy_to_host({static_cast<std::byte*>(to), bytes}, host(from), on);
    });
    return CUDA_SUCCESS;
  });
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes,
                              CUstream stream) {
  return on_current("cuMemcpyHtoDAsync_v2", [&](FakeDevice& device) {
    device.in_order(stream, [&](NativeStream on) {
      device.backend->copy_to_device(host(to), {static_cast<const std::byte*>(from), bytes}, on);
    });
    return CUDA_SUCCESS;
  });
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                              CUstream stream) {
  return on_current("cuMemcpyDtoDAsync_v2", [&](FakeDevice& device) {
    device.in_order(stream, [&](NativeStream on) {
      device.backend->copy_on_device(host(to), host(from), bytes, on);
    });
    return CUDA_SUCCESS;
  });
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  return fill("cuMemsetD8Async", to, value, count, stream);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count,
                          CUstream stream) {
  return fill("cuMemsetD16Async", to, value, count, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  return fill("cuMemsetD32Async", to, value, count, stream);
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return on_current("cuModuleLoadData", [&](FakeDevice& device) {
    if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!device.machine.kernels_load) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    *module = reinterpret_cast<CUmodule>(++device.next_handle);
    device.modules.insert(*module);
    return CUDA_SUCCESS;
  });
}
CUresult cuModuleUnload(CUmodule module) {
  return on_current("cuModuleUnload", [&](FakeDevice& device) {
    return device.modules.erase(module) == 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return on_current("cuModuleGetFunction", [&](FakeDevice& device) {
    if (!device.modules.contains(module)) return CUDA_ERROR_INVALID_HANDLE;
    const std::string* const known = known_name(name);
    if (known == nullptr) return CUDA_ERROR_NOT_FOUND;
    *function = reinterpret_cast<CUfunction>(const_cast<std::string*>(known));
    return CUDA_SUCCESS;
  });
}
/// The arguments are read now, as the driver reads them.
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void** parameters, void** extra) {
  return on_current("cuLaunchKernel", [&](FakeDevice& device) {
    const bool shaped = grid_x > 0 && grid_y == 1 && grid_z == 1 && block_x > 0 &&
                        block_x <= 1024 && block_y == 1 && block_z == 1;
    if (!shaped || parameters == nullptr || extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::string& name = name_of(function);
    std::vector<std::byte> arguments(fake::argument_bytes(name));
    std::memcpy(arguments.data(), parameters[0], arguments.size());
    device.in_order(stream, [&](NativeStream on) {
      const fake::LaunchSize size{grid_x, block_x, shared};
      const auto body = [&name, arguments, size](outboard::sim::KernelView& view) {
        fake::run_kernel(name, arguments.data(), size, view);
      };
      device.backend->launch(on, 0, body, name.c_str());
    });
    return CUDA_SUCCESS;
  });
}

}  // extern "C"

namespace {

/// Every call that the CUDA device makes, as it declares it: a missing one does not link, and one
/// of another type does not compile.
struct EveryCall {
  // The calls' own names, not those that the toolkit's header would make of them.
#define OUTBOARD_FAKE_CALL(name, symbol, type) type name = &symbol;
  OUTBOARD_CUDA_DRIVER_CALLS(OUTBOARD_FAKE_CALL)
#undef OUTBOARD_FAKE_CALL
};

}  // namespace

namespace outboard::fake_cuda {

const void* every_call() {
  static const EveryCall calls;
  return &calls;
}

}  // namespace outboard::fake_cuda
