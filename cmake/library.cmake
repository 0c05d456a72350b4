# SPDX-License-Identifier: Apache-2.0
# How the public library is versioned, and what a shared one shows.
set_target_properties(outboard PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/exports.map)
# Hidden visibility does not reach what the standard library's templates instantiate.
target_link_options(outboard PRIVATE
  $<$<BOOL:${BUILD_SHARED_LIBS}>:-Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/exports.map>)
