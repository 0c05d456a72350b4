# SPDX-License-Identifier: Apache-2.0
# One folder under src/ is one room is one object library; `outboard` is all rooms together.

# outboard_room(<name> SOURCES <files...> [LINKS <vendor targets...>])
function(outboard_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINKS" ${ARGN})
  add_library(outboard_${name} OBJECT ${ROOM_SOURCES})
  target_include_directories(outboard_${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}
    ${PROJECT_BINARY_DIR}/include)
  target_link_libraries(outboard_${name} PRIVATE
    $<BUILD_INTERFACE:outboard_flags> Threads::Threads ${ROOM_LINKS})
  set_property(GLOBAL APPEND PROPERTY OUTBOARD_ROOMS outboard_${name})
endfunction()

# Defines `outboard_inside`: every room in a form whose hidden symbols can be linked to. The tests
# use it, since they look inside. With a static `outboard` it is that archive.
function(outboard_add_inside)
  if(NOT BUILD_SHARED_LIBS)
    add_library(outboard_inside ALIAS outboard)
    return()
  endif()
  add_library(outboard_inside STATIC EXCLUDE_FROM_ALL)
  get_property(rooms GLOBAL PROPERTY OUTBOARD_ROOMS)
  foreach(room IN LISTS rooms)
    target_sources(outboard_inside PRIVATE $<TARGET_OBJECTS:${room}>)
  endforeach()
  target_include_directories(outboard_inside PUBLIC
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
  target_compile_features(outboard_inside PUBLIC cxx_std_20)
  get_target_property(vendors outboard LINK_LIBRARIES)
  target_link_libraries(outboard_inside PRIVATE ${vendors})
endfunction()

# outboard_test(<name> SOURCES <files...> [LINKS ...] [LABELS ...] [TIMEOUT <s>]): one GoogleTest
# binary that may see every room's headers.
function(outboard_test name)
  cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;LINKS;LABELS" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 600)  # of a sanitizer on a busy machine; none takes a third of it else
  endif()
  add_executable(${name} ${TEST_SOURCES})
  target_include_directories(${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE
    outboard_inside outboard_flags GTest::gtest_main Threads::Threads ${TEST_LINKS})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "${TEST_LABELS}")
  if("threads" IN_LIST TEST_LABELS)
    add_dependencies(threads_tests ${name})
  endif()
endfunction()
