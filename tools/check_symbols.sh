#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that a shared library shows symbols of namespace outboard and functions of outboard.h, and
# no others.
#   tools/check_symbols.sh build/.../liboutboard.so
set -euo pipefail
library=${1:?usage: check_symbols.sh LIBRARY}

# nm prints "address type name"; the name may contain blanks.
symbols=$(nm --dynamic --defined-only --demangle "$library" | cut -d' ' -f3-)
own='^((typeinfo|typeinfo name|vtable) for )?outboard::|^outboard_[a-z_]+$'
strangers=$(grep -vE "$own" <<<"$symbols" || true)
if [[ -n $strangers ]]; then
  echo "$library shows symbols that are neither of namespace outboard nor of its C interface:" >&2
  echo "$strangers" >&2
  exit 1
fi
count=$(grep -cE "$own" <<<"$symbols" || true)
if ((count == 0)); then
  echo "$library shows no symbol at all" >&2
  exit 1
fi
echo "symbols: ok, $count shown"
