# SPDX-License-Identifier: Apache-2.0
# Virtual machines under software emulation, with Debian's own kernel; sourced behind lib.sh by the
# checks that boot them. Nothing is changed on this machine.

guest_packages=(qemu-system-x86 cpio binutils)
kernel=build/guest/vmlinuz
# Of the kernel's modules, in an order in which each finds those it needs.
kernel_modules=(
  virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk loop
  crc32c_generic libcrc32c crc16 mbcache jbd2 ext4 xfs
)

# Debian's kernel and those modules, unpacked into build/guest and not installed.
fetch_kernel() {
  local to=build/guest package name patterns=('./boot/vmlinuz-*')
  [[ ! -e $kernel || ! -e $to/modules ]] || return 0
  is_debian || die "no kernel to boot: this takes Debian's, through apt-get"
  package=$(apt-cache depends linux-image-amd64 | sed -n 's/ *Depends: //p' | head -n 1)
  if [[ -z $package ]]; then
    as_root apt-get update -q >&2
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/ *Depends: //p' | head -n 1)
  fi
  rm -rf "$to" && mkdir -p "$to/unpacked"
  (cd "$to/unpacked" && apt-get download -q -o APT::Sandbox::User="$(id -un)" "$package" >&2)
  for name in "${kernel_modules[@]}"; do patterns+=("./lib/modules/*/$name.ko"); done
  dpkg-deb --fsys-tarfile "$to"/unpacked/*.deb | tar -x -C "$to/unpacked" --wildcards "${patterns[@]}"
  mkdir "$to/modules.new"
  find "$to/unpacked/lib" -name '*.ko' -exec mv -t "$to/modules.new" {} +
  mv "$to"/unpacked/boot/vmlinuz-* "$kernel"
  mv "$to/modules.new" "$to/modules"
  rm -rf "$to/unpacked"
}

# make_initramfs <program> <folder>: a root file system in memory, <folder>/initramfs: the program as
# /init, and the shared libraries that it loads. <folder>/tree is packed as well.
make_initramfs() {
  local program=$1 tree=$2/tree library
  mkdir -p "$tree"/{proc,sys,dev,tmp}
  cp "$program" "$tree/init"
  strip "$tree/init"
  for library in $(ldd "$program" | grep -o '/[^ ]*'); do
    mkdir -p "$tree$(dirname "$library")"
    cp -L "$library" "$tree$library"
  done
  (cd "$tree" && find . | cpio --quiet -o -H newc) >"$2/initramfs"
}

# boot_guest <folder> <log> <seconds> <rest of the kernel's command line> <qemu's own...>. Status 124: not
# ended.
# On a busy machine the emulated timer is too late for the kernel's check of it.
boot_guest() {
  local folder=$1 log=$2 seconds=$3 rest=$4
  shift 4
  timeout --foreground "$seconds" qemu-system-x86_64 -accel tcg,thread=multi -cpu max \
    -kernel "$kernel" -initrd "$folder/initramfs" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check $rest" \
    -nographic -no-reboot "$@" </dev/null >"$log" 2>&1
}
