#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# accuracy.py with the environment that bench/peers/compare.sh made, or else the Python given.
#   peers_accuracy.sh PYTHON SCRIPT LIBRARY
set -euo pipefail
python=${XDG_CACHE_HOME:-$HOME/.cache}/outboard/peers/venv/bin/python
[[ -x $python ]] || python=$1
exec "$python" "$2" --library "$3"
