#!/usr/bin/env python3
"""test_summary.py <build folder> <seconds> <CPU seconds>: what the last run of ctest skipped and why, what it left out of the kernels' texts, what
took longest, and the cost."""

import collections
import pathlib
import re
import sys

LONGEST = 10


def skips_in(log):
    """Reason -> how many tests: of GoogleTest (the line after "<file>:<line>: Skipped"), pytest (-rs), and scripts that ctest runs, which
    print "skipped: <reason>"."""
    skips = collections.Counter(reason.strip()[:110] for reason in re.findall(r"(?:: Skipped\n|^skipped: )(.*)", log, re.M))
    for count, reason in re.findall(r"^SKIPPED \[(\d+)\] (?:\S+: )?(.*)", log, re.M):
        skips["pytest: " + reason[:100]] += int(count)
    return skips


def times_in(log):
    """(seconds, entry) of each entry of ctest."""
    times, name = [], ""
    for line in log.splitlines():
        if started := re.match(r"\d+/\d+ Testing: (\S+)", line):
            name = started[1]
        elif ended := re.match(r"Test time = +([0-9.]+) sec", line):
            times.append((float(ended[1]), name))
    return times


def main():
    build, seconds, cpu = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    log = (build / "Testing/Temporary/LastTest.log").read_text(errors="replace")
    skips = skips_in(log)
    print(f"\nskipped: {sum(skips.values())}")
    for reason, count in skips.most_common():
        print(f"  {count:4} {reason}")
    for line in re.findall(r"^\d+ texts of kernels: .*", log, re.M):
        print(line)
    print("longest, in seconds:")
    for one, name in sorted(times_in(log), reverse=True)[:LONGEST]:
        print(f"  {one:7.1f} {name}")
    built = (build / "build.cost").read_text().split()
    print(f"cost: build {built[0]} s, {built[1]} s of CPU; tests {seconds} s, {cpu} s of CPU")


if __name__ == "__main__":
    main()
