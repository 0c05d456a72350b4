#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds the release preset into build/release, runs the tests.
#   scripts/test.sh                 everything but the label `nightly`
#   scripts/test.sh --all           everything
#   scripts/test.sh -- -L numerics  more arguments for ctest
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

selection=(-LE nightly)
while (($# > 0)); do
  case $1 in
    --all) selection=() ;;
    --) shift && break ;;
    -h | --help) sed -n '3,6s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *) die "unknown argument $1; arguments for ctest come after --" ;;
  esac
  shift
done

ensure_packages "${build_packages[@]}"
build_preset release
exec ctest --test-dir "$root/build/release" --output-on-failure --no-tests=error \
  -j "$(nproc)" "${selection[@]}" "$@"
