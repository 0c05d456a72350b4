# SPDX-License-Identifier: Apache-2.0
# How the public library is versioned, and what a shared one shows.

# Hidden visibility does not reach what the standard library's templates instantiate: a version
# script does.
function(outboard_limit_exports target)
  set(map ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  target_link_options(${target} PRIVATE -Wl,--version-script=${map})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map})
endfunction()

set_target_properties(outboard PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
if(BUILD_SHARED_LIBS)
  outboard_limit_exports(outboard)
endif()
