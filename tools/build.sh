# Sourced by demo.sh and test.sh: configuring and building quietly. The current directory is the repository's root.

# say TEXT: one plain line.
say() { printf '%s\n' "$*"; }

# quietly LOG WHAT COMMAND...: runs the command with its output in LOG, which is shown where it failed.
quietly() {
  local log=$1 what=$2 begin=$SECONDS
  shift 2
  if ! "$@" > "$log" 2>&1 < /dev/null; then
    grep -nE 'error|FAILED|CMake Error' "$log" | head -n 40 >&2 || true
    tail -n 40 "$log" >&2
    say "$what failed; the whole log is $log" >&2
    return 1
  fi
  [ $((SECONDS - begin)) -lt 2 ] || say "$what: $((SECONDS - begin)) s"
}

is_configured() { [ -f "build/$1/build.ninja" ] && [ -f "build/$1/configured" ]; }

# configure PRESET ARGUMENT...: unless it was done with these arguments.
configure() {
  local preset=$1 dir=build/$1
  shift
  if is_configured "$preset" && [ "$(cat "$dir/configured")" = "$*" ]; then return; fi
  mkdir -p "$dir"
  if command -v ccache > /dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
  fi
  quietly "$dir/configure.log" "configuring ($preset)" cmake --preset "$preset" "$@"
  printf '%s\n' "$*" > "$dir/configured"
}

# compile PRESET TARGET...: with ninja's own progress line where somebody watches.
compile() {
  local dir=build/$1 what="building ($1)"
  shift
  if [ -t 1 ]; then
    cmake --build "$dir" --target "$@"
  else
    quietly "$dir/build.log" "$what" cmake --build "$dir" --target "$@"
  fi
}
