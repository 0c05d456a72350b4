# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts here and by .ci/run; sourced, not run. The caller has set -euo pipefail.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# What a build with tests and examples needs, by its Debian and Ubuntu names.
build_packages=(
  g++ cmake ninja-build pkg-config python3
  libhwy-dev libhwloc-dev libtbb-dev nlohmann-json3-dev libxxhash-dev
  libgtest-dev libopenblas-dev libcli11-dev
)

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

is_debian() { command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }

# Prints those of its arguments that dpkg does not know as installed.
missing_packages() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      printf '%s\n' "$package"
  done
}

# Runs a command as root: directly, or through sudo.
as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "neither root nor sudo: run this as root yourself: $*"
  fi
}

# Installs what is missing. OUTBOARD_PACKAGES=skip trusts the caller to have everything.
ensure_packages() {
  [[ ${OUTBOARD_PACKAGES:-} != skip ]] || return 0
  if ! is_debian; then
    say "This system has no apt-get. Needed are the counterparts of these Debian packages:"
    say "  $*"
    die "install them, then run again with OUTBOARD_PACKAGES=skip"
  fi
  local missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]} > 0)) || return 0
  say "installing: ${missing[*]}"
  # stdout is for results: apt's chatter goes to stderr.
  as_root apt-get update -q >&2
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null >&2
}

# Configures and builds one preset into build/<preset>; more arguments go to the build, and
# $configure_options, a word or nothing, to its configuration.
build_preset() {
  local preset=$1
  shift
  if command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
    # What another clone on this machine has compiled serves this one.
    export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
  fi
  (
    cd "$root"
    cmake --preset "$preset" ${configure_options:-} >&2 && cmake --build --preset "$preset" "$@" >&2
  )
}
