"""The part of a long sweep that this run does, like tests/support/part.h for C++."""

import os


def part_of_run():
    """From HINDCAST_TEST_PART="index:count": a function that tells whether case `i` is in the part. Without the variable, all are."""
    index, count = map(int, os.environ.get("HINDCAST_TEST_PART", "0:1").split(":"))
    if not 0 <= index < count:
        raise ValueError(f"HINDCAST_TEST_PART: {index}:{count}, expected an index below the count")
    return lambda i: i % count == index
