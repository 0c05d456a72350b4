// SPDX-License-Identifier: Apache-2.0
// The driver's calls on streams and events.
#include <functional>

#include "fake_cuda/machine.hpp"

namespace fake = outboard::fake_cuda;
using fake::FakeDevice;
using fake::FakeEvent;
using fake::on_current;
using outboard::NativeStream;

namespace {

template <class Handle>
Handle new_handle(FakeDevice& device) {
  return reinterpret_cast<Handle>(++device.next_handle);
}

FakeEvent* find(FakeDevice& device, CUevent handle) {
  const auto found = device.events.find(handle);
  return found == device.events.end() ? nullptr : &found->second;
}

/// Waits without the mutex, which work that is waited for may need.
template <class Wait>
CUresult waiting(const char* call, Wait prepare) noexcept {
  std::function<void()> wait;
  std::shared_ptr<outboard::sim::SimBackend> backend;
  const CUresult prepared = on_current(call, [&](FakeDevice& device) {
    backend = device.backend;
    return prepare(device, wait);
  });
  if (prepared != CUDA_SUCCESS || !wait) return prepared;
  try {
    wait();
    return CUDA_SUCCESS;
  } catch (const std::exception& error) {
    return fake::result_of(error);
  }
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return on_current("cuStreamCreate", [&](FakeDevice& device) {
    *stream = new_handle<CUstream>(device);
    const bool blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    device.streams[*stream] = {device.backend->create_stream("stream"), blocking};
    return CUDA_SUCCESS;
  });
}
/// Gives the stream up when its work has run, as the driver does, but waits for that.
CUresult cuStreamDestroy_v2(CUstream stream) {
  NativeStream gone{};
  return waiting("cuStreamDestroy_v2", [&](FakeDevice& device, std::function<void()>& wait) {
    const auto found = device.streams.find(stream);
    if (found == device.streams.end()) return CUDA_ERROR_INVALID_HANDLE;
    gone = found->second.on;
    device.streams.erase(found);
    wait = [backend = device.backend, gone] { backend->destroy_stream(gone); };
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return on_current("cuStreamGetCtx", [&](FakeDevice& device) {
    // Handles count up on each device alone; the stand-in's devices share no numbers.
    for (const auto& other : fake::world().devices) {
      if (other.get() != &device && other->streams.contains(stream)) {
        *context = other->context();
        return CUDA_SUCCESS;
      }
    }
    (void)device.stream(stream);
    *context = device.context();
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamQuery(CUstream stream) {
  return on_current("cuStreamQuery", [&](FakeDevice& device) {
    const auto event = device.backend->create_event();
    device.backend->record(event, device.stream(stream).on);
    const bool empty = device.backend->reached(event);
    device.backend->destroy_event(event);
    return empty ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}
CUresult cuStreamSynchronize(CUstream stream) {
  return waiting("cuStreamSynchronize", [&](FakeDevice& device, std::function<void()>& wait) {
    const NativeStream on = device.stream(stream).on;
    wait = [backend = device.backend, on] { backend->synchronize_stream(on); };
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned /*flags*/) {
  return on_current("cuStreamWaitEvent", [&](FakeDevice& device) {
    const FakeEvent* const found = find(device, event);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    device.in_order(stream, [&](NativeStream on) { device.backend->wait_event(on, found->event); });
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned flags) {
  return on_current("cuStreamWaitValue32_v2", [&](FakeDevice& device) {
    if (!device.machine.device.stream_memory_ops) return CUDA_ERROR_NOT_SUPPORTED;
    if (flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_NOT_SUPPORTED;
    device.wait_word(stream, reinterpret_cast<const std::uint32_t*>(address), value);
    return CUDA_SUCCESS;
  });
}
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return on_current("cuLaunchHostFunc", [&](FakeDevice& device) {
    device.in_order(stream, [&](NativeStream on) {
      device.backend->launch(
          on, 0, [function, data](outboard::sim::KernelView&) { function(data); }, "host function");
    });
    return CUDA_SUCCESS;
  });
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return on_current("cuEventCreate", [&](FakeDevice& device) {
    *event = new_handle<CUevent>(device);
    device.events[*event] = {device.backend->create_event(), (flags & CU_EVENT_DISABLE_TIMING) == 0,
                             false};
    return CUDA_SUCCESS;
  });
}
CUresult cuEventDestroy_v2(CUevent event) {
  return on_current("cuEventDestroy_v2", [&](FakeDevice& device) {
    const FakeEvent* const found = find(device, event);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    device.backend->destroy_event(found->event);
    device.events.erase(event);
    return CUDA_SUCCESS;
  });
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  return on_current("cuEventRecord", [&](FakeDevice& device) {
    FakeEvent* const found = find(device, event);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    device.in_order(stream, [&](NativeStream on) { device.backend->record(found->event, on); });
    found->recorded = true;
    return CUDA_SUCCESS;
  });
}
CUresult cuEventQuery(CUevent event) {
  return on_current("cuEventQuery", [&](FakeDevice& device) {
    const FakeEvent* const found = find(device, event);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return device.backend->reached(found->event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}
CUresult cuEventSynchronize(CUevent event) {
  return waiting("cuEventSynchronize", [&](FakeDevice& device, std::function<void()>& wait) {
    const FakeEvent* const found = find(device, event);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    wait = [backend = device.backend, on = found->event] {
      backend->synchronize(on, "cuEventSynchronize");
    };
    return CUDA_SUCCESS;
  });
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return on_current("cuEventElapsedTime", [&](FakeDevice& device) {
    const FakeEvent* const from = find(device, start);
    const FakeEvent* const to = find(device, end);
    if (from == nullptr || to == nullptr || !from->timed || !to->timed) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!from->recorded || !to->recorded) return CUDA_ERROR_INVALID_HANDLE;
    if (!device.backend->reached(from->event) || !device.backend->reached(to->event)) {
      return CUDA_ERROR_NOT_READY;
    }
    *milliseconds = static_cast<float>(device.backend->elapsed_us(from->event, to->event) * 1e-3);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
