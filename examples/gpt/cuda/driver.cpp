// SPDX-License-Identifier: Apache-2.0
#include "driver.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace gpt::cuda {
namespace {

// The library of the toolkit that this was built with.
const std::string kBlasLibrary = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);

void* open(const char* name, const char* remedy) {
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library != nullptr) return library;
  const char* const why = dlerror();
  throw std::runtime_error(std::string("--device cuda: ") + (why == nullptr ? name : why) + "; " +
                           remedy);
}

template <class Function>
void find(Function& function, void* library, const char* symbol) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (function != nullptr) return;
  throw std::runtime_error(std::string("--device cuda: there is no ") + symbol +
                           " in the library found; install a newer one");
}

Driver load_driver() {
  void* const library = open("libcuda.so.1", "install NVIDIA's driver, or take --device sim");
  Driver driver;
#define GPT_FIND(name, symbol, type) find(driver.name, library, #symbol);
  GPT_DRIVER_CALLS(GPT_FIND)
#undef GPT_FIND
  return driver;
}

Blas load_blas() {
  void* const library =
      open(kBlasLibrary.c_str(), "install the toolkit's cuBLAS, or take --device sim");
  Blas blas;
#define GPT_FIND(name, symbol) find(blas.name, library, #symbol);
  GPT_BLAS_CALLS(GPT_FIND)
#undef GPT_FIND
  return blas;
}

}  // namespace

void Driver::require(CUresult result, const char* call, const std::string& what) const {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (error_name(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown result";
  throw std::runtime_error(std::string(call) + (what.empty() ? "" : " " + what) + ": " + name);
}

void Blas::require(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string(call) + ": cuBLASLt's status " +
                           std::to_string(static_cast<int>(status)));
}

const Driver& driver() {
  static const Driver loaded = load_driver();
  return loaded;
}
const Blas& blas() {
  static const Blas loaded = load_blas();
  return loaded;
}

}  // namespace gpt::cuda
