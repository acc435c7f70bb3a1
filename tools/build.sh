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

# build PRESET CONFIGURE_ARGUMENT... -- TARGET...: configures where that was not done with these arguments, builds.
build() {
  local preset=$1 arguments=() dir=build/$1
  shift
  while [ "$1" != -- ]; do
    arguments+=("$1")
    shift
  done
  shift
  mkdir -p "$dir"
  if command -v ccache > /dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
  fi
  if [ ! -f "$dir/build.ninja" ] || [ "$(cat "$dir/configured" 2> /dev/null)" != "${arguments[*]}" ]; then
    quietly "$dir/configure.log" "configure ($preset)" cmake --preset "$preset" "${arguments[@]}"
    printf '%s\n' "${arguments[*]}" > "$dir/configured"
  fi
  if [ -t 1 ]; then
    cmake --build "$dir" --target "$@"   # ninja's own progress line
  else
    quietly "$dir/build.log" "build ($preset)" cmake --build "$dir" --target "$@"
  fi
}
