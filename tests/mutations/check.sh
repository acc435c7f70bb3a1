#!/usr/bin/env bash
# Whether every mistake of mutations.sh still has its place in the sources. Builds nothing, so that the list does not
# fall behind between two runs of run.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
count=0 missing=0

mutation() {
  local name=$1 file=$3 old=$4 content
  count=$((count + 1))
  content=$(< "$file")
  [[ $content == *"$old"* ]] && return
  printf "mutation %s does not apply: %s has no '%s'\n" "$name" "$file" "$old"
  missing=$((missing + 1))
}

# shellcheck source=mutations.sh
. tests/mutations/mutations.sh
printf '%d mutations, %d of which do not apply\n' "$count" "$missing"
[ "$count" -gt 0 ] && [ "$missing" = 0 ]
