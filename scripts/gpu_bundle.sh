#!/usr/bin/env bash
# gpu_bundle.sh: makes build/gpu-bundle, a folder that a machine with a card runs as it is: run.sh, the programs that need a card,
# the libraries that are neither torch's nor every machine's, what runs torch.compile beside them, and the table of operators. Where they
# were made: the Python package. The tests' kernels come along compiled for Hopper, and their texts for other cards. Clang's plug-in, which
# compiles for CPUs, stays here.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

bundle=build/gpu-bundle
most_mib=64
programs=(tests/test_gpu bench/hindcast_bench_gpu)
plugin=libhindcast_cuda_graphs.so
texts=build/gpu-texts
architecture=90
store=$texts/sm_$architecture
package=build/release/python/hindcast
everywhere='^(libtorch_cpu|libc10|libstdc\+\+|libgcc_s|libm|libc|libdl|librt|libpthread|ld-linux-x86-64)\.so'

programs+=(tests/compile_texts)
targets=("${programs[@]##*/}" hindcast_cuda_graphs)
# Built here before, so built again: one of an earlier state would be tested otherwise.
[ ! -f "$package/libhindcast_python.so" ] || targets+=(hindcast_python)
scripts/build.sh release "${targets[@]}"

# The kernels that the tests will ask for. Here the tests write their kernels and do not run them, so most tests fail. NVRTC then compiles the
# texts that the store lacks: after a change, those that changed.
if [ ! "$texts/all" -nt build/release/tests/test_gpu ]; then
  say "the tests' kernels are written to $texts and compiled for sm_$architecture; HINDCAST_BUNDLE_TEXTS=no leaves them out."
  rm -rf "$texts"/*.cu "$texts/all"
  if [ "${HINDCAST_BUNDLE_TEXTS:-yes}" != no ]; then
    mkdir -p "$store"
    chmod 700 "$store"
    HINDCAST_TEST_DEVICE=cpu HINDCAST_CUDA_EMULATOR=card HINDCAST_ONLY_TEXTS=1 HINDCAST_KEPT_TEXTS=$PWD/$texts HINDCAST_CACHE_DIR=0 \
      build/release/tests/test_gpu --gtest_brief=1 --gtest_filter='GpuOps.NoKernelIsRefused:GpuFuzz.*Kernel*:GpuAot.*:*GpuDemo.*:*GpuBackward.*' \
      >"$texts/tests.txt" 2>&1 || true
    grep -qE '^\[  (PASSED|FAILED)  \] ' "$texts/tests.txt" || fail "test_gpu did not come to its end: see $texts/tests.txt"
    [ "$(find "$texts" -maxdepth 1 -name '*.cu' | wc -l)" -gt 100 ] || fail "test_gpu wrote next to no kernels: see $texts/tests.txt"
    started=$(mktemp)
    HINDCAST_CACHE_DIR=$PWD/$store build/release/tests/compile_texts "$texts" $architecture || fail "kernels could not be compiled: see above."
    find "$store" -type f ! -newer "$started" -delete  # objects of texts that no longer exist: reading an object updates its time
    rm -f "$started"
    touch "$texts/all"
  fi
fi

rm -rf "$bundle"
mkdir -p "$bundle/bin" "$bundle/lib" "$bundle/python"
cp scripts/gpu_run.sh "$bundle/run.sh"
cp bench/gpu/*.py bench/peer_{rows,jax,worker,compilers}.py "$bundle/python"
cp tests/whole/ops/ops.table "$bundle"
for program in "${programs[@]}"; do
  built=build/release/$program copy=$bundle/bin/${program##*/}
  strip --strip-unneeded -o "$copy" "$built"
  for library in $(readelf -d "$built" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE "$everywhere"); do
    file=$(ldd "$built" | awk -v name="$library" '$1 == name && $3 ~ "^/" { print $3 }')
    [ -n "$file" ] || fail "$program needs $library, which was not found."
    strip --strip-unneeded -o "$bundle/lib/$library" "$(readlink -f "$file")"
  done
done
# Opened from there where a backward is to be replayed as a CUDA graph.
strip --strip-unneeded -o "$bundle/lib/$plugin" "build/release/lib/$plugin"

if [ -f "$package/libhindcast_python.so" ]; then
  mkdir "$bundle/python/hindcast"
  cp -L "$package"/*.py "$bundle/python/hindcast"
  cp -rL "$package/bench" "$bundle/python/hindcast"
  cp -rL "$package"-*.dist-info "$bundle/python"  # by which torch.compile finds its backend
  cp tests/gpu/nccl_reducer.py "$bundle/python"
  mkdir "$bundle/python/tests"
  cp tests/python/*.py "$bundle/python/tests"
  for library in libhindcast_python.so $plugin; do
    strip --strip-unneeded -o "$bundle/python/hindcast/$library" "$(readlink -f "$package/$library")"
  done
  scripts/check_libraries.sh "$bundle"/python/hindcast/*.so
  say "the Python package is in it."
else
  say "the Python package was not built: the part nccl is left out."
fi

if [ -f "$texts/all" ]; then
  (cd "$texts" && tar -czf - -- *.cu) >"$bundle/texts.tar.gz"
  tar -C "$store" -czf "$bundle/kernels.tar.gz" .
  say "$(find "$texts" -maxdepth 1 -name '*.cu' | wc -l) kernels are in it, compiled for sm_$architecture."
else
  say "there are no texts of kernels: tests compile each kernel when they need it."
fi

# The programs name this machine's LibTorch; run.sh names that of the machine it runs on, and Python has loaded its own.
script=$(mktemp --suffix .cmake)
trap 'rm -f "$script"' EXIT
for program in "$bundle"/bin/* "$bundle/lib/$plugin" "$bundle"/python/hindcast/*.so; do
  [ -f "$program" ] || continue
  printf 'file(RPATH_REMOVE FILE "%s")\n' "$PWD/$program" >"$script"
  cmake -P "$script"
done

# The sources go along, where a checkout is carried as a whole.
mib=$(du -sm "$bundle" | cut -f 1)
sources=$({ git ls-files -co --exclude-standard -z | du -cm --files0-from=- || true; } 2>/dev/null | tail -n 1 | cut -f 1)
[ $((mib + ${sources:-0})) -lt "$most_mib" ] ||
  fail "$bundle has $mib MiB, and the sources have ${sources:-0}; a machine with a card takes less than $most_mib along." \
    "$(cd "$bundle" && du -sm -- * | sort -rn | head -n 4 | tr '\t\n' ' ;')"
say "$bundle: $mib MiB, beside ${sources:-0} MiB of sources. There: $bundle/run.sh <folder for results>"
