// SPDX-License-Identifier: Apache-2.0
/// What a test says to the stand-in for libcuda.so.1: which machine it plays, and what fails.
///
/// The stand-in runs on the software GPU (sim::Options): in real time on threads, or on a virtual
/// clock with seeded delays and every legal order. Kernels are found by name and are the host's own
/// versions. Its memory is fenced: the host cannot touch it, and a kernel or copy that leaves a
/// live allocation fails as on a GPU, with an error that stays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/virtual_loop.hpp"
#include "outboard/sim.hpp"

#if defined(OUTBOARD_FAKE_CUDA_BUILD)
#define OUTBOARD_FAKE_CUDA_API __attribute__((visibility("default")))
#else
#define OUTBOARD_FAKE_CUDA_API
#endif

namespace outboard::fake_cuda {

struct Machine {
  std::uint32_t devices = 1;
  int cuda_version = 13000;
  sim::Options device{};     ///< of each
  bool kernels_load = true;  ///< else cuModuleLoadData() finds no code for the device
};
/// A new machine: everything that was made on the one before must be gone.
OUTBOARD_FAKE_CUDA_API void start(const Machine& machine);

/// In virtual time the loop of a device that somebody has a context on; else null.
OUTBOARD_FAKE_CUDA_API core::VirtualLoop* loop_of(int ordinal);

/// The software GPU that a device runs on, for trainers: its streams and memory are good to the
/// driver's calls too.
OUTBOARD_FAKE_CUDA_API sim::Gpu gpu_of(int ordinal);

/// Makes calls fail that are counted from 1 since start().
struct Failure {
  std::string call;       ///< "cuMemAlloc_v2"; "": any
  std::uint64_t nth = 1;  ///< of these
  int result = 2;         ///< a CUresult; one that stays makes every later call fail too
};
OUTBOARD_FAKE_CUDA_API void fail(const Failure& failure);
/// The last call that was made to fail; "": none yet.
OUTBOARD_FAKE_CUDA_API std::string failed_call();

/// How often driver calls have been made since start().
OUTBOARD_FAKE_CUDA_API std::uint64_t calls_made();
OUTBOARD_FAKE_CUDA_API std::uint64_t calls_of(const char* call);

/// What is live on the machine: all 0 when everything was given back.
struct Live {
  std::uint64_t contexts = 0, streams = 0, events = 0, allocations = 0, modules = 0;
  std::uint64_t registrations = 0, host_allocations = 0;
};
OUTBOARD_FAKE_CUDA_API Live live();

/// Queues a trainer's kernel on a stream of the device, one of the default streams as well.
OUTBOARD_FAKE_CUDA_API void launch(int ordinal, std::uint64_t stream, sim::Duration duration,
                                   sim::Kernel kernel);

/// Inside such a kernel: `bytes` of device memory, for libraries that do not have the software GPU
/// in them.
OUTBOARD_FAKE_CUDA_API void* bytes_of(sim::KernelView& view, const void* address,
                                      std::size_t bytes);

}  // namespace outboard::fake_cuda
