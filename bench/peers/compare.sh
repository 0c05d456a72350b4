#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Times Outboard's step beside those of torch and DeepSpeed, on the same pages and threads, in turns.
#   bench/peers/compare.sh [--params N] [--threads N] [--dtype f16|bf16] [--repeat N] [--json FILE]
#   bench/peers/compare.sh --accuracy     1,000 steps against torch, both against double
# Needs about 5 GB in ${XDG_CACHE_HOME:-~/.cache}/outboard/peers for an environment with torch and
# DeepSpeed, made when it is missing; remove that folder to make it anew.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
here=$root/bench/peers
cache=${XDG_CACHE_HOME:-$HOME/.cache}/outboard/peers
python=$cache/venv/bin/python

# The wheel of torch is linked to CUDA's libraries and does not load without them, though nothing
# here runs on a GPU. What it only imports when it compiles for a GPU (triton, cusolver, nvtx, the CUDA
# bindings) stays out.
torch_packages=(torch==2.15.0)
torch_needs=(
  filelock 'typing-extensions>=4.13' 'sympy>=1.13.3' networkx jinja2 fsspec numpy 'setuptools>=77'
  'cuda-toolkit[cublas,cudart,cufft,cufile,cupti,cusparse,nvjitlink,nvrtc]==13.2.2'
  nvidia-cudnn-cu13==9.26.0.51 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7
  nvidia-nvshmem-cu13==3.7.2
)
deepspeed_packages=(deepspeed==0.19.8)
deepspeed_needs=(einops hjson msgpack packaging psutil py-cpuinfo 'pydantic>=2' tqdm ninja wheel)

make_environment() {
  say "making an environment with torch and DeepSpeed in $cache (about 5 GB)"
  rm -rf "$cache/venv"
  mkdir -p "$cache"
  python3 -m venv "$cache/venv"
  "$python" -m pip install -q "${torch_needs[@]}" "${deepspeed_needs[@]}" >&2
  "$python" -m pip install -q --no-deps "${torch_packages[@]}" >&2
  # Its setup imports torch, and compiles nothing yet.
  DS_BUILD_OPS=0 "$python" -m pip install -q --no-deps --no-build-isolation \
    "${deepspeed_packages[@]}" >&2 || say "DeepSpeed could not be installed: it is left out"
  touch "$cache/complete"
}

[[ -e $cache/complete ]] || make_environment
build_preset release --target outboard_peers
library=$root/build/release/bench/peers/liboutboard_peers.so
# DeepSpeed compiles its optimizer for this machine when it is first used, for the CPU only.
export DS_ACCELERATOR=cpu TORCH_EXTENSIONS_DIR=$cache/extensions PYTHONDONTWRITEBYTECODE=1
export PATH=$cache/venv/bin:$PATH
if [[ ${1:-} == --accuracy ]]; then
  exec "$python" "$here/accuracy.py" --library "$library"
fi
commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
exec "$python" "$here/compare.py" --library "$library" --commit "$commit" "$@"
