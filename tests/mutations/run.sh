#!/usr/bin/env bash
# Shows that the tests would notice: makes one mistake after the other in a copy of the sources, builds the tests that
# should see it, and expects one of them to fail. The mistakes are in mutations.sh. The tree itself is never touched.
# usage: tests/mutations/run.sh WORK [NAME…]
#   WORK   a directory for the copy and its builds, kept for the next time; NAME: only these mutations
# Ends with a table of mutation, what saw it, and seconds; fails when one was not seen or no longer applies.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
mkdir -p "$1"
work=$(cd "$1" && pwd)
shift
only=" $* "
limit_s=300  # of one test program: a hang is noticed, too
results=$work/table.txt
missed=0
readonly root work only limit_s results  # mutations.sh, which is read into this shell, has variables of its own

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Files that are equal keep their times, so that little is built again.
copy_tree() {
  local file
  mkdir -p "$work/tree"
  (cd "$work/tree" && find . -type f) | while read -r file; do
    [ -f "$root/$file" ] || rm -f "$work/tree/$file"
  done
  (cd "$root" && git ls-files --cached --others --exclude-standard) | while read -r file; do
    [ -f "$root/$file" ] || continue
    cmp -s "$root/$file" "$work/tree/$file" && continue
    mkdir -p "$work/tree/$(dirname "$file")"
    cp -p "$root/$file" "$work/tree/$file"
  done
}

# configure KIND
configure() {
  local flags=(-DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG")  # builds faster than -O3
  if [ "$1" = tsan ]; then
    flags=(-DCMAKE_BUILD_TYPE=RelWithDebInfo '-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1 -fno-omit-frame-pointer'
      -DCMAKE_CXX_FLAGS=-fsanitize=thread -DCMAKE_C_FLAGS=-fsanitize=thread)
  fi
  if command -v ccache > /dev/null; then
    flags+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
  fi
  [ -f "$work/$1/build.ninja" ] || cmake -G Ninja -S "$work/tree" -B "$work/$1" -DSHARDCOMM_BUILD_BENCH=OFF \
    -DCMAKE_LINK_DEPENDS_NO_SHARED=ON "${flags[@]}" > "$work/$1.configure.log" 2>&1 || die "see $work/$1.configure.log"
}

# check KIND CHECK: builds a test program and runs it. CHECK is "program" or "program:filter".
# 0: it passed. 1: it failed. 2: it ran too long. 3: it does not build.
check() {
  local kind=$1 program=${2%%:*} filter='*'
  [[ $2 == *:* ]] && filter=${2#*:}
  ninja -C "$work/$kind" "$program" > "$work/build.log" 2>&1 || return 3
  local status=0
  TSAN_OPTIONS="halt_on_error=1 report_signal_unsafe=0" timeout -k 5 "$limit_s" \
    "$work/$kind/tests/$program" --gtest_filter="$filter" --gtest_brief=1 > "$work/run.log" 2>&1 < /dev/null || status=$?
  [ "$status" = 124 ] || [ "$status" = 137 ] && return 2
  [ "$status" = 0 ] || return 1
}

# The tests must pass before a mistake is made, or their failing says nothing.
checked=" "
require_sound() {
  local status=0
  [[ $checked == *" $1/$2 "* ]] && return
  check "$1" "$2" || status=$?
  [ "$status" = 0 ] || die "$1 $2 does not pass unchanged (see $work/build.log, $work/run.log)"
  checked+="$1/$2 "
}

# mutation NAME KIND FILE OLD NEW CHECK…: every OLD in FILE becomes NEW; KIND is release or tsan. The first CHECK that
# passes without and fails with it has seen it.
mutation() {
  local name=$1 kind=$2 file=$3 old=$4 new=$5 start=$SECONDS seen="" status test content
  shift 5
  [ "$only" = "  " ] || [[ $only == *" $name "* ]] || return 0
  configure "$kind"
  content=$(< "$work/tree/$file")
  [[ $content == *"$old"* ]] || die "mutation $name does not apply: $file has no '$old'"
  for test in "$@"; do
    require_sound "$kind" "$test"
    cp -p "$work/tree/$file" "$work/original"
    printf '%s\n' "${content//"$old"/"$new"}" > "$work/tree/$file"
    status=0
    check "$kind" "$test" || status=$?
    cp "$work/original" "$work/tree/$file"  # with a new time, so that it is built again
    cp "$work/run.log" "$work/$name.log"
    case $status in
      1) seen="$test" ;;
      2) seen="$test (hangs)" ;;
      3) die "mutation $name does not compile: see $work/build.log" ;;
    esac
    [ -z "$seen" ] || break
  done
  [ -n "$seen" ] || { seen="NOT SEEN"; missed=$((missed + 1)); }
  printf '%-34s %-8s %-60s %4d s\n' "$name" "$kind" "$seen" $((SECONDS - start)) | tee -a "$results"
}

copy_tree
printf '%-34s %-8s %-60s %s\n' mutation build "seen by" time | tee "$results"
. "$root/tests/mutations/mutations.sh"
[ "$missed" = 0 ] || die "$missed not seen"
