#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the kernels for every x86-64 level, as a package or a user's -march might, without one
# warning, and runs the golden test on each build that this machine can run: the same targets must be
# there to choose from and give the same bits.
#   tools/march_check.sh                          both compilers: -O3 at every level, -O0 at the ends
#   tools/march_check.sh --all                    -O0 at every level too
#   tools/march_check.sh g++:x86-64-v3:-O3 ...    only these
# Objects are kept in build/march and made anew when a source is newer.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
cd "$root"

out=build/march
levels=(x86-64 x86-64-v2 x86-64-v3 x86-64-v4 native)
flags=(-std=c++20 -ffp-contract=off -I. -Iinclude -Werror -Wall -Wextra -Wpedantic -Wconversion
  -Wshadow -Wsign-conversion)
sources=(simd/*.cpp simd/rules/*.cpp)
launcher=()
! command -v ccache >/dev/null || launcher=(ccache)

# The builds asked for: compiler:level:optimisation.
builds_of() {
  local compiler level
  for compiler in g++ clang++; do
    for level in "${levels[@]}"; do
      echo "$compiler:$level:-O3"
      [[ ${1:-} != --all && $level != x86-64 && $level != native ]] || echo "$compiler:$level:-O0"
    done
  done
}

# folder_of <build>
folder_of() { echo "$out/${1//:/_}"; }

# Lines of "source object compiler flag...", for what is older than anything it could come from.
stale_objects() {
  local build compiler level optimisation source object newest
  newest=$(find simd tests/simd tools/march_check.sh -type f -printf '%T@ %p\n' | sort -n | tail -1)
  newest=${newest#* }
  for build in "$@"; do
    IFS=: read -r compiler level optimisation <<<"$build"
    mkdir -p "$(folder_of "$build")"
    for source in "${sources[@]}"; do
      object=$(folder_of "$build")/$(basename "$source" .cpp).o
      [[ $object -nt $newest ]] || echo "$source $object $compiler -march=$level $optimisation"
    done
  done
  [[ $out/golden.o -nt $newest ]] || echo "tests/simd/update_golden_test.cpp $out/golden.o g++ -O1"
}

compile_all() {
  stale_objects "$@" | xargs -r -P "$(nproc)" -L 1 bash -c '
    source=$1 object=$2 compiler=$3
    shift 3
    $LAUNCHER "$compiler" $FLAGS "$@" -c "$source" -o "$object" || { echo "not built: $object" >&2; exit 255; }' compile
}

# Whether this processor runs what was built for a level: asks the dynamic loader.
runs_here() {
  case $1 in
    x86-64 | native) return 0 ;;
    *) /lib64/ld-linux-x86-64.so.2 --help | grep -q "^ *$1 (supported" ;;
  esac
}

# test_build <build>: prints the targets that it has.
test_build() {
  local binary
  binary=$(folder_of "$1")/golden_test
  g++ -o "$binary" "$(folder_of "$1")"/*.o $out/golden.o -lgtest -lgtest_main -lhwy -pthread
  "$binary" --gtest_brief=1 >&2 || die "$1: other bits than the golden ones"
  "$binary" --gtest_list_tests | sed -n 's|^  ThreeSteps[A-Za-z]*/\([a-z0-9]*\).*|\1|p' | tr '\n' ' '
}

[[ $(uname -m) == x86_64 ]] || { say "not an x86-64 machine: its levels are not checked"; exit 0; }
ensure_packages g++ clang libhwy-dev libgtest-dev
case ${1:-} in
  '' | --all) mapfile -t builds < <(builds_of "${1:-}") ;;
  *) builds=("$@") ;;
esac
mkdir -p $out
export FLAGS="${flags[*]}" LAUNCHER="${launcher[*]}"
compile_all "${builds[@]}"
targets=
for build in "${builds[@]}"; do
  IFS=: read -r _ level _ <<<"$build"
  if ! runs_here "$level"; then
    say "$build: built; this processor cannot run it"
    continue
  fi
  found=$(test_build "$build")
  [[ -n $found ]] || die "$build: no golden test names its target"
  [[ ${targets:=$found} == "$found" ]] || die "$build has $found, the others have $targets"
  say "$build: the golden bits on $found"
done
