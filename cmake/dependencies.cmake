# SPDX-License-Identifier: Apache-2.0
# What is searched for, and for whom.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(highway REQUIRED IMPORTED_TARGET libhwy)
if(NOT OUTBOARD_PLAIN_THREADS)
  find_package(TBB REQUIRED)
endif()
find_package(nlohmann_json REQUIRED)
include(CheckIncludeFileCXX)
check_include_file_cxx(xxhash.h OUTBOARD_HAVE_XXHASH)  # used as headers alone
if(NOT OUTBOARD_HAVE_XXHASH)
  message(FATAL_ERROR "xxhash.h is not found (Debian: libxxhash-dev)")
endif()
if(OUTBOARD_TESTS)
  find_package(GTest REQUIRED)
endif()
