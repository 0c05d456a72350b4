# SPDX-License-Identifier: Apache-2.0
# Installs the library, its headers, and what find_package(outboard) needs.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/outboard)
install(TARGETS outboard outboard_c EXPORT outboardTargets)
if(OUTBOARD_CLI)
  install(TARGETS outboard_cli)
endif()
install(DIRECTORY include/outboard DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/include/outboard/version.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/outboard)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT outboardTargets NAMESPACE outboard:: DESTINATION ${package_dir})

# For builds without CMake. The place is relative, so an install may be moved. A static library has
# its users link what it needs, the C++ library too.
file(RELATIVE_PATH OUTBOARD_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" OUTBOARD_PC_UP "${OUTBOARD_PC_UP}")
if(NOT BUILD_SHARED_LIBS)
  set(OUTBOARD_PC_STATIC_LIBS " -lstdc++ -lm -pthread -ldl")
  set(OUTBOARD_PC_STATIC_REQUIRES "hwloc libhwy")
  if(NOT OUTBOARD_PLAIN_THREADS)
    string(APPEND OUTBOARD_PC_STATIC_REQUIRES " tbb")
  endif()
endif()
configure_file(cmake/outboard.pc.in outboard.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/outboard.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

configure_package_config_file(cmake/outboardConfig.cmake.in outboardConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(outboardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/outboardConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/outboardConfigVersion.cmake
  DESTINATION ${package_dir})
