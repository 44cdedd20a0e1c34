#!/usr/bin/env bash
# The test `gpu_run`: the run.sh of a bundle for machines with cards. Programs, Python and NVIDIA's tools are stand-ins that record their
# calls.
#
# gpu_run_test.sh <source folder> <work folder>

set -uo pipefail
source_folder=$1
work=$2
rm -rf "$work"
mkdir -p "$work/bundle/bin" "$work/bundle/lib" "$work/bundle/python" "$work/bin" "$work/site/torch/lib" \
  "$work/site/nvidia/cu13/lib"
cp "$source_folder/scripts/gpu_run.sh" "$work/bundle/run.sh"
cp "$source_folder"/bench/gpu/*.py "$work/bundle/python"
: >"$work/bundle/python/nccl_reducer.py"
: >"$work/bundle/ops.table"
tar -C "$work/bundle/bin" -czf "$work/bundle/texts.tar.gz" .
failures=0

stand_in() {  # stand_in PATH BODY: creates a program that first records its call
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
# of_parts KEY: part=value of each part of the one summary that there is, in order.
of_parts() {
  python3 -c 'import json, sys; print(*(p["part"] + "=" + str(p.get(sys.argv[1])) for p in json.load(open(sys.argv[2]))["parts"]))' \
    "$1" "$work"/results/summary.*.json
}
statuses_are() { [ "$(of_parts status)" = "$1" ]; }

# The table is written by the Python that is installed.
stand_in bin/the_python '
case "$*" in
*find_spec*) echo '"$work"'/site/torch ;;
*torch_compile.py*)
  echo "${LD_LIBRARY_PATH-none}" >'"$work"'/path_of_python
  for word; do [[ $word == --out=* ]] && out=${word#--out=}; done
  echo "{\"benchmarks\": [{\"name\": \"whole/seed/a/float16\", \"run_type\": \"iteration\", \"eager_us\": 8, \"compile_us\": 4}]}" >"$out"
  ;;
*nccl_reducer.py*)
  echo "${LD_LIBRARY_PATH-none} $PYTHONPATH" >'"$work"'/paths_of_nccl
  echo "${NCCL_SAYS-fused: parameters within 0}"
  ;;
*) exec python3 "$@" ;;
esac'
stand_in bin/nvidia-smi 'exit 9'
stand_in bundle/bin/test_a 'echo "failing words"; exit 3'
stand_in bundle/bin/test_b 'echo "$LD_LIBRARY_PATH" >"$(dirname "$0")/../../path"; echo "$HINDCAST_OPS_TABLE" >"$(dirname "$0")/../../ops"
mkdir -p "$HINDCAST_CACHE_DIR"; ls "$HINDCAST_CACHE_DIR" >"$(dirname "$0")/../../found"; : >"$HINDCAST_CACHE_DIR/kernel"
echo "[  PASSED  ] 5 tests."'
bench='
for word; do [[ $word == --benchmark_out=* ]] && out=${word#--benchmark_out=}; done
echo "{\"benchmarks\": [{\"name\": \"whole/seed/a/float16/iterations:1/manual_time\", \"stock_us\": 9, \"hindcast_us\": 3}," >"$out"
echo "a row"'
stand_in bundle/bin/hindcast_bench_gpu "$bench"
stand_in bundle/bin/compile_texts 'ls -d "$1" "$HINDCAST_CACHE_DIR"; echo "7 texts: 7 compiled"'

run PYTHON=the_python LD_LIBRARY_PATH=
expect 'a failure is the exit status' [ $code = 1 ]
expect 'a failure stops no other part' called '^hindcast_bench_gpu .*--benchmark_out=.*/results/hindcast_bench_gpu\..*\.json'
expect 'a failure shows its words' says 'failing words'
expect 'results of tests are JSON' called '^test_b --gtest_output=json:.*/results/test_b.backward.json --gtest_filter=\*GpuBackward\*'
expect 'a test that was cut off is named' not_called '^test_b .*--gtest_brief'
expect 'what no other part has is in one' called \
  '^test_b .*test_b.others.json --gtest_filter=-GpuCard\*:\*GpuBackward\*:\*Recordings\*:GpuFuzz\*:GpuOps\*$'
expect 'random programs are a part of their own' called '^test_b .*test_b.fuzz.json --gtest_filter=GpuFuzz\*'
expect 'so is the table of operators' called '^test_b .*test_b.ops.json --gtest_filter=GpuOps\*'
expect 'the table of operators is the bundle'"'"'s' grep -qx "$work/bundle/ops.table" "$work/ops"
expect 'no card is said' says 'there is no GPU here'
without_card='deciding.1'
expect 'the summary has all parts' statuses_are "facts=0 test_a.card=3 test_b.card=0 test_a.backward=3 test_b.backward=0 \
test_a.recordings=3 test_b.recordings=0 test_a.others=3 test_b.others=0 nccl=0 test_a.fuzz=3 test_b.fuzz=0 test_a.ops=3 test_b.ops=0 test_a.ops_kernels=3 test_b.ops_kernels=0 \
hindcast_bench_gpu.$without_card=0 torch_compile.$without_card=0 table=0"
expect 'without a card no text is compiled' not_called '^compile_texts'
expect 'what a part wrote is kept' grep -q 'a row' "$work/results/hindcast_bench_gpu.$without_card.txt"
for folder in "$work/bundle/lib" "$work/site/torch/lib" "$work/site/torch/../nvidia/cu13/lib"; do
  expect "libraries are looked for in $folder" grep -qF "$folder" "$work/path"
done
expect 'torch.compile has the libraries of the machine' grep -qx '' "$work/path_of_python"
# A program stopped by a time limit leaves an unfinished row.
expect 'the table has both programs in one row' says 'whole/seed/a/float16       9.0          3.0'
expect 'and the means' says 'float16            3.00           2.00'

passes='echo "[  PASSED  ] 5 tests."'
stand_in bin/nvidia-smi 'echo "GPU 0: a card"'
stand_in bin/compute-sanitizer "$passes"
stand_in bundle/bin/test_a "$passes"
run PYTHON=the_python LD_LIBRARY_PATH=/machines
expect 'a later command has the kernels of the one before' grep -qx kernel "$work/found"
expect 'all is well' [ $code = 0 ]
expect 'its name has the parts' [ -f "$work/results/summary.facts-kernels-tests-python-nccl-fuzz-ops-sanitizer-benchmarks.deciding.json" ]
expect 'texts are compiled into the store' grep -qx "$work/bundle/caches/hindcast" "$work/results/kernels.txt"
expect 'from the archive of the bundle' called "^compile_texts $work/bundle/caches/texts\$"
expect 'and their count is shown' says '7 texts'
expect 'before the tests' [ "$(grep -m 1 -E '^(compile_texts|test_)' "$work/calls" | cut -d ' ' -f 1)" = compile_texts ]
expect 'NCCL has the package of the bundle, the libraries of the machine' grep -qx "/machines $work/bundle/python" "$work/paths_of_nccl"
expect 'what NCCL showed is shown' says 'fused: parameters within 0'
for tool in memcheck racecheck synccheck; do
  expect "$tool looks at hindcast's kernels" called "^compute-sanitizer --tool $tool .*--kernel-name-exclude regex=.* --error-exitcode 99 \
.*test_b --gtest_filter=GpuCard\.\*:Quick/\*-.*ALaunchReturnsBeforeItsKernelHasRun:\*LoadingDisturbsNoCapture\*"
done
expect 'graphs run under memcheck' called '^compute-sanitizer --tool memcheck .*test_b --gtest_filter=\*Recordings\*'
expect 'initcheck runs where it is named' not_called '^compute-sanitizer --tool initcheck'
expect 'the benchmarks run once, behind a run that compiles what they need' \
  [ "$(grep -E '^hindcast_bench_gpu|torch_compile.py' "$work/calls" | grep -oE -- '--rounds=[0-9]' | paste -sd ' ')" = '--rounds=1 --rounds=1 --rounds=5 --rounds=5' ]
pattern=$(sed -n 's/.*--kernel-name-exclude regex=\([^ ]*\) .*/\1/p' "$work/calls" | head -n 1)
names=$(sed -n '/kNames = {/,/};/p' "$source_folder/codegen/cuda/entry.cpp" | grep -o '"[a-z_]*"' | tr -d '"')
expect 'all entry points are looked at' [ "$(grep -c . <<<"$names")" -gt 20 ]
expect 'none of them is left out' [ -z "$(grep -E "$pattern" <<<"$names")" ]
for name in _ZN2at6native29vectorized_elementwise_kernel at::native::vectorized sm80_xmma_gemm_f32f32 ampere_sgemm_32x32_nn cublasLt_splitKreduce_kernel; do
  expect "$name is left out" grep -qE "$pattern" <<<"$name"
done

run PYTHON=the_python HINDCAST_PARTS=benchmarks HINDCAST_TURNS=3
expect 'the benchmarks take turns' [ "$(grep -cE '^hindcast_bench_gpu|torch_compile.py' "$work/calls")" = 8 ]
expect 'over the same rows' called '^the_python .*torch_compile.py --rounds=5 --rows=\^\(cosines.* --out=.*/torch_compile.deciding.3.json'
stand_in bin/compute-sanitizer 'exit 99'
run PYTHON=the_python
expect 'what a sanitizer finds is a failure' [ $code = 1 ]
run PYTHON=the_python HINDCAST_PARTS=initcheck
expect 'one tool alone' statuses_are 'test_a.initcheck=99 test_b.initcheck=99'
expect 'which sees what all kernels write' not_called 'kernel-name'
stand_in bin/compute-sanitizer 'echo "[  PASSED  ] 0 tests."'
run PYTHON=the_python HINDCAST_PARTS=memcheck
expect 'a sanitizer under which no test ran is a failure' statuses_are 'test_a.memcheck=98 test_b.memcheck=98'
run PYTHON=the_python HINDCAST_PARTS=benchmarks HINDCAST_ROWS=softmax
expect 'one part alone' not_called '^test_'
expect 'and some rows' called '^hindcast_bench_gpu .*--benchmark_filter=softmax'
expect 'whose summary has a name of its own' [ -f "$work/results/summary.benchmarks.rows_$(printf softmax | cksum | cut -d ' ' -f 1).json" ]
run PYTHON=the_python HINDCAST_PARTS=benchmarks HINDCAST_ROWS=chosen
expect 'rows may have a name' called '^hindcast_bench_gpu .*--benchmark_filter=\^\(\[a-z_\]\+/8192x4096/float32'
expect 'and so has their summary' [ -f "$work/results/summary.benchmarks.chosen.json" ]

# The kernels of the bundle are in the store before anything requests them.
mkdir -p "$work/packed"
: >"$work/packed/a_kernel"
tar -C "$work/packed" -czf "$work/bundle/kernels.tar.gz" .
run PYTHON=the_python HINDCAST_CACHES="$work/unpacked" HINDCAST_PARTS='kernels tests'
expect 'kernels of the bundle are unpacked' [ -f "$work/unpacked/hindcast/a_kernel" ]
expect 'where only the user may write' [ "$(stat -c %a "$work/unpacked/hindcast")" = 700 ]
rm "$work/bundle/kernels.tar.gz"

# Tests run in parallel; the benchmarks have the card for themselves.
stand_in bundle/bin/test_a 'mkdir "$(dirname "$0")/../../meeting.$PPID.$$"; sleep 1'"
$passes"
stand_in bundle/bin/test_b 'for i in $(seq 50); do ls -d "$(dirname "$0")"/../../meeting.* >/dev/null 2>&1 && break; sleep 0.1; done
ls -d "$(dirname "$0")"/../../meeting.* || exit 7'"
$passes"
run PYTHON=the_python HINDCAST_PARTS='tests'
expect 'programs run side by side' [ $code = 0 ]
stand_in bundle/bin/test_b "$passes"
stand_in bundle/bin/test_a "$passes"
run PYTHON=the_python HINDCAST_PARTS=ops HINDCAST_SECONDS=3300
expect 'with more seconds a part may take more' [ "$(of_parts limit)" = 'test_a.ops=1400 test_b.ops=1400 test_a.ops_kernels=1400 test_b.ops_kernels=1400' ]

# What hangs is killed, and what has no time left is left out; the table is still written. The clock only advances for programs that hang,
# which use up their limit at once: so these runs end the same way on a busy machine as on an idle one.
echo 1000 >"$work/clock"
hangs=': >'"$work"'/hangs.$$; exec sleep 600'
printf '#!/bin/bash\ncat "%s/clock"\n' "$work" >"$work/bin/date"
cat >"$work/bin/timeout" <<END
#!/bin/bash
[[ \$1 != --* ]] || shift
limit=\$1
shift
"\$@" &
program=\$!
until [ -e "$work/hangs.\$program" ]; do
  kill -0 \$program 2>/dev/null || { wait \$program; exit; }
  sleep 0.01
done
rm "$work/hangs.\$program"
kill \$program
echo \$((\$(cat "$work/clock") + limit)) >"$work/clock"
exit 124
END
chmod +x "$work/bin/date" "$work/bin/timeout"
stand_in bundle/bin/compile_texts 'echo "the one that hangs"; '"$hangs"
run PYTHON=the_python HINDCAST_PARTS='kernels ops' HINDCAST_SECONDS=10
expect 'what was cut off failed' [ $code = 1 ]
expect 'and the rest was left out' statuses_are 'kernels=124 test_a.ops=None test_b.ops=None test_a.ops_kernels=None test_b.ops_kernels=None'
expect 'which is said' says 'left out: no time was left of HINDCAST_SECONDS=10'
expect 'so is the cut' says 'FAILED: cut off after 5 s'
expect 'with what it said' says 'the one that hangs'
expect 'the summary has it too' [ "$(of_parts skipped)" = 'kernels=None test_a.ops=no time was left test_b.ops=no time was left test_a.ops_kernels=no time was left test_b.ops_kernels=no time was left' ]
stand_in bundle/bin/compile_texts 'echo "7 texts: 7 compiled"'
for seconds in 0 20; do
  run PYTHON=the_python HINDCAST_PARTS=benchmarks HINDCAST_ROWS=chosen HINDCAST_SECONDS=$seconds
  expect "the table is made in $seconds s" statuses_are 'warm.hindcast=None warm.torch_compile=None hindcast_bench_gpu.chosen.1=None '\
'torch_compile.chosen.1=None table=0'
done
expect 'that nothing failed, but not all was seen, is an exit status of its own' [ $code = 3 ]
stand_in bundle/bin/hindcast_bench_gpu "$bench
[[ \" \$* \" == *' --rounds=1 '* ]] || { $hangs; }"
run PYTHON=the_python HINDCAST_PARTS=benchmarks HINDCAST_ROWS=chosen HINDCAST_SECONDS=31
expect 'a turn that hangs is ended in time for the table' statuses_are 'warm.hindcast=0 warm.torch_compile=0 hindcast_bench_gpu.chosen.1=124 '\
'torch_compile.chosen.1=None table=0'
expect 'which has the rows that were done' says 'whole/seed/a/float16       9.0          3.0'
rm "$work/bin/date" "$work/bin/timeout"
stand_in bundle/bin/test_a 'echo "[  PASSED  ] 0 tests."; echo "[  SKIPPED ] 13 tests, listed below:"'
run PYTHON=the_python HINDCAST_PARTS=ops
expect 'on a card, tests that all skipped have failed' statuses_are 'test_a.ops=98 test_b.ops=0 test_a.ops_kernels=98 test_b.ops_kernels=0'

run PYTHON=the_python HINDCAST_PARTS=nccl NCCL_SAYS='nothing is tested: torch finds no CUDA device'
expect 'so has a Python that does not find it' statuses_are 'nccl=98'
run PYTHON=the_python HINDCAST_PARTS=nccl NCCL_SAYS='nothing is tested: this torch has no NCCL'
expect 'a torch without NCCL is no failure' statuses_are 'nccl=0'

stand_in bundle/bin/test_b 'mkdir -p "$HINDCAST_CACHE_DIR"; : >"$HINDCAST_CACHE_DIR/kernel"'"
$passes"
run PYTHON=the_python HINDCAST_PARTS=fuzz HINDCAST_CACHES="$work/elsewhere"
expect 'the caches may be elsewhere' [ -f "$work/elsewhere/hindcast/kernel" ]
: >"$work/a_file"
run PYTHON=the_python HINDCAST_PARTS=fuzz HINDCAST_CACHES="$work/a_file"
expect 'caches that cannot be written are said' says "compiled kernels are not kept: $work/a_file cannot be written to"
run PYTHON=the_python HINDCAST_PARTS='test fuzz'
expect 'a part that is none is an error' [ $code = 2 ]
expect 'and is named' says 'there is no part test;'
run PYTHON=the_python HINDCAST_SECONDS=10m
expect 'so are seconds that are no number' says 'HINDCAST_SECONDS=10m is not a number of seconds'

run PYTHON=no_such_python
expect 'without a torch it ends' [ $code = 2 ]
expect 'and says so' says 'no_such_python has no torch'
[ $failures = 0 ]
