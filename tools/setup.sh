#!/usr/bin/env bash
# Installs what a build needs and this machine lacks; says nothing when nothing is missing.
# usage: tools/setup.sh build | test | clang | aarch64     (test includes build, clang and aarch64 include test)
# As root or with sudo that asks for no password it runs apt-get; otherwise it prints the one command needed and exits 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

libraries=(libcli11-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libhwloc-dev libxxhash-dev libdnnl-dev libssl-dev
  ocl-icd-opencl-dev)   # which libdnnl-dev only recommends, but its CMake package insists on
programs=(g++:g++ cmake:cmake ninja:ninja-build pkg-config:pkg-config)   # command:package
least_cmake=3.25

case "${1:-}" in
  build) ;;
  test | clang | aarch64)
    libraries+=(libgtest-dev libbenchmark-dev)
    programs+=(clang-format:clang-format)
    [ "$1" != clang ] || programs+=(clang++:clang)
    [ "$1" != aarch64 ] || programs+=(aarch64-linux-gnu-g++-12:g++-12-aarch64-linux-gnu qemu-aarch64:qemu-user)
    ;;
  *)
    echo "tools/setup.sh: unknown argument '${1:-}'; it takes one of: build test clang aarch64" >&2
    exit 2
    ;;
esac

# Elsewhere than on Debian and its kin CMake names what is missing.
if ! command -v dpkg-query > /dev/null; then
  echo "tools/setup.sh: no dpkg here; the build needs what Debian calls: ${libraries[*]} ${programs[*]##*:}" >&2
  if [ "$1" = aarch64 ]; then exit 1; fi  # its sysroot is made of Debian's packages
  exit 0
fi

missing=()
for program in "${programs[@]}"; do
  command -v "${program%%:*}" > /dev/null || missing+=("${program##*:}")
done
installed=" $(dpkg-query -W -f '${db:Status-Status}=${Package} ' "${libraries[@]}" 2> /dev/null || true)"
for library in "${libraries[@]}"; do
  [[ $installed == *" installed=$library "* ]] || missing+=("$library")
done

if [ ${#missing[@]} -gt 0 ]; then
  install="apt-get install -y --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" = 0 ]; then
    as_root=()
  elif command -v sudo > /dev/null && sudo -n true 2> /dev/null; then
    as_root=(sudo -n)
  else
    echo "tools/setup.sh: missing packages, and no right to install them. As root, run:" >&2
    echo "  apt-get update && $install" >&2
    exit 1
  fi
  echo "installing ${missing[*]}"
  mkdir -p build
  apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" >> build/setup.log 2>&1 < /dev/null; }
  : > build/setup.log
  apt update || true   # without network what is known already may do
  if ! apt install -y --no-install-recommends "${missing[@]}"; then
    tail -n 30 build/setup.log >&2
    echo "tools/setup.sh: '$install' failed; the whole log is build/setup.log" >&2
    exit 1
  fi
fi

have=$(cmake --version | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
if [ "$(printf '%s\n' "$least_cmake" "$have" | sort -V | head -n 1)" != "$least_cmake" ]; then
  echo "tools/setup.sh: cmake $least_cmake or newer is needed, this is $have" >&2
  exit 1
fi
[ "$1" != aarch64 ] || bash tools/sysroot.sh "${libraries[@]}"
