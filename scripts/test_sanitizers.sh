#!/usr/bin/env bash
# The whole suite under AddressSanitizer and UndefinedBehaviorSanitizer, then the tests with threads under ThreadSanitizer.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

failed=()
for preset in asan tsan; do
  say "tests under $preset"
  scripts/build.sh "$preset"
  # With a random layout of memory, kernels newer than GCC 12 leave ThreadSanitizer no room for its shadow.
  setarch "$(uname -m)" -R ctest --preset "$preset" -j "$(nproc)" "$@" || failed+=("$preset")
done
[ ${#failed[@]} -eq 0 ] || fail "tests failed under: ${failed[*]}"
