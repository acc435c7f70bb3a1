#!/usr/bin/env bash
# Sets up, builds the command, and shows the main job: four ranks train a byte-level GPT on this project's own sources,
# parameters, gradients and Adam state sharded (stage 3); then the trained model writes a few lines.
# Results are in build/demo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/build.sh
if [ $# -gt 0 ]; then
  say "tools/demo.sh takes no arguments; shardcomm train --help tells what can be changed" >&2
  exit 2
fi

bash tools/setup.sh build
is_configured release || configure release -DSHARDCOMM_BUILD_TESTS=OFF -DSHARDCOMM_BUILD_BENCH=OFF
compile release shardcomm_command

shardcomm=build/release/tools/shardcomm
out=build/demo
rm -rf "$out"
mkdir -p "$out"

"$shardcomm" train --ranks 4 --stage 3 --steps 300 --batch 4 --seq 64 \
  --save "$out/checkpoints" --log "$out/log.jsonl" --timeline "$out/timeline.svg" --trace "$out/trace.json"
"$shardcomm" ckpt verify "$out/checkpoints"
"$shardcomm" generate --checkpoint "$out/checkpoints" --prompt "// The " --tokens 300 --temperature 0.8 --seed 1 > "$out/sample.txt"

say ""
say "A sample of what it writes:"
cat "$out/sample.txt"
say ""
say "checkpoint  $(ls -d "$out"/checkpoints/step-* | tail -n 1)"
say "sample      $out/sample.txt"
say "picture     $out/timeline.svg   (gather, compute, reduce and free of one step, rank by rank)"
say "trace       $out/trace.json   (for Perfetto or chrome://tracing)"
say "log         $out/log.jsonl"
