#!/usr/bin/env bash
# build.sh <preset> [target]...: configures build/<preset> and builds the targets, all without any.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=$1
shift
grep -q "\"name\": \"$preset\"" CMakePresets.json ||
  fail "no preset '$preset'; expected one of release, debug, asan, tsan." "For example: make test PRESET=debug"

log=build/$preset/configure.log
mkdir -p "build/$preset"
# Both are always given, so that what a run named is forgotten by the next run that does not.
if ! cmake --preset "$preset" -DTorch_DIR="${Torch_DIR:-}" -DLIBTORCH="${LIBTORCH:-}" >"$log" 2>&1; then
  cat "$log" >&2
  fail "cmake could not configure build/$preset (its own words are above)."
fi
grep -E '^-- LibTorch ' "$log" | sed 's/^-- /hindcast: /'

started=$SECONDS
targets=()
[ $# -eq 0 ] || targets=(--target "$@")
cmake --build --preset "$preset" -j "${JOBS:-$(scripts/jobs.sh)}" ${targets[@]+"${targets[@]}"}
count_cpu
echo "$((SECONDS - started)) $cpu_seconds" >"build/$preset/build.cost"  # for scripts/test_summary.py: seconds by the clock, and of CPU
