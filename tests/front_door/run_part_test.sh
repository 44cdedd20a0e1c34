#!/usr/bin/env bash
# The tests `run_part`: which part of a suite tests/run_part.sh runs, and what scripts/test_summary.py prints about a run.
#
# run_part_test.sh <source folder> <work folder>

set -uo pipefail
source_folder=$1 work=$2
rm -rf "$work"
mkdir -p "$work/tests" "$work/build/Testing/Temporary"
cp "$source_folder/tests/run_part.sh" "$work/tests"
cd "$work" || exit 1
failures=0
unset HINDCAST_ALL_TESTS HINDCAST_TEST_PART GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX

expect() {  # expect WHAT SEEN WANTED
  [[ $2 == *"$3"* ]] && return
  echo "FAILED $1: wanted '$3' in: $2"
  failures=$((failures + 1))
}
show='echo "shard ${GTEST_SHARD_INDEX-} of ${GTEST_TOTAL_SHARDS-}, part ${HINDCAST_TEST_PART-}"'
run() { tests/run_part.sh "$1" "$2" bash -c "$show"; }

git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one
index=$((16#$(git rev-parse --short=7 HEAD) % 5))
expect 'a shard is of the commit' "$(run shard 5)" "shard $index of 5, part "
expect 'so is a part' "$(run part 5)" "shard  of , part $index:5"
expect 'all of a suite' "$(HINDCAST_ALL_TESTS=1 run shard 5)" 'shard 0 of 1, part '
expect 'all of a sweep' "$(HINDCAST_ALL_TESTS=1 run part 5)" 'part 0:1'
tests/run_part.sh part 2 false >/dev/null && expect 'the exit status is the program'"'"'s' 0 1
tests/run_part.sh half 2 true >/dev/null 2>&1 && expect 'another kind is an error' 0 1

cat >build/Testing/Temporary/LastTest.log <<'EOT'
1/2 Testing: quick
/a/test.cpp:3: Skipped
no card
/a/test.cpp:9: Skipped
no card
skipped: no such system
Test time =   0.50 sec
2/2 Testing: slow
90 texts of kernels: 70 known, 20 left out: make kernel-table
SKIPPED [4] tests/test_page.py:12: no browser
Test time =  12.00 sec
EOT
echo '70 130' >build/build.cost
summary=$(python3 "$source_folder/scripts/test_summary.py" build 20 30)
expect 'skips are counted' "$summary" 'skipped: 7'
expect 'by reason' "$summary" '   2 no card'
expect 'of pytest too' "$summary" '   4 pytest: no browser'
expect 'of a script too' "$summary" '   1 no such system'
expect 'of kernels, how many were left out' "$summary" $'\n90 texts of kernels: 70 known, 20 left out: make kernel-table\n'
expect 'the longest comes first' "$summary" $'longest, in seconds:\n     12.0 slow\n      0.5 quick'
expect 'with the cost' "$summary" 'cost: build 70 s, 130 s of CPU; tests 20 s, 30 s of CPU'
[ $failures = 0 ]
