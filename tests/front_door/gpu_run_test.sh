#!/usr/bin/env bash
# The test `gpu_run`: what the run.sh of a bundle for machines with cards does there. Programs, Python and NVIDIA's tools are stand-ins,
# which write down what they were asked.
#
# gpu_run_test.sh <source folder> <work folder>

set -uo pipefail
source_folder=$1
work=$2
rm -rf "$work"
mkdir -p "$work/bundle/bin" "$work/bundle/lib" "$work/bundle/python" "$work/bin" "$work/site/torch/lib" "$work/site/nvidia/cu13/lib"
cp "$source_folder/scripts/gpu_run.sh" "$work/bundle/run.sh"
cp "$source_folder"/bench/gpu/*.py "$work/bundle/python"
: >"$work/bundle/ops.table"
failures=0

stand_in() {  # stand_in PATH BODY: a program there, which first notes how it was called
  printf '#!/bin/bash\necho "%s $*" >>"%s/calls"\n%s\n' "$(basename "$1")" "$work" "$2" >"$work/$1"
  chmod +x "$work/$1"
}

output=
run() {  # run [VARIABLE=VALUE]...
  : >"$work/calls"
  rm -rf "$work/results"
  output=$(env PATH="$work/bin:/usr/bin:/bin" "$@" "$work/bundle/run.sh" "$work/results" 2>&1)
  code=$?
}

expect() {  # expect WHAT COMMAND...: the command succeeds
  local what=$1
  shift
  "$@" && return
  echo "FAILED $what: exit $code; calls: $(cat "$work/calls"); output: $output"
  failures=$((failures + 1))
}
called() { grep -qE -- "$1" "$work/calls"; }
not_called() { ! called "$1"; }
says() { [[ $output == *"$1"* ]]; }
statuses_are() {
  [ "$(/usr/bin/env python3 -c 'import json, sys; print(*(f"{p[0]}={p[1]}" for p in ((p["part"], p["status"]) for p in json.load(open(sys.argv[1]))["parts"])))' "$work/results/summary.json")" = "$1" ]
}

# The table is made by the Python that there is.
stand_in bin/the_python '
case "$*" in
*find_spec*) echo '"$work"'/site/torch ;;
*torch_compile.py*)
  echo "${LD_LIBRARY_PATH-none}" >'"$work"'/path_of_python
  for word; do [[ $word == --out=* ]] && out=${word#--out=}; done
  echo "{\"benchmarks\": [{\"name\": \"whole/seed/a/float16\", \"run_type\": \"iteration\", \"eager_us\": 8, \"compile_us\": 4}]}" >"$out"
  ;;
*) exec python3 "$@" ;;
esac'
stand_in bin/nvidia-smi 'exit 9'
stand_in bundle/bin/test_a 'echo "failing words"; exit 3'
stand_in bundle/bin/test_b 'echo "$LD_LIBRARY_PATH" >"$(dirname "$0")/../../path"; echo "$HINDCAST_OPS_TABLE" >"$(dirname "$0")/../../ops"
mkdir -p "$HINDCAST_CACHE_DIR"; ls "$HINDCAST_CACHE_DIR" >"$(dirname "$0")/../../found"; : >"$HINDCAST_CACHE_DIR/kernel"
echo "[  PASSED  ] 5 tests."'
stand_in bundle/bin/hindcast_bench_gpu '
for word; do [[ $word == --benchmark_out=* ]] && out=${word#--benchmark_out=}; done
echo "{\"benchmarks\": [{\"name\": \"whole/seed/a/float16/iterations:1/manual_time\", \"stock_us\": 9, \"hindcast_us\": 3}," >"$out"
echo "a row"'

run PYTHON=the_python LD_LIBRARY_PATH=
expect 'a failure is the exit status' [ $code = 1 ]
expect 'a failure stops no other part' called '^hindcast_bench_gpu .*--benchmark_out=.*/results/hindcast_bench_gpu\..*\.json'
expect 'a failure shows its words' says 'failing words'
expect 'results of tests are JSON' called '^test_b --gtest_output=json:.*/results/test_b.json'
expect 'random programs are a part of their own' called '^test_b .*test_b.fuzz.json --gtest_filter=GpuFuzz\*'
expect 'so is the table of operators' called '^test_b .*test_b.ops.json --gtest_filter=GpuOps\*'
expect 'the table of operators is the bundle'"'"'s' grep -qx "$work/bundle/ops.table" "$work/ops"
expect 'no card is said' says 'there is no GPU here'
without_card='rows_4294967295.1'
expect 'the summary has all parts' statuses_are "facts=0 test_a=3 test_b=0 test_a.fuzz=3 test_b.fuzz=0 test_a.ops=3 test_b.ops=0 \
hindcast_bench_gpu.$without_card=0 torch_compile.$without_card=0 table=0"
expect 'what a part wrote is kept' grep -q 'a row' "$work/results/hindcast_bench_gpu.$without_card.txt"
for folder in "$work/bundle/lib" "$work/site/torch/lib" "$work/site/torch/../nvidia/cu13/lib"; do
  expect "libraries are looked for in $folder" grep -qF "$folder" "$work/path"
done
expect 'torch.compile has the libraries of the machine' grep -qx '' "$work/path_of_python"
# A program that a time limit stopped has written rows without an end.
expect 'the table has both programs in one row' says 'whole/seed/a/float16       9.0          3.0'
expect 'and the means' says 'float16            3.00           2.00'

stand_in bin/nvidia-smi 'echo "GPU 0: a card"'
stand_in bin/compute-sanitizer 'exit 0'
stand_in bundle/bin/test_a 'exit 0'
run PYTHON=the_python
expect 'a later command has the kernels of the one before' grep -qx kernel "$work/found"
expect 'all is well' [ $code = 0 ]
for tool in memcheck racecheck synccheck initcheck; do
  expect "$tool runs" called "^compute-sanitizer --tool $tool --error-exitcode 99 .*test_b .*--gtest_filter=-\*Errors\*"
done
expect 'graphs run under memcheck' called '^compute-sanitizer --tool memcheck .*test_b .*--gtest_filter=\*Recordings\*'
expect 'the benchmarks take turns' [ "$(grep -cE '^hindcast_bench_gpu|torch_compile.py' "$work/calls")" = 24 ]
expect 'over the same rows' called '^the_python .*torch_compile.py --rounds=5 --rows=\^steps/ --out=.*/torch_compile.steps.3.json'
stand_in bin/compute-sanitizer 'exit 99'
run PYTHON=the_python
expect 'what a sanitizer finds is a failure' [ $code = 1 ]
run PYTHON=the_python HINDCAST_PARTS=initcheck
expect 'one tool alone' statuses_are 'test_a.initcheck=99 test_b.initcheck=99'
run PYTHON=the_python HINDCAST_PARTS=benchmarks HINDCAST_ROWS=softmax HINDCAST_TURNS=1
expect 'one part alone' not_called '^test_'
expect 'and some rows' called '^hindcast_bench_gpu .*--benchmark_filter=softmax'

run PYTHON=no_such_python
expect 'without a torch it ends' [ $code = 2 ]
expect 'and says so' says 'no_such_python has no torch'
[ $failures = 0 ]
