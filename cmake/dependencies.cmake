# SPDX-License-Identifier: Apache-2.0
# What is searched for, and for whom.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(highway REQUIRED IMPORTED_TARGET libhwy)
if(NOT OUTBOARD_PLAIN_THREADS)
  find_package(TBB REQUIRED)
endif()
if(OUTBOARD_TESTS)
  find_package(GTest REQUIRED)
endif()
