#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the Python of an environment for the package, its tests and the comparisons with others; makes
# what is missing of it.
#   scripts/python_env.sh [--if-there] [GROUP...]
# Groups: build (nanobind, pytest), torch, frameworks (transformers, accelerate, lightning), deepspeed.
# Default: build torch frameworks. --if-there makes nothing: status 77 where something is missing.
# The folder is $OUTBOARD_VENV, or ${XDG_CACHE_HOME:-~/.cache}/outboard/python; with torch it has 4 GB.
# Remove it to make it anew.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/outboard
folder=${OUTBOARD_VENV:-$cache/python}
# Where environments were made before they had this folder.
[[ -n ${OUTBOARD_VENV:-} || -e $folder || ! -x $cache/peers/venv/bin/python ]] || folder=$cache/peers/venv
python=$folder/bin/python

make=true
[[ ${1:-} != --if-there ]] || { make=false && shift; }
groups=("$@")
((${#groups[@]} > 0)) || groups=(build torch frameworks)

# What a group is there for, by the modules to import.
declare -A modules=(
  [build]='nanobind scikit_build_core pytest numpy ml_dtypes'
  [torch]='torch'
  [frameworks]='transformers accelerate lightning'
  [deepspeed]='deepspeed'
)
is_there() {
  local code='import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))'
  # shellcheck disable=SC2086 -- a list of words
  [[ -x $python ]] && "$python" -c "$code" ${modules[$1]} 2>/dev/null
}
install() { "$python" -m pip install -q --disable-pip-version-check "$@" >&2; }

# The wheel of torch is linked to CUDA's libraries and does not load without them, though nothing here
# runs on a GPU. What it only imports when it compiles for a GPU (triton, cusolver, nvtx, the CUDA
# bindings) stays out; so what needs torch is installed without its needs.
make_build() {
  install 'nanobind>=2.4' 'scikit-build-core>=0.10' pytest numpy ml-dtypes
}
make_torch() {
  install filelock 'typing-extensions>=4.13' 'sympy>=1.13.3' networkx jinja2 fsspec numpy \
    'setuptools>=77' \
    'cuda-toolkit[cublas,cudart,cufft,cufile,cupti,cusparse,nvjitlink,nvrtc]==13.2.2' \
    nvidia-cudnn-cu13==9.26.0.51 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 \
    nvidia-nvshmem-cu13==3.7.2
  install --no-deps torch==2.15.0
}
make_frameworks() {
  install --no-deps accelerate==1.15.0 lightning==2.6.6 pytorch-lightning==2.6.6 torchmetrics==1.9.0
  install transformers==5.24.0 huggingface_hub lightning-utilities PyYAML psutil safetensors \
    'fsspec[http]' packaging tqdm
}
make_deepspeed() {
  install einops hjson msgpack packaging psutil py-cpuinfo 'pydantic>=2' tqdm ninja wheel
  # Its setup imports torch, and compiles nothing yet.
  DS_BUILD_OPS=0 install --no-deps --no-build-isolation deepspeed==0.19.8 ||
    say "DeepSpeed could not be installed: it is left out"
}

for group in "${groups[@]}"; do
  [[ -n ${modules[$group]:-} ]] || die "there is no group $group; there are ${!modules[*]}"
  is_there "$group" && continue
  if ! $make; then
    say "$folder lacks ${modules[$group]}: scripts/python_env.sh ${groups[*]} makes it"
    exit 77
  fi
  say "adding to the Python environment in $folder: ${modules[$group]}"
  [[ -x $python ]] || python3 -m venv "$folder"
  "make_$group"
done
printf '%s\n' "$python"
