#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the kernels' tests on processors that are not there, emulated by qemu: 64-bit Arm with and
# without SVE, and, on an x86-64 machine, x86-64 without AVX, where the command line and an example
# run as well. Bits must be those of this one.
#   tools/arm_check.sh          all of them
#   tools/arm_check.sh sve      only that one (sve, neon, plain-x86)
# Installs or fetches what it needs, Debian packages only, into build/arm.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
cd "$root"

out=build/arm
highway=$out/highway
arm_packages=(g++-aarch64-linux-gnu qemu-user-static libgtest-dev)
googletest=/usr/src/googletest/googletest

# Highway for Arm, unpacked beside the system's own: through a package list of this script's, so
# that the machine's stays as it is.
fetch_highway() {
  [[ -e $highway/usr/include/hwy/highway.h ]] && return
  is_debian || die "Arm is not checked: put libhwy for arm64 into $highway (as unpacked libhwy-dev)"
  local apt=$PWD/$out/apt
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$highway"
  local options=(-q -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache"
    -o "APT::Architectures::=$(dpkg --print-architecture)" -o APT::Architectures::=arm64)
  apt-get "${options[@]}" update >&2 || die "Arm is not checked: no list of arm64 packages to be had"
  (cd "$apt" && apt-get "${options[@]}" download libhwy-dev:arm64 libhwy1:arm64 >&2) ||
    die "Arm is not checked: libhwy-dev:arm64 cannot be downloaded"
  local package
  for package in "$apt"/*_arm64.deb; do dpkg-deb -x "$package" "$highway"; done
}

# Objects that are newer than everything they could come from are kept.
compile_all() {
  local flags=(-std=c++20 -O2 -ffp-contract=off -I. -Iinclude "-I$highway/usr/include"
    -I"$googletest" -I"$googletest/include")
  local source object newest objects=() stale=()
  newest=$(find simd tests/simd tools/arm_check.sh -type f -printf '%T@ %p\n' | sort -n | tail -1)
  newest=${newest#* }
  for source in simd/*.cpp simd/rules/*.cpp tests/simd/*_test.cpp \
    "$googletest"/src/gtest-all.cc "$googletest"/src/gtest_main.cc; do
    [[ $source != */large_test.cpp ]] || continue
    object=$out/$(basename "${source%.*}").o
    objects+=("$object")
    [[ $object -nt $newest ]] || stale+=("$source" "$object")
  done
  ((${#stale[@]} == 0)) || printf '%s\0' "${stale[@]}" | xargs -0 -n 2 -P "$(nproc)" bash -c \
    'aarch64-linux-gnu-g++ "${@:1:$#-2}" -c "${@: -2:1}" -o "${@: -1}"' compile "${flags[@]}"
  # Not every object there is: one of a source that is gone would still be linked.
  aarch64-linux-gnu-g++ -o $out/simd_test "${objects[@]}" -L$highway/usr/lib/aarch64-linux-gnu -lhwy -pthread
}

# Everything that looks at bits; the long runs are for real processors.
matrix='-*Drift*'
matrix+=':*ValuesChosenToHurt*:AccuracyTargets*:*EvenlyOverAllBitPatterns*:*EverySingleBitShows*'

# run_arm <cpu> <targets it must have> <filter>
run_arm() {
  local emulator=(qemu-aarch64-static -cpu "$1" -L /usr/aarch64-linux-gnu
    -E "LD_LIBRARY_PATH=$PWD/$highway/usr/lib/aarch64-linux-gnu:/usr/aarch64-linux-gnu/lib")
  local listed
  listed=$("${emulator[@]}" $out/simd_test --gtest_list_tests --gtest_filter='*Golden*')
  local target
  for target in $2; do
    [[ $listed == *"/$target"* ]] || die "an emulated $1 has no kernels for $target: $listed"
  done
  say "emulated $1: $2"
  "${emulator[@]}" $out/simd_test --gtest_brief=1 --gtest_filter="$3"
}

run_sve() { run_arm max,sve256=on 'sve neon scalar' "$matrix"; }
run_neon() { run_arm cortex-a57 'neon scalar' '*Golden*:*Rules*:Convert*AgreeBit*:*AdamW*:*Ragged*'; }

# What an example prints, and what the benchmark computes: its instruction set and its digest.
whole_programs() {
  "$@" build/release/bin/outboard_minimal
  "$@" build/release/bin/outboard bench update --params 1e5 --threads 1 --repeat 7 --json - |
    grep -E '"(isa|digest)":'
}

# The whole library, static initialisers too, where there is no AVX: only scalar kernels may run.
run_plain-x86() {
  [[ $(uname -m) == x86_64 ]] || return 0
  build_preset clang --target simd_update_test simd_update_layout_test simd_reduce_test \
    simd_target_test
  build_preset release --target outboard_cli outboard_minimal
  local test emulator=(qemu-x86_64-static -cpu Nehalem)
  say "emulated x86-64 without AVX"
  for test in update reduce target; do
    "${emulator[@]}" build/clang/bin/simd_${test}_test --gtest_brief=1 --gtest_filter="$matrix"
  done
  "${emulator[@]}" build/clang/bin/simd_update_layout_test --gtest_brief=1 --gtest_filter='*Ragged*'
  local here there
  here=$(OUTBOARD_SIMD=scalar whole_programs)
  there=$(whole_programs "${emulator[@]}")
  [[ $there == *'"isa": "scalar"'*digest* ]] || die "without AVX other kernels were chosen: $there"
  diff <(echo "$here") <(echo "$there") >&2 || die "whole programs give other bits without AVX"
  say "the benchmark and an example: the same bits"
}

ensure_packages "${arm_packages[@]}"
mkdir -p $out
wanted=("$@")
((${#wanted[@]} > 0)) || wanted=(sve neon plain-x86)
for one in "${wanted[@]}"; do
  if [[ $one == sve || $one == neon ]]; then
    fetch_highway
    compile_all
  fi
  "run_$one"
done
