#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# accuracy.py with the environment that scripts/python_env.sh made, or else the Python given.
#   peers_accuracy.sh PYTHON SCRIPT LIBRARY
set -euo pipefail
scripts=$(dirname "${BASH_SOURCE[0]}")/../../scripts
python=$("$scripts/python_env.sh" --if-there torch 2>/dev/null) || python=$1
exec "$python" "$2" --library "$3"
