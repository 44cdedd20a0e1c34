#!/usr/bin/env bash
# Prints how many compilers may run at once: one per core that we may use, and 1.5 GB of memory for each, which a file that
# includes LibTorch takes.

cores=$(nproc)
kilobytes=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
# A container may have less than its machine.
if read -r limit 2>/dev/null </sys/fs/cgroup/memory.max && [ "$limit" != max ] && [ $((limit / 1024)) -lt "$kilobytes" ]; then
  kilobytes=$((limit / 1024))
fi
jobs=$((kilobytes / 1500000))
[ "$jobs" -le "$cores" ] || jobs=$cores
[ "$jobs" -ge 1 ] || jobs=1
echo "$jobs"
