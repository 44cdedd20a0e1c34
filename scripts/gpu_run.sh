#!/usr/bin/env bash
# run.sh [folder for results]: what is to be known of hindcast on this machine's card: facts of the device, tests, the tests under
# compute-sanitizer, benchmarks. What one part meets stops no other. The exit status is 1 if a part failed, else 3 if one was left out for
# want of time. Without a card the tests skip and say why, and nothing is measured.
#
# Results: facts.txt, <part>.txt with what a part wrote, <program>.json of GoogleTest and of Google Benchmark, table.txt, and
# summary.<parts>.json. The tables have the rows of all JSON files in the folder. GoogleTest writes its JSON as a program ends: of one that
# a limit cut off there is only the .txt, whose last `[ RUN      ]` names the test that ran then.
#
# PYTHON             the Python whose torch is used (python3)
# HINDCAST_PARTS     some of: facts kernels tests python nccl fuzz ops sanitizer benchmarks (all); in the place of sanitizer some of its tools:
#                    memcheck racecheck synccheck graphs; and initcheck
# HINDCAST_SECONDS   that the command may take as a whole (330). A part gets its own limit or what is left, and is left out if that is
#                    next to nothing. The table is always made. With more seconds than 330 the parts' own limits grow in proportion: with
#                    a card of your own, HINDCAST_SECONDS=7200
# HINDCAST_CACHES    the folder of compiled kernels (caches, beside run.sh)
# HINDCAST_ROWS      the rows that are measured: deciding (the default), chosen, single, steps, float16, float32; or a regular expression,
#                    without `$`, since Google Benchmark's names go on
# HINDCAST_TURNS     how often the two benchmarks take turns (1), and HINDCAST_ROUNDS, of a turn (5)
# HINDCAST_FUZZ_SEEDS   first:count
#
# The correctness parts run concurrently and share the card, while two more processes compile what the benchmarks need. Then the benchmarks have
# the card for themselves. On a card with little memory, run one part per command.
#
# Two commands of 330 s fit a machine that is lent for 15 minutes in all: the first finds the faults, the second shows the fixes. Where few files come back, the folder for results is another, and is packed at the end:
# run.sh /tmp/results; tar czf "$OUT/results.tar.gz" -C /tmp results
#
# With more time, most valuable first: HINDCAST_PARTS=benchmarks with HINDCAST_ROWS=float16, single, steps, float32; all of them with
# HINDCAST_TURNS=3; HINDCAST_PARTS=initcheck; HINDCAST_FUZZ_SEEDS=1001:1000 HINDCAST_PARTS=fuzz.

set -uo pipefail
bundle=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=${1:-$bundle/results}
mkdir -p "$results"
results=$(cd "$results" && pwd)
python=${PYTHON:-python3}

all_parts="facts kernels tests python nccl fuzz ops sanitizer benchmarks"
read -ra parts <<<"${HINDCAST_PARTS:-$all_parts}"
wanted() { [[ " ${parts[*]} " == *" $1 "* ]]; }
for name in "${parts[@]}"; do
  [[ " $all_parts memcheck racecheck synccheck initcheck graphs " == *" $name "* ]] && continue
  echo "run.sh: error: there is no part $name; HINDCAST_PARTS has some of: $all_parts" >&2
  exit 2
done

budget=${HINDCAST_SECONDS:-330}
if ! [[ $budget =~ ^[0-9]+$ ]]; then
  echo "run.sh: error: HINDCAST_SECONDS=$budget is not a number of seconds" >&2
  exit 2
fi
planned_for=330  # seconds that the limits below are made for
grace=5          # of what does not end when it is told to
began=$(date +%s)
elapsed() { echo $(($(date +%s) - began)); }
reserve=0        # seconds that no part may take, since the table needs them
table_limit=15
if wanted benchmarks; then reserve=$((table_limit + grace)); fi

torch=$("$python" -c 'import importlib.util as util; print(list(util.find_spec("torch").submodule_search_locations)[0])' 2>/dev/null)
if [ -z "$torch" ]; then
  echo "run.sh: error: $python has no torch; PYTHON names another Python" >&2
  exit 2
fi
machines_libraries=${LD_LIBRARY_PATH:-}
export LD_LIBRARY_PATH="$bundle/lib:$torch/lib"
for folder in "$torch"/../nvidia/*/lib; do [ -d "$folder" ] && LD_LIBRARY_PATH+=":$folder"; done
caches=${HINDCAST_CACHES:-$bundle/caches}
if ! mkdir -p "$caches" 2>/dev/null || [ ! -w "$caches" ]; then
  echo "compiled kernels are not kept: $caches cannot be written to"
  caches=$(mktemp -d)
  trap 'rm -rf "$caches"' EXIT
fi
caches=$(cd "$caches" && pwd)
export HINDCAST_CACHE_DIR=$caches/hindcast TORCHINDUCTOR_CACHE_DIR=$caches/inductor
[ -f "$bundle/ops.table" ] && export HINDCAST_OPS_TABLE=$bundle/ops.table
PATH+=:/usr/local/cuda/bin

has_card=no
card=$(timeout 20 nvidia-smi -L 2>/dev/null) && has_card=yes
card=${card%%$'\n'*}
[ $has_card = yes ] || echo "there is no GPU here: nvidia-smi was not found, or finds none"

summary=()
failures=0
left_out=0
begun=()
# begin NAME SECONDS COMMAND...: starts the command, which writes to NAME.txt. With must_say it failed, too, if it wrote no such line. Returns
# 1 where the part was left out.
begin() {
  local name=$1 limit=$2 left
  shift 2
  [ "$budget" -le $planned_for ] || limit=$((limit * budget / planned_for))
  left=$((budget - $(elapsed) - reserve - grace))
  [ "$name" != table ] || left=$table_limit
  [ "$limit" -le $left ] || limit=$left
  if [ "$limit" -lt 5 ]; then
    left_out=$((left_out + 1))
    summary+=("$(printf '{"part": "%s", "status": null, "seconds": 0, "skipped": "no time was left"}' "$name")")
    printf '%-40s %s\n' "$name" "left out: no time was left of HINDCAST_SECONDS=$budget"
    return 1
  fi
  begun+=("$name $limit")
  (
    start=$(elapsed) status=0
    timeout --kill-after=$grace "$limit" "$@" >"$results/$name.txt" 2>&1 || status=$?
    if [ $status = 0 ] && [ -n "${must_say:-}" ] && ! grep -qE "$must_say" "$results/$name.txt"; then
      status=98
      echo "run.sh: there is no line as '$must_say'" >>"$results/$name.txt"
    fi
    echo "$status $(($(elapsed) - start))" >"$results/.$name"
  ) &
}

# Waits for all parts that were begun, and reports how they ended.
finish() {
  local part name limit status seconds how
  wait
  for part in ${begun[@]+"${begun[@]}"}; do
    read -r name limit <<<"$part"
    read -r status seconds <"$results/.$name"
    rm "$results/.$name"
    how="FAILED with $status"
    [[ $status != 124 && $status != 137 ]] || how="FAILED: cut off after $limit s"
    summary+=("$(printf '{"part": "%s", "status": %d, "seconds": %d, "limit": %d}' "$name" "$status" "$seconds" "$limit")")
    if [ "$status" = 0 ]; then
      printf '%-40s ok, %d s\n' "$name" "$seconds"
      grep -hE '^\[  (PASSED|SKIPPED) \] [0-9]+ tests|^(fuzz|op table|fused): |^[0-9]+ texts: |^nothing is (measured|tested)' "$results/$name.txt"
      grep -hm 1 '^no CUDA device' "$results/$name.txt"
    else
      failures=$((failures + 1))
      printf '%-40s %s; the end of %s.txt:\n' "$name" "$how" "$name"
      tail -n 25 "$results/$name.txt"
    fi
  done
  begun=()
}

facts() {
  uname -srm
  nproc
  ldd --version | head -n 1
  echo "torch: $torch"
  nvidia-smi -L
  nvidia-smi -q -d MEMORY,CLOCK,PERFORMANCE,POWER,TEMPERATURE,ECC
  nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,clocks.max.sm,clocks.max.mem,persistence_mode,mig.mode.current --format=csv
  nvcc --version | tail -n 2
  compute-sanitizer --version | tail -n 1
  return 0  # what a machine does not tell is missing, and no failure
}

# On a card, a program whose tests all skipped has tested nothing.
ran_tests='^\[  PASSED  \] [1-9]'
[ $has_card = yes ] || ran_tests=

# tests NAME SECONDS FILTER: the programs' tests that the filter finds, in processes of their own: an illegal access ends all that a process
# does on the card.
tests() {
  local program name
  for program in "$bundle"/bin/test_*; do
    name=$(basename "$program").$1
    must_say=$ran_tests begin "$name" "$2" "$program" --gtest_output="json:$results/$name.json" --gtest_filter="$3"
  done
}

# Stock and hindcast in one process; eager and torch.compile in another, over the same rows. Within each process the two take turns.
bench_hindcast() {  # bench_hindcast NAME ROWS SECONDS ROUNDS
  begin "$1" "$3" "$bundle/bin/hindcast_bench_gpu" --rounds="$4" --benchmark_filter="$2" \
    --benchmark_out="$results/$1.json" --benchmark_out_format=json --benchmark_counters_tabular=true
}
bench_torch_compile() {
  begin "$1" "$3" env LD_LIBRARY_PATH="$machines_libraries" "$python" "$bundle/python/torch_compile.py" \
    --rounds="$4" --rows="$2" --out="$results/$1.json"
}

if wanted facts; then
  export -f facts
  export torch
  begin facts 10 bash -c facts
  finish
fi

# The kernels come compiled for Hopper. Another card compiles their texts first, on all cores, so that no test waits for a kernel.
if [ -f "$bundle/kernels.tar.gz" ] && [ ! -d "$caches/hindcast" ]; then
  (umask 077 && mkdir -p "$caches/hindcast" && tar -C "$caches/hindcast" --no-same-owner -xzf "$bundle/kernels.tar.gz" && chmod 700 "$caches/hindcast")
fi
if wanted kernels && [ $has_card = yes ] && [ -x "$bundle/bin/compile_texts" ] && [ -f "$bundle/texts.tar.gz" ]; then
  mkdir -p "$caches/texts" && tar -C "$caches/texts" --no-same-owner -xzf "$bundle/texts.tar.gz"
  must_say='^[1-9][0-9]* texts: ' begin kernels 40 "$bundle/bin/compile_texts" "$caches/texts"
  finish
fi

if wanted tests; then
  tests card 60 'GpuCard*'
  tests backward 140 '*GpuBackward*'
  tests recordings 140 '*Recordings*'
  tests others 140 '-GpuCard*:*GpuBackward*:*Recordings*:GpuFuzz*:GpuOps*'
fi

# The tests in Python of what only a card has, and a part of those of second derivatives.
if wanted python && [ -d "$bundle/python/tests" ] && [ $has_card = yes ]; then
  if "$python" -c 'import pytest, expecttest' 2>/dev/null; then
    must_say='[1-9][0-9]* passed' begin python 140 env LD_LIBRARY_PATH="$machines_libraries" HINDCAST_TEST_DEVICE=cuda HINDCAST_TEST_PART=0:6 \
      PYTHONPATH="$bundle/python${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1 "$python" -m pytest -q --tb=short -p no:cacheprovider \
      "$bundle/python/tests/test_on_card.py" "$bundle/python/tests/test_second_order.py"
  else
    echo "the part python is left out: $python has no pytest, or no expecttest, which PyTorch's database of operators imports"
  fi
fi

if wanted nccl && [ -f "$bundle/python/nccl_reducer.py" ]; then
  must_say=${ran_tests:+'^fused: |^nothing is tested: this torch has no'} begin nccl 120 env LD_LIBRARY_PATH="$machines_libraries" PYTHONPATH="$bundle/python${PYTHONPATH:+:$PYTHONPATH}" "$python" \
    "$bundle/python/nccl_reducer.py"
fi

if wanted fuzz; then tests fuzz 140 'GpuFuzz*'; fi
# In two processes: one took longer than its limit on a slow host.
if wanted ops; then
  tests ops 140 'GpuOps*-*NoKernelIsRefused*'
  tests ops_kernels 140 'GpuOps*NoKernelIsRefused*'
fi

# Without LibTorch's allocator in between, so that each tensor has bounds, and starts without values. Tests of what the driver refuses are
# left out; so are those that are large, that look at the clock, that want a launch to return at once or a load to disturb nothing, since
# the tool may wait for launches and changes what is loaded, and those about streams and copies by ATen.
small='GpuCard.*:Quick/*-*HostTime*:*ALaunchReturnsBeforeItsKernelHasRun:*LoadingDisturbsNoCapture*'
# Kernels of ATen's and of its libraries, which would take most of the time, and whose reports would not be about hindcast. hindcast's names
# are as in C (codegen/cuda/entry.cpp). The pattern says what to leave out: a kernel whose name is not known is checked. With names to be
# checked, it would not be, and nothing would tell.
not_ours='^_Z.*|.*(gemm|gemv|cutlass|cublas|cudnn|xmma|at::|cub::|thrust::).*|^sm[0-9]+_.*|^(maxwell|volta|turing|ampere|hopper)_.*'

under_sanitizer() {  # under_sanitizer NAME SECONDS FILTER OPTION_OF_THE_TOOL...
  local name=$1 seconds=$2 filter=$3 program
  shift 3
  for program in "$bundle"/bin/test_*; do
    must_say=$ran_tests begin "$(basename "$program").$name" "$seconds" compute-sanitizer "$@" --error-exitcode 99 --print-limit 20 \
      "$program" --gtest_filter="$filter"
  done
}

# Errors that CUDA's functions return are not reported: LibTorch asks for what may not be there, and it and hindcast look at each result.
memcheck=(--tool memcheck --report-api-errors no --kernel-name-exclude "regex=$not_ours")
sanitizer() {
  export PYTORCH_NO_CUDA_MEMORY_CACHING=1
  case $1 in
    memcheck) under_sanitizer memcheck 140 "$small" "${memcheck[@]}" ;;
    racecheck) under_sanitizer racecheck 140 "$small" --tool racecheck --kernel-name-exclude "regex=$not_ours" ;;
    synccheck) under_sanitizer synccheck 140 "$small" --tool synccheck --kernel-name-exclude "regex=$not_ours" ;;
    # What a kernel writes that is left out counts as not written, so each of ATen's must be watched. That takes long, and reports of its
    # libraries are to be told from those of hindcast: initcheck is no part of `sanitizer`.
    initcheck) under_sanitizer initcheck 250 "$small" --tool initcheck ;;
    graphs)  # captured with LibTorch's allocator alone
      unset PYTORCH_NO_CUDA_MEMORY_CACHING
      under_sanitizer graphs 140 '*Recordings*' "${memcheck[@]}"
      ;;
  esac
  unset PYTORCH_NO_CUDA_MEMORY_CACHING
}
for tool in memcheck racecheck synccheck graphs initcheck; do
  wanted $tool || { wanted sanitizer && [ $tool != initcheck ]; } || continue
  [ $has_card = yes ] || break
  if ! command -v compute-sanitizer >/dev/null; then
    echo "compute-sanitizer was not found: nothing ran under it"
    break
  fi
  sanitizer $tool
done

rows_name= turns=1
if wanted benchmarks; then
  declare -A groups=([single]='^[a-z_]+/[0-9]' [steps]='^steps/' [float16]='seed/.*/float16' [float32]='seed/.*/float32')
  # Those with a target of their own, in little time.
  groups[deciding]='^(cosines/(8192x8192|1024x2048)/float32|(layer_norm|softmax)/8192x4096/float32|steps/|train/'
  groups[deciding]+='|whole/seed/[a-z_]+/(8x512x1024/float16|2x4096x4096/float32))'
  # Some of each kind, and those.
  groups[chosen]='^([a-z_]+/8192x4096/float32|cosines/(8192x8192|1024x2048)|steps/|train/'
  groups[chosen]+='|whole/seed/[a-z_]+/(8x512x1024|2x4096x4096)/)'
  turns=${HINDCAST_TURNS:-1}
  rows_name=${HINDCAST_ROWS:-deciding}
  if [ -z "${groups[$rows_name]:-}" ]; then
    rows_name=rows_$(printf %s "$HINDCAST_ROWS" | cksum | cut -d ' ' -f 1)
    groups[$rows_name]=$HINDCAST_ROWS
  fi
  # Compiles what the rows need, while the tests run.
  if [ $has_card = yes ]; then
    bench_hindcast warm.hindcast "${groups[$rows_name]}" 140 1
    bench_torch_compile warm.torch_compile "${groups[$rows_name]}" 140 1
  else
    turns=1
  fi
fi
finish

if wanted benchmarks; then
  for ((number = 1; number <= turns; ++number)); do
    bench_hindcast "hindcast_bench_gpu.$rows_name.$number" "${groups[$rows_name]}" 60 "${HINDCAST_ROUNDS:-5}"
    finish
    bench_torch_compile "torch_compile.$rows_name.$number" "${groups[$rows_name]}" 90 "${HINDCAST_ROUNDS:-5}"
    finish
  done
  if [ $has_card = yes ] && [ -d "$bundle/python/hindcast" ]; then
    begin second_order 60 env LD_LIBRARY_PATH="$machines_libraries" PYTHONPATH="$bundle/python${PYTHONPATH:+:$PYTHONPATH}" "$python" \
      "$bundle/python/second_order.py" --rounds="${HINDCAST_ROUNDS:-5}" --out="$results/second_order.json"
    finish
    [ ! -f "$results/second_order.txt" ] || cat "$results/second_order.txt"
  fi
  reserve=0
  shopt -s nullglob
  begin table $table_limit "$python" "$bundle/python/table.py" --json="$results/table.json" \
    "$results"/hindcast_bench_gpu.*.json "$results"/torch_compile.*.json
  shopt -u nullglob
  finish
  cat "$results/table.txt"
fi

# Commands with other parts, or other rows, may have the same folder.
(
  name=$(IFS=-; echo "${parts[*]}")${rows_name:+.$rows_name}
  IFS=,
  printf '{"card": "%s", "failures": %d, "left_out": %d, "seconds": %d, "parts": [%s]}\n' \
    "$card" $failures $left_out "$(elapsed)" "${summary[*]}" >"$results/summary.$name.json"
)
echo "results: $results"
[ $failures = 0 ] || exit 1
[ $left_out = 0 ] || exit 3
