#!/usr/bin/env bash
# test.sh <preset> [option of ctest]...: builds everything and runs the tests. Then prints what was skipped and why, what took longest, and the
# cost. A missing library without which suites are left out is an error here, unless HINDCAST_WITHOUT names it: some of clang, emulator, nvrtc,
# with commas between them (cmake/RequiredParts.cmake).

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=$1
shift
HINDCAST_REQUIRE_PARTS=1 scripts/build.sh "$preset"

count_cpu
cpu_before=$cpu_seconds started=$SECONDS status=0
ctest --preset "$preset" -j "$(nproc)" "$@" || status=$?
seconds=$((SECONDS - started))
count_cpu
python3 scripts/test_summary.py "build/$preset" "$seconds" $((cpu_seconds - cpu_before))
exit $status
