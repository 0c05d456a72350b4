#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and trains the text example on real English prose.
# Arguments go to the example: scripts/demo.sh --help
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cache=$root/build/text

# Prints a folder of plain English text, at least 2 MB, unpacking it on the first call: Jane
# Austen's six novels from a 1.6 MB package; if it cannot be had, Perl's manual.
find_text() {
  if [[ ! -e $cache/complete ]]; then
    rm -rf "$cache" && mkdir -p "$cache"
    unpack_novels || unpack_manual || die "no English text found; give some: --data FILE|DIR"
    touch "$cache/complete"
  fi
  printf '%s\n' "$cache/prose"
}

# Fetches a package without installing it, and unpacks it into $cache/package.
fetch_package() {
  is_debian || return 1
  apt-cache show "$1" >/dev/null 2>&1 || as_root apt-get update -q >&2 || return 1
  (cd "$cache" && apt-get download -q -o APT::Sandbox::User="$(id -un)" "$1" >&2) || return 1
  dpkg -x "$cache/$1"_*.deb "$cache/package"
}

unpack_novels() {
  fetch_package r-cran-janeaustenr || return 1
  python3 "$root/scripts/novels.py" \
    "$cache/package/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb" "$cache/prose"
}

unpack_manual() {
  fetch_package perl-doc || return 1
  mkdir -p "$cache/prose"
  find "$cache/package" -name '*.pod' -size -200k -exec cp {} "$cache/prose" \;
  [[ -n $(ls "$cache/prose") ]]
}

ensure_packages "${build_packages[@]}"
build_preset release --target outboard_text
case " $* " in
  *" --data "* | *" --help "*) ;;
  *)
    text=$(find_text)
    set -- --data "$text" "$@"
    ;;
esac
exec "$root/build/release/bin/outboard_text" "$@"
