#!/usr/bin/env bash
# run.sh [folder for results]: all that is to be known of hindcast on this machine's card, in one go: facts of the device, tests, the tests
# under compute-sanitizer, benchmarks. What one part meets stops no other; the exit status says whether any failed. Without a card
# the tests skip and say why, and nothing is measured.
#
# Results: facts.txt, <part>.txt with what a part wrote, <program>.json of GoogleTest and of Google Benchmark, table.txt, summary.json.
#
# PYTHON           the Python whose torch is used (python3)
# HINDCAST_PARTS   some of: facts tests fuzz ops sanitizer benchmarks; in the place of sanitizer some of its tools: memcheck racecheck
#                  synccheck initcheck graphs
# HINDCAST_ROWS    a regular expression: the rows that are measured; without `$`, since Google Benchmark's names go on
# HINDCAST_TURNS   how often the two benchmarks take turns (3), and HINDCAST_ROUNDS, of a turn (5)
# HINDCAST_FUZZ_SEEDS   first:count
#
# All of it takes longer than a command may on a lent machine. There, with one folder for all, one command each:
#
#   HINDCAST_PARTS="facts tests"   HINDCAST_PARTS=fuzz   HINDCAST_PARTS=ops
#   HINDCAST_PARTS=memcheck   HINDCAST_PARTS="racecheck synccheck"   HINDCAST_PARTS="initcheck graphs"
#   HINDCAST_PARTS=benchmarks HINDCAST_ROWS='^([a-z_]+/[0-9]|steps/)'
#   HINDCAST_PARTS=benchmarks HINDCAST_ROWS='seed/.*float16', and the same with float32
#
# The table has the rows of all JSON files in the folder. Kernels that one command compiled are there for the next, as long as the bundle's
# folder stays where it is, and can be written to.

set -uo pipefail
bundle=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=${1:-$bundle/results}
mkdir -p "$results"
results=$(cd "$results" && pwd)
parts=${HINDCAST_PARTS:-facts tests fuzz ops sanitizer benchmarks}
python=${PYTHON:-python3}

# Seconds that a part's command may take. torch.compile's first turn has all the compiling in it.
test_limit=300 sanitizer_limit=250 benchmark_limit=180 compile_limit=400

torch=$("$python" -c 'import importlib.util as util; print(list(util.find_spec("torch").submodule_search_locations)[0])' 2>/dev/null)
if [ -z "$torch" ]; then
  echo "run.sh: error: $python has no torch; PYTHON names another Python" >&2
  exit 2
fi
machines_libraries=${LD_LIBRARY_PATH:-}
export LD_LIBRARY_PATH="$bundle/lib:$torch/lib"
for folder in "$torch"/../nvidia/*/lib; do [ -d "$folder" ] && LD_LIBRARY_PATH+=":$folder"; done
caches=$bundle/caches
if ! mkdir -p "$caches" 2>/dev/null || [ ! -w "$caches" ]; then
  caches=$(mktemp -d)
  trap 'rm -rf "$caches"' EXIT
fi
export HINDCAST_CACHE_DIR=$caches/hindcast TORCHINDUCTOR_CACHE_DIR=$caches/inductor
[ -f "$bundle/ops.table" ] && export HINDCAST_OPS_TABLE=$bundle/ops.table
PATH+=:/usr/local/cuda/bin

has_card=no
nvidia-smi -L >/dev/null 2>&1 && has_card=yes
[ $has_card = yes ] || echo "there is no GPU here: nvidia-smi was not found, or finds none"

summary=()
failures=0
# part NAME SECONDS COMMAND...: runs the command, keeps what it writes in NAME.txt, and notes how it ended.
part() {
  local name=$1 limit=$2 start status
  shift 2
  start=$SECONDS
  timeout --kill-after=10 "$limit" "$@" >"$results/$name.txt" 2>&1
  status=$?
  [ $status = 0 ] || failures=$((failures + 1))
  summary+=("$(printf '{"part": "%s", "status": %d, "seconds": %d}' "$name" $status $((SECONDS - start)))")
  printf '%-40s %s\n' "$name" "$([ $status = 0 ] && echo "ok, $((SECONDS - start)) s" || echo "FAILED with $status; the end of $name.txt:")"
  [ $status = 0 ] || tail -n 25 "$results/$name.txt"
}

wanted() { [[ " $parts " == *" $1 "* ]]; }

facts() {
  uname -srm
  nproc
  ldd --version | head -n 1
  echo "torch: $torch"
  nvidia-smi -L
  nvidia-smi -q -d MEMORY,CLOCK,PERFORMANCE,POWER,TEMPERATURE,ECC
  nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,clocks.max.sm,clocks.max.mem,persistence_mode,mig.mode.current --format=csv
  nvcc --version | tail -n 2
  return 0  # what a machine does not tell is missing, and no failure
}

if wanted facts; then
  export -f facts
  export torch
  part facts 30 bash -c facts
fi

# tests SUFFIX FILTER: the programs' tests that the filter finds.
tests() {
  local program name
  for program in "$bundle"/bin/test_*; do
    name=$(basename "$program")$1
    part "$name" $test_limit "$program" --gtest_output="json:$results/$name.json" --gtest_filter="$2"
    grep -hE '^\[  (PASSED|SKIPPED) \] [0-9]+ tests|^(fuzz|op table): ' "$results/$name.txt"
    grep -hm 1 '^no CUDA device' "$results/$name.txt"
  done
}
if wanted tests; then tests "" '-GpuFuzz*:GpuOps*'; fi
if wanted fuzz; then tests .fuzz 'GpuFuzz*'; fi
if wanted ops; then tests .ops 'GpuOps*'; fi

# Without LibTorch's allocator in between, so that each tensor has bounds, and starts without values. Tests of what the driver refuses are
# left out, and those that are large, look at the clock, or are about streams and copies by ATen.
under_sanitizer() {  # under_sanitizer NAME TOOL FILTER
  local program
  for program in "$bundle"/bin/test_*; do
    part "$(basename "$program").$1" $sanitizer_limit compute-sanitizer --tool "$2" --error-exitcode 99 --print-limit 20 \
      "$program" --gtest_brief=1 --gtest_filter="$3"
  done
}
small='-*Errors*:*Large*:*HostTime*:*Recordings*:GpuFuzz*:GpuOps*:*GpuDemo*:Takeover*:GpuSavedTensors*'
for tool in memcheck racecheck synccheck initcheck graphs; do
  wanted sanitizer || wanted $tool || continue
  [ $has_card = yes ] || break
  if ! command -v compute-sanitizer >/dev/null; then
    echo "compute-sanitizer was not found: nothing ran under it"
    break
  fi
  if [ $tool = graphs ]; then  # captured with LibTorch's allocator alone
    under_sanitizer graphs memcheck '*Recordings*'
  else
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 under_sanitizer $tool $tool "$small"
  fi
done

# A turn: stock and hindcast in one process, then eager and torch.compile in another, over the same rows. Within each process the two take
# turns as well.
turn() {  # turn NAME ROWS
  local name=$1 rows=$2 rounds=${HINDCAST_ROUNDS:-5}
  part "hindcast_bench_gpu.$name" $benchmark_limit "$bundle/bin/hindcast_bench_gpu" --rounds="$rounds" --benchmark_filter="$rows" \
    --benchmark_out="$results/hindcast_bench_gpu.$name.json" --benchmark_out_format=json --benchmark_counters_tabular=true
  part "torch_compile.$name" $compile_limit env LD_LIBRARY_PATH="$machines_libraries" "$python" "$bundle/python/torch_compile.py" \
    --rounds="$rounds" --rows="$rows" --out="$results/torch_compile.$name.json"
  grep -hm 1 '^nothing is measured' "$results/hindcast_bench_gpu.$name.txt"
}
if wanted benchmarks; then
  declare -A groups=([single]='^[a-z_]+/[0-9]' [steps]='^steps/' [float16]='seed/.*/float16' [float32]='seed/.*/float32')
  names=(single steps float16 float32)
  turns=${HINDCAST_TURNS:-3}
  if [ -n "${HINDCAST_ROWS:-}" ] || [ $has_card = no ]; then
    names=("rows_$(printf %s "${HINDCAST_ROWS:-}" | cksum | cut -d ' ' -f 1)")
    groups[${names[0]}]=${HINDCAST_ROWS:-.}
  fi
  [ $has_card = yes ] || turns=1
  for group in "${names[@]}"; do
    for ((number = 1; number <= turns; ++number)); do turn "$group.$number" "${groups[$group]}"; done
  done
  shopt -s nullglob
  part table 60 "$python" "$bundle/python/table.py" --json="$results/table.json" \
    "$results"/hindcast_bench_gpu.*.json "$results"/torch_compile.*.json
  shopt -u nullglob
  cat "$results/table.txt"
fi

(
  IFS=,
  printf '{"card": "%s", "failures": %d, "parts": [%s]}\n' "$(nvidia-smi -L 2>/dev/null | head -n 1)" $failures "${summary[*]}"
) >"$results/summary.json"
echo "results: $results"
[ $failures = 0 ]
