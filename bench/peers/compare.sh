#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Times Outboard's step beside those of torch and DeepSpeed, on the same pages and threads, in turns.
#   bench/peers/compare.sh [--params N] [--threads N] [--dtype f16|bf16] [--repeat N] [--json FILE]
#   bench/peers/compare.sh --accuracy     1,000 steps against torch, both against double
# Needs the environment of scripts/python_env.sh, about 5 GB with torch and DeepSpeed; made when it is
# missing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
here=$root/bench/peers
cache=${XDG_CACHE_HOME:-$HOME/.cache}/outboard/peers
python=$("$root/scripts/python_env.sh" torch deepspeed)
build_preset release --target outboard_peers
library=$root/build/release/bench/peers/liboutboard_peers.so
# DeepSpeed compiles its optimizer for this machine when it is first used, for the CPU only.
export DS_ACCELERATOR=cpu TORCH_EXTENSIONS_DIR=$cache/extensions PYTHONDONTWRITEBYTECODE=1
export PATH=${python%/*}:$PATH
if [[ ${1:-} == --accuracy ]]; then
  exec "$python" "$here/accuracy.py" --library "$library"
fi
commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
exec "$python" "$here/compare.py" --library "$library" --commit "$commit" "$@"
