#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cuts the power of disks while checkpoints are saved to them, and looks at what each disk has then.
# A virtual machine trains and saves on ext4 and on xfs, on disks whose write cache forgets what was
# not flushed; all their writes are logged. For each of many moments of the log a disk is made up that
# holds what was flushed, and of the rest a random part; a second machine mounts them all, and must
# find a whole checkpoint: the last that save() returned for, or the one after. Without the syncs of
# files, or of folders, it must find losses. Nothing is changed on this machine.
#   tools/power_check.sh             with seed 1
#   tools/power_check.sh SEED
#   tools/power_check.sh SEED again  other moments of the log that the last run left, or the same
# Installs or fetches what it needs, Debian packages only, into build/power and build/guest.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/guest.sh"
cd "$root"
PATH=$PATH:/usr/sbin:/sbin # mkfs

out=build/power
seed=${1:-1}
saves=20
boot_seconds=600
# disk:type:what is synced:cuts
disks=(vda:ext4:all:60 vdb:xfs:all:30 vdc:ext4:not_of_files:12 vdd:ext4:not_of_folders:12)

make_disk() {
  case $2 in
    ext4)
      truncate -s 48M "$1"
      mkfs.ext4 -q -F -J size=4 -E lazy_itable_init=0,lazy_journal_init=0 "$1"
      ;;
    xfs)
      truncate -s 304M "$1"
      mkfs.xfs -q -f "$1"
      ;;
  esac
}

# Trains and saves in a machine; every write goes to $out/writes.log.
record() {
  local disk name type syncs cuts arguments="record $saves" images=() drives=() socket
  socket=$(mktemp -d)/disks
  for disk in "${disks[@]}" vde; do
    IFS=: read -r name type syncs cuts <<<"$disk"
    drives+=(-drive "file=nbd:unix:$socket:exportname=$name,format=raw,if=virtio")
    [[ -n $type ]] || continue
    make_disk "$out/$name.base" "$type"
    cp --sparse=always "$out/$name.base" "$out/$name.img"
    images+=("$name=$out/$name.img")
    arguments+=" $name=$type=$syncs"
  done
  python3 tests/power/serve_disks.py "$socket" "$out/writes.log" "${images[@]}" vde &
  server=$!
  trap 'kill "$server"' EXIT
  while [[ ! -e $socket ]]; do sleep 0.1; done
  boot record "$arguments vde" "${drives[@]}"
  tr -d '\r' <"$out/record.log" | grep '^full disk:'
  trap - EXIT
  kill "$server"
  wait "$server" || true
}

# boot <name> <arguments> <drives...>
boot() {
  local log=$out/$1.log status=0
  boot_guest "$out" "$log" "$boot_seconds" "-- $2" -smp 2 -m 640 "${@:3}" || status=$?
  ((status != 124)) || die "$1: no end after $boot_seconds s; see $log"
  grep -q '^GUEST DONE' "$log" || die "$1 failed; see $log"
}

cut_power() {
  local disk arguments=()
  for disk in "${disks[@]}"; do arguments+=("$disk:$out/${disk%%:*}.base"); done
  python3 tests/power/cut_power.py cut "$out/writes.log" "$out" "$seed" "${arguments[@]}"
}

[[ $(uname -m) == x86_64 ]] || die "power loss is checked on x86-64 machines only"
ensure_packages "${build_packages[@]}" "${guest_packages[@]}" e2fsprogs xfsprogs
fetch_kernel
build_preset release --target power_guest
if [[ ${2:-} != again ]]; then
  rm -rf "$out" && mkdir -p "$out/tree/modules"
  for i in "${!kernel_modules[@]}"; do
    cp "build/guest/modules/${kernel_modules[i]}.ko" "$(printf '%s/tree/modules/%02d.ko' "$out" "$i")"
  done
  make_initramfs build/release/bin/power_guest "$out"
  record
fi
cut_power
boot check "check vda vdb" -drive "file=$out/disks.img,format=raw,if=virtio,cache=unsafe" \
  -drive "file=$out/table.img,format=raw,if=virtio"
python3 tests/power/cut_power.py judge "$out" "$out/check.log"
rm "$out"/*.img
