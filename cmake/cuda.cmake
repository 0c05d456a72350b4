# SPDX-License-Identifier: Apache-2.0
# Whether GPUs can be driven: types from the toolkit's headers, and its compiler for the kernels.
# Nothing of the toolkit is linked; the driver is found at run time.
set(OUTBOARD_CUDA AUTO CACHE STRING "Build the CUDA device: AUTO, ON or OFF")
set_property(CACHE OUTBOARD_CUDA PROPERTY STRINGS AUTO ON OFF)
set(OUTBOARD_CUDA_ARCHITECTURES "" CACHE STRING
  "Compute capabilities to make kernels for, as 80;90; empty: all that the toolkit knows from 7.5 on. \
The lowest one is kept as PTX too")

option(OUTBOARD_CUDA_PTX_ONLY "Make kernels as PTX alone: quick to build, compiled by the driver" OFF)

if(NOT OUTBOARD_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "OUTBOARD_CUDA is '${OUTBOARD_CUDA}'; it must be AUTO, ON or OFF")
endif()
set(OUTBOARD_HAVE_CUDA OFF)
if(NOT OUTBOARD_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit 12.0)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
    set(OUTBOARD_HAVE_CUDA ON)
  elseif(OUTBOARD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "OUTBOARD_CUDA is ON, and no CUDA Toolkit of version 12 or newer is found "
      "(set CUDAToolkit_ROOT)")
  endif()
endif()

# Those that the compiler takes, between 75 and 120; machine code of one generation is enough for all
# of it, but newer members of some generations run faster on their own.
function(outboard_cuda_architectures result)
  if(OUTBOARD_CUDA_ARCHITECTURES)
    set(${result} ${OUTBOARD_CUDA_ARCHITECTURES} PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} --list-gpu-code
    OUTPUT_VARIABLE known OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(found)
  foreach(architecture IN ITEMS 75 80 86 89 90 100 120)
    if(known MATCHES "sm_${architecture}(\n|$)")
      list(APPEND found ${architecture})
    endif()
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# outboard_compile_kernels(<output> <source.cu> <more flags...>)
function(outboard_compile_kernels output source)
  set(kernels ${PROJECT_SOURCE_DIR}/src/device/cuda/kernels)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr
      --threads 0 -I${kernels}/one_lane -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src
      -I${PROJECT_SOURCE_DIR} -I${PROJECT_BINARY_DIR}/include -MD -MF ${output}.d ${ARGN}
      -o ${output} ${source}
    DEPENDS ${source}
    DEPFILE ${output}.d
    COMMENT "Compiling the device's kernels"
    VERBATIM)
endfunction()

# outboard_add_kernels(<target> <source.cu>): compiles the kernels and makes them part of the target.
function(outboard_add_kernels target source)
  outboard_cuda_architectures(architectures)
  list(GET architectures 0 lowest)
  set(codes -gencode arch=compute_${lowest},code=compute_${lowest})
  if(NOT OUTBOARD_CUDA_PTX_ONLY)
    foreach(architecture IN LISTS architectures)
      list(APPEND codes -gencode arch=compute_${architecture},code=sm_${architecture})
    endforeach()
  endif()
  set(OUTBOARD_KERNELS ${CMAKE_CURRENT_BINARY_DIR}/kernels.fatbin)
  outboard_compile_kernels(${OUTBOARD_KERNELS} ${source} -fatbin ${codes})
  set(image ${CMAKE_CURRENT_BINARY_DIR}/kernel_image.cpp)
  configure_file(cuda/kernel_image.cpp.in ${image} @ONLY)
  set_source_files_properties(${image} PROPERTIES OBJECT_DEPENDS ${OUTBOARD_KERNELS})
  target_sources(${target} PRIVATE ${image})
endfunction()
