#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lets the safetensors package that others read with look at our files, and us at its files.
#   tools/safetensors_check.sh [PROGRAM]    PROGRAM: the built outboard, build/release/bin/outboard
# Makes a Python environment with that package and numpy beside the clone, in
# ${XDG_CACHE_HOME:-~/.cache}/outboard/safetensors, when it is missing. No other test needs it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

program=$(realpath "${1:-$root/build/release/bin/outboard}")
environment=${XDG_CACHE_HOME:-$HOME/.cache}/outboard/safetensors
[[ -x $program ]] || die "there is no $program; build the target outboard_cli first"
if [[ ! -x $environment/bin/python ]]; then
  python3 -m venv "$environment"
fi
if ! "$environment/bin/python" -c 'import numpy, safetensors' 2>/dev/null; then
  "$environment/bin/pip" install -q safetensors numpy >&2
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$environment/bin/python" "$root/tools/safetensors_check.py" "$program" "$folder"
