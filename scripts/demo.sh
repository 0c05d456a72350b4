#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and trains the GPT example on real English prose.
#   scripts/demo.sh                          on six novels
#   scripts/demo.sh FILE|DIR...              on text of your own, UTF-8
#   scripts/demo.sh --steps 200 --log a.jsonl   any other flag of the example; --help lists them
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

# Whether the example's arguments name data: by --data, or as a word that is no flag's value.
names_data() {
  local word before=
  for word in "$@"; do
    [[ $word != --data && $word != --data=* ]] || return 0
    [[ $word == -* || $before == --* && $before != *=* ]] || return 0
    before=$word
    case $word in --digest | --fit) before= ;; esac
  done
  return 1
}

ensure_packages "${build_packages[@]}"
build_preset release --target outboard_gpt
case " $* " in
  *" --help "* | *" -h "* | *" --fit "*) ;;
  *)
    if ! names_data "$@"; then
      text=$(find_text)
      set -- --data "$text" "$@"
    fi
    ;;
esac
exec "$root/build/release/bin/outboard_gpt" "$@"
