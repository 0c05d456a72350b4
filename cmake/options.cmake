# SPDX-License-Identifier: Apache-2.0
# Every option of the build, and the flags they turn into.
option(BUILD_SHARED_LIBS "Build liboutboard as a shared library" OFF)
option(OUTBOARD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(OUTBOARD_CLI "Build the program outboard" ${PROJECT_IS_TOP_LEVEL})
option(OUTBOARD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(OUTBOARD_PYTHON "Build the package for Python (Python_EXECUTABLE: one with nanobind)" OFF)
option(OUTBOARD_BENCH "Build the benchmarks" OFF)
option(OUTBOARD_WERROR "Treat warnings as errors" OFF)
option(OUTBOARD_PLAIN_THREADS "Run updates on plain threads instead of oneTBB" OFF)
set(OUTBOARD_SANITIZE "" CACHE STRING "Sanitizers for every target, as for -fsanitize=")

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endif()

# Every target of this project; nothing of it reaches a user of the library. No contraction of a
# multiply and an add anywhere: the same bits on every target is a promise.
add_library(outboard_flags INTERFACE)
target_compile_options(outboard_flags INTERFACE
  -ffp-contract=off
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wno-psabi $<$<BOOL:${OUTBOARD_WERROR}>:-Werror>
  # g++ 12 sees an overlap in `"literal" + std::string` that cannot be (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
add_library(outboard_c_flags INTERFACE)
target_compile_options(outboard_c_flags INTERFACE
  -Wall -Wextra -pedantic -Wconversion -Wshadow -Wstrict-prototypes
  $<$<BOOL:${OUTBOARD_WERROR}>:-Werror>)
if(OUTBOARD_SANITIZE)
  add_compile_options(
    -fsanitize=${OUTBOARD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${OUTBOARD_SANITIZE})
endif()
