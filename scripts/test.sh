#!/usr/bin/env bash
# test.sh <preset> [option of ctest]...: builds everything and runs the tests; then says what was skipped, what took longest, and what it cost.
# A library that is missing here takes tests away, which is an error, unless HINDCAST_WITHOUT has the part's name: some of clang, emulator,
# nvrtc, with commas between them.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=$1
shift
scripts/build.sh "$preset"

missing=build/$preset/tests/missing_parts.txt
while IFS='|' read -r part what; do
  [[ ,${HINDCAST_WITHOUT:-}, == *",$part,"* ]] ||
    fail "tests need $what, which was not found." "Install it, or leave its tests out: HINDCAST_WITHOUT=$part"
done <"$missing"

cpu_seconds >"build/$preset/test.cost"  # so far, of the build
before=$(cat "build/$preset/test.cost") started=$SECONDS status=0
ctest --preset "$preset" -j "$(nproc)" "$@" || status=$?
cpu_seconds >"build/$preset/test.cost"
python3 scripts/test_summary.py "build/$preset" "$((SECONDS - started))" "$(($(cat "build/$preset/test.cost") - before))" || true
exit $status
