#!/usr/bin/env bash
# bench.sh [options of hindcast_bench]...: runs the benchmarks, keeps the JSON in bench/results/, prints one table.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for argument in "$@"; do
  case $argument in
    --help | -h | --benchmark_list_tests*) exec build/release/bench/hindcast_bench "$@" ;;
  esac
done

mkdir -p bench/results
results=bench/results/$(date +%Y-%m-%d_%H-%M-%S).json
build/release/bench/hindcast_bench --benchmark_out="$results" --benchmark_out_format=json "$@"
python3 bench/table.py "$results"
python3 bench/chart.py "$results" "${results%.json}.svg"
say "results: $results, and as a picture ${results%.json}.svg"
