#!/usr/bin/env bash
# kernel_table.sh: rewrites the table of kernels (tests/machine_code/table.h). The suites below write their kernels' texts and run none, so most
# of their tests fail. NVRTC then compiles, on all cores, the texts that neither the table nor an earlier run on this machine knows.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Suites that write the same texts in each run. Those of `aot` and test_recordings depend on which kernels a call finds compiled. The fuzzer and the
# operators' scenarios have too many.
entries=(cuda.bodies cuda.fusion test_cuda cuda.optim)

tests=build/release/tests log=build/kernel-table.txt
scripts/build.sh release test_ops test_fusion test_cuda test_optim test_machine_code
say "suites write their kernels to $tests/texts"
regex=$(IFS='|'; echo "^(${entries[*]//./\\.})$")
HINDCAST_ALL_TESTS=1 HINDCAST_ONLY_TEXTS=1 ctest --preset release -V -j "$(nproc)" -R "$regex" >"$log" 2>&1 || true
[ "$(grep -cE '^[0-9]+: \[=+\] [0-9]+ tests? from .* ran\.' "$log")" = ${#entries[@]} ] ||
  fail "${entries[*]}: not all of them came to their ends; see $log"
HINDCAST_KEPT_TEXTS=$PWD/$tests/texts "$tests/test_machine_code" --gtest_brief=1 --gtest_also_run_disabled_tests \
  --gtest_filter=TextsOfSuites.DISABLED_WriteTheTable
git diff --stat -- tests/machine_code || true
