// SPDX-License-Identifier: Apache-2.0
// Stands in for NVIDIA's libcuda.so.1 where the program looks for it: two devices, or the error
// that OUTBOARD_FAKE_CUINIT numbers; with OUTBOARD_FAKE_LOST the second fails when it is asked.
// OUTBOARD_FAKE_CUDA is the driver's version, OUTBOARD_FAKE_MODE the devices' compute mode,
// OUTBOARD_FAKE_RETAIN what taking one of them returns.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define OUTBOARD_FAKE extern "C" __attribute__((visibility("default"))) int

/// Of a variable; 0 where there is none.
static int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

OUTBOARD_FAKE cuInit(unsigned) {
  return number_in("OUTBOARD_FAKE_CUINIT");
}
OUTBOARD_FAKE cuDriverGetVersion(int* version) {
  const int wanted = number_in("OUTBOARD_FAKE_CUDA");
  *version = wanted == 0 ? 13000 : wanted;
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
  *value = number_in("OUTBOARD_FAKE_MODE");
  return 0;
}
OUTBOARD_FAKE cuDevicePrimaryCtxRetain(void**, int) {
  return number_in("OUTBOARD_FAKE_RETAIN");
}
OUTBOARD_FAKE cuDevicePrimaryCtxRelease_v2(int) {
  return 0;
}
OUTBOARD_FAKE cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_STAND_IN";
  return 0;
}
