#!/usr/bin/env bash
# gpu_bundle.sh: makes build/gpu-bundle, a folder that a machine with a card runs as it is: run.sh, the programs that need a card,
# the libraries that are neither torch's nor every machine's, what runs torch.compile beside them, and the table of operators. Clang's
# plug-in, which compiles for CPUs, stays here.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

bundle=build/gpu-bundle
most_mib=64
programs=(tests/test_gpu bench/hindcast_bench_gpu)
plugin=libhindcast_cuda_graphs.so
everywhere='^(libtorch_cpu|libc10|libstdc\+\+|libgcc_s|libm|libc|libdl|librt|libpthread|ld-linux-x86-64)\.so'

scripts/build.sh release "${programs[@]##*/}" hindcast_cuda_graphs

rm -rf "$bundle"
mkdir -p "$bundle/bin" "$bundle/lib" "$bundle/python"
cp scripts/gpu_run.sh "$bundle/run.sh"
cp bench/gpu/*.py "$bundle/python"
cp tests/ops/ops.table "$bundle"
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
# The programs name this machine's LibTorch; run.sh names that of the machine it runs on.
script=$(mktemp --suffix .cmake)
trap 'rm -f "$script"' EXIT
for program in "$bundle"/bin/* "$bundle/lib/$plugin"; do
  printf 'file(RPATH_REMOVE FILE "%s")\n' "$PWD/$program" >"$script"
  cmake -P "$script"
done

mib=$(du -sm "$bundle" | cut -f 1)
[ "$mib" -lt "$most_mib" ] || fail "$bundle has $mib MiB; a machine with a card takes less than $most_mib along."
say "$bundle: $mib MiB. There: $bundle/run.sh <folder for results>"
