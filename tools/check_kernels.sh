#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that a PTX file has every kernel and that none fuses a multiplication with an addition,
# flushes subnormals or approximates: then each float operation is the processor's.
#   tools/check_kernels.sh build/.../kernels.ptx
set -euo pipefail
image=${1:?usage: check_kernels.sh PTX}

ptx=$(<"$image")
kernels=$(grep -cE '\.entry outboard_' <<<"$ptx" || true)
if ((kernels != 14)); then
  echo "$image has $kernels of 14 kernels" >&2
  exit 1
fi
found=$(grep -nE '^\s*(fma|mad)\.(rn|rz|rm|rp)|\.ftz|\.approx' <<<"$ptx" | head -n 5 || true)
if [[ -n $found ]]; then
  echo "$image has instructions that do not round as the processor's do:" >&2
  echo "$found" >&2
  exit 1
fi
echo "kernels: ok, $kernels without fused, flushing or approximate instructions"
