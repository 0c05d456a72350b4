#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Boots virtual machines with several NUMA nodes, under software emulation, and looks in each where
# the kernel has put every page of the engine's memory and where its workers ran: memory policies and
# move_pages() are the kernel's own. Nothing is changed on this machine.
#   tools/numa_check.sh              all machines
#   tools/numa_check.sh two          only that one (two, four, memory-only)
# Installs or fetches what it needs, Debian packages only, into build/guest and build/numa.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/guest.sh"
cd "$root"

out=build/numa
boot_seconds=240 # some 60 on an idle machine; three of them, within the stage's own limit

# boot <name> <what the guest is to find: node:cpus,...> <qemu's description of the nodes...>
boot() {
  local name=$1 nodes=$2 status=0
  shift 2
  local log=$out/$name.log
  printf '=== %s\n' "$name"
  boot_guest "$out" "$log" "$boot_seconds" "guest_nodes=$nodes" -m 768 "$@" || status=$?
  # The kernel ends lines as terminals want them.
  tr -d '\r' <"$log" | sed -n '/^nodes:/,$p'
  ((status != 124)) || die "$name: no end after $boot_seconds s; see $log"
  grep -q '^GUEST PASSED' "$log" || die "$name failed; see $log"
}

# node <number> <MiB> [cpus]: one node's options.
node() {
  printf '%s\n' -object "memory-backend-ram,id=m$1,size=$2M" \
    -numa "node,nodeid=$1,memdev=m$1${3:+,cpus=$3}"
}

machine_two() { boot two 0:2,1:2 -smp 4 $(node 0 256 0-1) $(node 1 512 2-3); }
machine_four() {
  boot four 0:1,1:1,2:1,3:1 -smp 4 $(node 0 160 0) $(node 1 256 1) $(node 2 160 2) $(node 3 192 3)
}
# The second node is memory without cpus; the kernel counts it last.
machine_memory_only() {
  boot memory-only 0:1,1:1,2:0 -smp 2 $(node 0 384 0) $(node 1 128) $(node 2 256 1)
}

[[ $(uname -m) == x86_64 ]] || die "NUMA is checked on x86-64 machines only"
ensure_packages "${build_packages[@]}" "${guest_packages[@]}"
fetch_kernel
build_preset release --target numa_guest
rm -rf "$out" && mkdir -p "$out"
make_initramfs build/release/bin/numa_guest "$out"
for machine in "${@:-two four memory-only}"; do
  for name in $machine; do
    "machine_${name//-/_}"
  done
done
