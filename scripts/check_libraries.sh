#!/usr/bin/env bash
# check_libraries.sh <shared object>...: fails if one needs a library beside torch's and the C and C++ runtime, which a machine
# that only installs the wheel may not have, shows names of a library that is linked into it, or may be unloaded.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

may_need='^(libtorch_cpu|libc10|libstdc\+\+|libgcc_s|libm|libc|libdl|libpthread|ld-linux-x86-64)\.so'
# Opened where torch has loaded its part for CUDA.
graphs_may_need='^(libtorch_cuda|libc10_cuda)\.so'

for object in "$@"; do
  needed=$(readelf -d "$object" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  [ -n "$needed" ] || fail "$object needs no library at all, not even libc: is it a shared object?"
  [[ $object != *_cuda_graphs.so ]] || needed=$(grep -vE "$graphs_may_need" <<<"$needed")
  foreign=$(grep -vE "$may_need" <<<"$needed" | tr '\n' ' ') || true
  [ -z "$foreign" ] || fail "$object needs $foreign" "Link it statically, or use its headers alone (cmake/Dependencies.cmake)."
  shown=$(nm -DC --defined-only "$object" | grep -E ' (fmt|spdlog|llvm|clang)::|XXH' | head -3) || true
  [ -z "$shown" ] || fail "$object shows names of a library that is linked into it:" "$shown" "Hide them (python/hidden.map)."
  readelf -d "$object" | grep -q '(FLAGS_1).*NODELETE' || fail "$object may be unloaded while its threads run." "Link it with -z nodelete."
done
