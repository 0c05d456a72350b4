#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the package's wheel, installs it from the file into a folder of its own, and runs the tests on that.
#   tests/python/run.sh [PYTEST ARGUMENT...]
# The Python is that of scripts/python_env.sh, which makes what is missing. Everything else is in build/python.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
cd "$root"

python=$(scripts/python_env.sh)
out=$root/build/python
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
fi
rm -rf "$out/wheel" "$out/site"
# Offline: what it is built with is in the environment.
"$python" -m pip wheel -q --disable-pip-version-check --no-index --no-deps --no-build-isolation ./python \
  --wheel-dir "$out/wheel" --config-settings=build-dir="$out/tree" >&2
"$python" -m pip install -q --disable-pip-version-check --no-index --no-deps --target "$out/site" \
  "$out"/wheel/*.whl >&2
say "built and installed: $(basename "$out"/wheel/*.whl)"
cd "$out"  # so that nothing is imported from the sources
export PYTHONPATH=$out/site PYTHONDONTWRITEBYTECODE=1 CUDA_VISIBLE_DEVICES=
exec "$python" -m pytest -q -p no:cacheprovider "$root/tests/python" "$@"
