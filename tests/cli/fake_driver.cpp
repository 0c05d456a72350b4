// SPDX-License-Identifier: Apache-2.0
// Stands in for NVIDIA's libcuda.so.1 where the program looks for it: two devices, or the error
// that OUTBOARD_FAKE_CUINIT numbers; with OUTBOARD_FAKE_LOST the second fails when it is asked.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define OUTBOARD_FAKE extern "C" __attribute__((visibility("default"))) int

OUTBOARD_FAKE cuInit(unsigned) {
  const char* error = std::getenv("OUTBOARD_FAKE_CUINIT");
  return error == nullptr ? 0 : std::atoi(error);
}
OUTBOARD_FAKE cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
OUTBOARD_FAKE cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
OUTBOARD_FAKE cuDeviceGet(int* device, int ordinal) {
  *device = 40 + ordinal;  // a handle is not a number to count with
  return 0;
}
OUTBOARD_FAKE cuDeviceGetPCIBusId(char* address, int bytes, int device) {
  (void)std::snprintf(address, static_cast<std::size_t>(bytes), "00000000:F%d:00.0", device - 40);
  return 0;
}
OUTBOARD_FAKE cuDeviceGetName(char* name, int bytes, int device) {
  if (device > 40 && std::getenv("OUTBOARD_FAKE_LOST") != nullptr) return 999;
  (void)std::snprintf(name, static_cast<std::size_t>(bytes), "stand-in %d", device - 40);
  return 0;
}
OUTBOARD_FAKE cuDeviceGetUuid(unsigned char* uuid, int device) {
  std::memset(uuid, 0xa0 + device - 40, 16);
  return 0;
}
OUTBOARD_FAKE cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = std::size_t{1} << 34;
  return 0;
}
OUTBOARD_FAKE cuDeviceGetAttribute(int* value, int, int) {
  *value = 0;
  return 0;
}
OUTBOARD_FAKE cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_STAND_IN";
  return 0;
}
