#!/usr/bin/env bash
# Runs a command in whose processes programs for aarch64 can be started like any other: by qemu, which the kernel is told
# about in a namespace that ends with the command.
# usage: tools/emulated.sh COMMAND ARGUMENT...
set -euo pipefail
self=$(realpath "${BASH_SOURCE[0]}")
[ $# -ge 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$self"; exit 2; }
qemu=$(command -v qemu-aarch64) || { echo "tools/emulated.sh: no qemu-aarch64 here (Debian: qemu-user)" >&2; exit 1; }
export QEMU_LD_PREFIX=${QEMU_LD_PREFIX:-$(dirname "$self")/../build/aarch64-sysroot}

if [ "$1" != --inside ]; then
  if ! unshare --user --map-root-user --mount "$self" --inside true 2> /dev/null; then
    echo "tools/emulated.sh: this kernel lets no namespace tell it who runs programs for aarch64 (binfmt_misc in a user" >&2
    echo "namespace: Linux 6.7, where users may have namespaces)" >&2
    exit 1
  fi
  exec unshare --user --map-root-user --mount "$self" --inside "$@"
fi
shift
# name, by magic number, offset, the head of an ELF file for aarch64, the bits of it that count, who runs it, flags
head='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf '%s' ":aarch64:M::$head:$mask:$qemu:FP" > /proc/sys/fs/binfmt_misc/register
exec "$@"
