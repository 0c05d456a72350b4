# SPDX-License-Identifier: Apache-2.0
# Installs BUILD into WORK/prefix, builds the project at SOURCE against it, and runs that.
file(REMOVE_RECURSE ${WORK})

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(flags "-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror")
if(SANITIZE)
  string(APPEND flags " -fsanitize=${SANITIZE}")
  set(ENV{CFLAGS} -fsanitize=${SANITIZE})
endif()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja
  -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_C_COMPILER=${C_COMPILER}
  -DCMAKE_BUILD_TYPE=${BUILD_TYPE} -DCMAKE_CXX_FLAGS=${flags} -DEXPECTED_VERSION=${VERSION})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/stranger)
run(${WORK}/build/stranger_c)

# The same program without CMake, as a Makefile would build it.
set(ENV{PKG_CONFIG_PATH} ${WORK}/prefix/${LIBDIR}/pkgconfig)
run(pkg-config --exact-version=${VERSION} outboard)
execute_process(COMMAND pkg-config --cflags --libs outboard
  OUTPUT_VARIABLE options OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(options UNIX_COMMAND "${options}")
set(sanitize)
if(SANITIZE)
  set(sanitize -fsanitize=${SANITIZE})
endif()
run(${C_COMPILER} -std=c99 -Wall -Wextra -pedantic -Werror ${sanitize}
  ${SOURCE}/main.c -o ${WORK}/by_pkg_config ${options} -Wl,-rpath,${WORK}/prefix/${LIBDIR})
run(${WORK}/by_pkg_config)
