#!/usr/bin/env bash
# Unpacks packages for arm64, and all that they need, into build/aarch64-sysroot, where the cross compiler and qemu find
# them. The packages of this machine stay as they are, and it takes no right to install any.
# usage: tools/sysroot.sh PACKAGE...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
sysroot=$PWD/build/aarch64-sysroot
if [ "$(cat "$sysroot/packages" 2> /dev/null || true)" = "$*" ]; then exit 0; fi

if ! command -v apt-get > /dev/null; then
  echo "tools/sysroot.sh: no apt-get here; for aarch64, unpack what Debian calls $* and what that needs into $sysroot" >&2
  exit 1
fi
# An apt beside the machine's own: the same sources and keys, another architecture, nothing installed yet.
apt_dir=$PWD/build/aarch64-apt
log=$apt_dir/log
mkdir -p "$apt_dir/lists/partial" "$apt_dir/archives/partial"
: > "$apt_dir/status"
: > "$log"
apt() {
  apt-get -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root -o Debug::NoLocking=1 \
    -o Dir::State::lists="$apt_dir/lists" -o Dir::State::status="$apt_dir/status" -o Dir::Cache="$apt_dir" \
    "$@" >> "$log" 2>&1 < /dev/null
}
rm -f "$apt_dir"/archives/*.deb  # of another time, or list
echo "unpacking packages for arm64: $*"
apt update || true   # sources that do not know arm64 do not matter, and without network what is known already may do
if ! apt install -y --no-install-recommends --download-only libc6-dev libstdc++6 "$@"; then
  tail -n 30 "$log" >&2
  echo "tools/sysroot.sh: the packages for arm64 are not to be had; the whole log is $log" >&2
  exit 1
fi
rm -rf "$sysroot"
mkdir -p "$sysroot"
for package in "$apt_dir"/archives/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
printf '%s\n' "$*" > "$sysroot/packages"
