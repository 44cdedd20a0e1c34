#!/usr/bin/env bash
# check_torch_versions.sh [2.x]...: builds the library, a small suite of tests (tests/torch_versions.cmake) and the Python package
# against each of these releases of torch, runs that suite and a selection of tests/python, and prints one table. Without any:
# all that are known, but 2.11, which `make test` uses.
#
# Each takes 2 GB of disk, in .deps/torch-<2.x> and build/torch-<2.x>. Compiled without optimisation, which takes half the time:
# the question is what compiles and whether it is right. Exit status 1 if a release that exists fails.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ $# = 0 ]; then
  read -r -a known < <(sed -n 's/^set(LibTorch_KNOWN_VERSIONS 2.11 \(.*\))$/\1/p' cmake/FindLibTorch.cmake)
  set -- "${known[@]}"
fi

# What touches the inside of torch: its engine's method, hooks, nodes in Python, modes, processes, Dynamo, optimizers.
python_tests=()
for name in calls hooks functions saved_tensors guards threads function_modes refusals processes process_guard aot optim second_order \
  torch_compile train_step; do
  python_tests+=("tests/python/test_$name.py")
done

format='%-9s %-7s %-7s %-7s %-7s %-7s %s\n'
# shellcheck disable=SC2059  # it is a format
table=$(printf "$format" torch builds C++ failed Python failed "first error")
row() {
  # shellcheck disable=SC2059
  table+=$'\n'$(printf "$format" "$@")
}
failed=0

for minor in "$@"; do
  case $minor in 2.[0-9]*) ;; *) fail "'$minor' is no release of LibTorch." "For example: scripts/check_torch_versions.sh 2.12" ;; esac
  status=0
  why=$(scripts/install_torch_version.sh "$minor" 2>&1) || status=$?
  if [ $status = 3 ]; then
    row "$minor" - - - - - "the registry does not have it"
    continue
  elif [ $status != 0 ]; then
    row "$minor" - - - - - "not installed: $(head -1 <<<"$why")"
    failed=1
    continue
  fi

  root=$PWD/.deps/torch-$minor/torch
  version=$(sed -n 's/^ *"\(2\.[0-9.]*\)".*/\1/p' "$root/include/torch/headeronly/version.h")
  build=build/torch-$minor
  log=$build/build.log
  mkdir -p "$build"
  say "torch $version: building in $build, log in $log"
  if ! {
    env -u LIBTORCH -u Torch_DIR cmake --preset release -B "$build" -DTorch_DIR= "-DLIBTORCH=$root" \
      -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -DNDEBUG" -DHINDCAST_EXAMPLES=OFF -DHINDCAST_BENCH=OFF &&
      cmake --build "$build" -j "${JOBS:-$(scripts/jobs.sh)}" --target hindcast test_torch_versions hindcast_python -- -k 0
  } >"$log" 2>&1; then
    row "$version" no - - - - "$(grep -m 1 -E 'error: |CMake Error|undefined (reference|symbol)' "$log" || tail -1 "$log")"
    failed=1
    continue
  fi

  export OMP_NUM_THREADS=2 OMP_WAIT_POLICY=PASSIVE HINDCAST_CACHE_DIR=$PWD/$build/kernels
  log=$build/tests.log
  status=0
  "$build/tests/test_torch_versions" >"$log" 2>&1 || status=$?
  passes=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log")
  fails=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) tests\{0,1\}, listed.*/\1/p' "$log")
  first=$(sed -n '/listed below:/{n;s/^\[  FAILED  \] //p;q;}' "$log")
  if [ $status != 0 ] && [ -z "$passes" ]; then  # it did not come to its end
    passes=$(grep -c '^\[       OK \]' "$log") || true
    first="exit $status in $(sed -n 's/^\[ RUN      \] //p' "$log" | tail -1)"
    fails=1
  fi
  [ $status = 0 ] || failed=1

  log=$build/python_tests.log
  status=0
  tests/python/run.sh "$build" -rfE "${python_tests[@]}" >"$log" 2>&1 || status=$?
  python_passes=$(sed -n -E 's/^(.* )?([0-9]+) passed.*/\2/p' "$log")
  python_fails=$(grep -c -E '^(FAILED|ERROR) ' "$log") || true
  if [ $status != 0 ]; then
    [ -n "$first" ] || first=$(grep -m 1 -E '^(FAILED|ERROR) ' "$log" || tail -1 "$log")
    [ "$python_fails" != 0 ] || python_fails=1
    failed=1
  fi
  row "$version" yes "$passes" "${fails:-0}" "${python_passes:-0}" "$python_fails" "$first"
done

printf '\n%s\n' "$table"
exit $failed
