# SPDX-License-Identifier: Apache-2.0
# Installs the library, its headers, and what find_package(outboard) needs.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/outboard)
install(TARGETS outboard EXPORT outboardTargets)
if(OUTBOARD_CLI)
  install(TARGETS outboard_cli)
endif()
install(DIRECTORY include/outboard DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.hpp")
install(FILES ${PROJECT_BINARY_DIR}/include/outboard/version.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/outboard)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT outboardTargets NAMESPACE outboard:: DESTINATION ${package_dir})

configure_package_config_file(cmake/outboardConfig.cmake.in outboardConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(outboardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/outboardConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/outboardConfigVersion.cmake
  DESTINATION ${package_dir})
