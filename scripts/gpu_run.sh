#!/usr/bin/env bash
# run.sh [folder for results]: all that is to be known of hindcast on this machine's card, in one go: facts of the device, tests, the tests
# under compute-sanitizer, benchmarks. What one part meets stops no other; the exit status says whether any failed. Without a card
# the tests skip and say why, and nothing is measured.
#
# Results: facts.txt, <part>.txt with what a part wrote, <program>.json of GoogleTest and of Google Benchmark, summary.json.
#
# PYTHON       the Python whose torch is used (python3)
# HINDCAST_PARTS   "facts tests sanitizer benchmarks", or some of them

set -uo pipefail
bundle=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=${1:-$bundle/results}
mkdir -p "$results"
results=$(cd "$results" && pwd)
parts=${HINDCAST_PARTS:-facts tests sanitizer benchmarks}

# Seconds that a part's command may take: together less than the ten minutes that a command has on a lent machine.
test_limit=300 sanitizer_limit=60 benchmark_limit=180

torch=$("${PYTHON:-python3}" -c 'import importlib.util as util; print(list(util.find_spec("torch").submodule_search_locations)[0])' 2>/dev/null)
if [ -z "$torch" ]; then
  echo "run.sh: error: ${PYTHON:-python3} has no torch; PYTHON names another Python" >&2
  exit 2
fi
export LD_LIBRARY_PATH="$bundle/lib:$torch/lib"
for folder in "$torch"/../nvidia/*/lib; do [ -d "$folder" ] && LD_LIBRARY_PATH+=":$folder"; done
HINDCAST_CACHE_DIR=$(mktemp -d)
export HINDCAST_CACHE_DIR
trap 'rm -rf "$HINDCAST_CACHE_DIR"' EXIT
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

if [[ $parts == *facts* ]]; then
  export -f facts
  export torch
  part facts 30 bash -c facts
fi

if [[ $parts == *tests* ]]; then
  for program in "$bundle"/bin/test_*; do
    name=$(basename "$program")
    part "$name" $test_limit "$program" --gtest_output="json:$results/$name.json"
    grep -hE '^\[  (PASSED|SKIPPED) \] [0-9]+ tests' "$results/$name.txt"
    grep -hm 1 '^no CUDA device' "$results/$name.txt"
  done
fi

# Without LibTorch's allocator in between, so that each tensor has bounds. Tests of what the driver refuses are left out, and those that are
# large or look at the clock.
if [[ $parts == *sanitizer* && $has_card = yes ]]; then
  if ! command -v compute-sanitizer >/dev/null; then
    echo "compute-sanitizer was not found: nothing ran under it"
  else
    for program in "$bundle"/bin/test_*; do
      for tool in memcheck racecheck synccheck; do
        PYTORCH_NO_CUDA_MEMORY_CACHING=1 part "$(basename "$program").$tool" $sanitizer_limit compute-sanitizer --tool $tool --error-exitcode 99 \
          --print-limit 20 "$program" --gtest_brief=1 --gtest_filter='-*Errors*:*Large*:*HostTime*:*Recordings*'
      done
      # Graphs are captured with LibTorch's allocator alone.
      part "$(basename "$program").graphs" $sanitizer_limit compute-sanitizer --tool memcheck --error-exitcode 99 --print-limit 20 \
        "$program" --gtest_brief=1 --gtest_filter='*Recordings*'
    done
  fi
fi

if [[ $parts == *benchmarks* ]]; then
  for program in "$bundle"/bin/hindcast_bench*; do
    name=$(basename "$program")
    part "$name" $benchmark_limit "$program" --benchmark_out="$results/$name.json" --benchmark_out_format=json --benchmark_counters_tabular=true
    grep -vE '^(Run on|CPU Caches|  L[123]|Load Average|\*\*\*)' "$results/$name.txt"
  done
fi

(
  IFS=,
  printf '{"card": "%s", "failures": %d, "parts": [%s]}\n' "$(nvidia-smi -L 2>/dev/null | head -n 1)" $failures "${summary[*]}"
) >"$results/summary.json"
echo "results: $results"
[ $failures = 0 ]
