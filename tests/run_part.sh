#!/usr/bin/env bash
# run_part.sh <shard | part> <count> <program> <argument>...: runs one of `count` parts of a long suite; the commit decides which. With
# HINDCAST_ALL_TESTS=1, as in `make test-all`, it runs the whole suite.
#
#   shard   GoogleTest's sharding, which tests/python/conftest.py implements for pytest: every count-th case
#   part    each case runs a part of its sweep, by HINDCAST_TEST_PART=index:count (tests/support/part.h)

set -euo pipefail
kind=$1 count=$2
shift 2
index=0
if [ "${HINDCAST_ALL_TESTS:-0}" = 0 ]; then
  commit=$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-parse --short=7 HEAD 2>/dev/null || echo 0)
  index=$((16#$commit % count))
  echo "part $index of $count, by the commit"
else
  count=1
fi
case $kind in
  shard) export GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$index ;;
  part) export HINDCAST_TEST_PART=$index:$count ;;
  *) echo "run_part.sh: error: '$kind' is neither shard nor part" >&2; exit 2 ;;
esac
exec "$@"
