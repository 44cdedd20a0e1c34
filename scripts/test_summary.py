#!/usr/bin/env python3
"""test_summary.py <build folder> <seconds> <CPU seconds>: what the last run of ctest skipped and why, what took longest, and what it cost."""

import collections
import pathlib
import re
import sys


def skips_in(log):
    """Reason -> how many tests: GoogleTest's, pytest's, and ctest's own."""
    skips = collections.Counter()
    for reason in re.findall(r": Skipped\n(.*)", log):
        skips[re.sub(r"\(.*\)|/\S+", "", reason).strip()[:110]] += 1
    for reason, count in [(text, int(count)) for count, text in re.findall(r"^SKIPPED \[(\d+)\] (.*)", log, re.M)]:
        skips["pytest: " + reason.split(": ", 1)[-1][:100]] += count
    return skips


def main():
    build, seconds, cpu = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    log = next(iter(sorted((build / "Testing/Temporary").glob("LastTest*.log"))), None)
    text = log.read_text(errors="replace") if log else ""
    skips = skips_in(text)
    print(f"\nskipped: {sum(skips.values())}")
    for reason, count in skips.most_common():
        print(f"  {count:4} {reason}")
    times = [(float(seconds), name) for name, seconds in re.findall(r'^\d+/\d+ Testing: (\S+)\n(?:.*\n)*?Test time = +([0-9.]+) sec', text, re.M)]
    print("longest, in seconds:")
    for one, name in sorted(times, reverse=True)[:10]:
        print(f"  {one:7.1f} {name}")
    built = (build / "build.cost").read_text().split() if (build / "build.cost").exists() else ["?", "?"]
    print(f"cost: build {built[0]} s, {built[1]} s of CPU; tests {seconds} s, {cpu} s of CPU")


if __name__ == "__main__":
    main()
