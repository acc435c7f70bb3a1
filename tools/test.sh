#!/usr/bin/env bash
# Sets up, builds and tests. Without flags: what ranks that are threads rest on, under ThreadSanitizer; then everything,
# optimized.
# usage: tools/test.sh [--full] [--asan] [--tsan] [--clang] [--aarch64]
#   --asan, --tsan, --clang   instead: all tests in that build; several may be given
#   --aarch64                 instead: cross-compiled, the tests with the label emulated, under qemu; some minutes
#   --full                    the slow sweeps too, where the build runs all tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/build.sh

presets=()
without_slow=(-LE slow)
needs=(test)
for flag in "$@"; do
  case "$flag" in
    --asan | --tsan) presets+=("${flag#--}") ;;
    --clang | --aarch64) presets+=("${flag#--}") needs+=("${flag#--}") ;;
    --full) without_slow=() ;;
    -h | --help)
      sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      say "tools/test.sh: unknown flag '$flag'; the flags are --full --asan --tsan --clang --aarch64" >&2
      exit 2
      ;;
  esac
done
for need in "${needs[@]}"; do bash tools/setup.sh "$need"; done

# name_failed LOG: "failed: Limits.TinyDevShmDoesNotMatter", from what GoogleTest wrote into ctest's log.
name_failed() { sed -nE 's/^\[  FAILED  \] ([[:alnum:]_/]+\.[[:alnum:]_/]+).*/failed: \1/p' "$1" | sort -u; }

# test_preset PRESET CTEST_ARGUMENT...: ctest's output, which ends in its summary. ctest counts programs; where one fails,
# the names of the tests in it that failed follow.
test_preset() {
  local preset=$1 status=0
  shift
  local run=()
  [ "$preset" != aarch64 ] || run=(tools/emulated.sh)
  say "tests ($preset)"
  "${run[@]}" ctest --preset "$preset" --progress "$@" < /dev/null || status=$?
  [ "$status" = 0 ] || name_failed "build/$preset/Testing/Temporary/LastTest.log"
  return "$status"
}

if [ ${#presets[@]} -gt 0 ]; then
  for preset in "${presets[@]}"; do
    configure "$preset" -DSHARDCOMM_BUILD_TESTS=ON
    if [ "$preset" = aarch64 ]; then
      tools/emulated.sh true  # tells now what it would lack
      compile aarch64 shardcomm_tests_emulated shardcomm_command
      test_preset aarch64 -L '^emulated$'
    else
      compile "$preset" all
      test_preset "$preset" "${without_slow[@]}"
    fi
  done
  exit 0
fi

# The tests with the label tsan are a build target of that name, too.
configure tsan -DSHARDCOMM_BUILD_TESTS=ON
compile tsan shardcomm_tests_tsan
test_preset tsan -L '^tsan$' "${without_slow[@]}"
configure release -DSHARDCOMM_BUILD_TESTS=ON -DSHARDCOMM_BUILD_BENCH=ON
compile release all
test_preset release "${without_slow[@]}"
