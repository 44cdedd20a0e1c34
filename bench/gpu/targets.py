"""The targets of table.py's rows, and which rows reach them."""

import math
import operator
import re
from typing import NamedTuple, Union

WHOLE = 2.2  # forward and backward over eager, the geometric mean of seed 001's patterns
BEYOND_CACHES = 64 << 20  # bytes of a tensor: a card's cache holds a part of smaller ones, and a launch takes as long as the bytes
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
SIGNS = {">=": operator.ge, "<=": operator.le, "<": operator.lt}

# Rows by the starts of their names. All but steps/..., train/... and whole/... are backwards without products of matrices; seed 000's function is
# one of them too.
NORM_AND_SOFTMAX = r"(seed/)?(layer_norm|softmax)/"
POINTWISE_AND_SUMS = rf"(?!steps/|whole/|train/|{NORM_AND_SOFTMAX})"


class Target(NamedTuple):
    """`seen` and `wanted`: a counter's name, or those of a counter and of its divisor. `wanted` may be a number."""

    what: str
    seen: Union[str, tuple]
    sign: str
    wanted: Union[str, float]
    rows: str = ""
    least_bytes: int = 0
    form: str = ".3f"


TARGETS = (
    Target("backward of 64 MiB and more, pointwise and sums: of the copy's bandwidth", "floor_share", ">=", 0.9, POINTWISE_AND_SUMS,
           BEYOND_CACHES),
    Target("backward of 64 MiB and more, layer norm and softmax: of the copy's bandwidth", "floor_share", ">=", 0.85, NORM_AND_SOFTMAX,
           BEYOND_CACHES),
    Target("layer norm and softmax: torch.compile/hindcast", ("compile_us", "hindcast_us"), ">=", 1, NORM_AND_SOFTMAX),
    Target("seed 000's function, large: stock/hindcast", ("stock_us", "hindcast_us"), ">=", 2.9, "cosines/8192x8192/"),
    Target("seed 000's function, small: stock/hindcast", ("stock_us", "hindcast_us"), ">=", 4, "cosines/1024x2048/"),
    Target("launches that take the time: stock/graphs", ("stock_us", "graphs_us"), ">=", 5, "steps/"),
    Target("whole training steps: stock/graphs", ("stock_us", "graphs_us"), ">=", 10, "train/"),
    Target("the host's time of a hit, of its bound", "host_of_bound", "<=", 1),
    Target("launches", "launches", "<", "stock_launches", form=".0f"),
    Target("peak MiB", "peak_mib", "<=", "stock_peak_mib", form=".2f"),
)
MEAN = Target("forward and backward, geometric mean: stock/hindcast", ("stock_us", "hindcast_us"), ">=", WHOLE, "whole/seed/")


class Check(NamedTuple):
    target: Target
    row: str
    seen: float
    wanted: float

    def is_met(self):
        return SIGNS[self.target.sign](self.seen, self.wanted)


def value(row, what):
    """None if the row lacks a counter."""
    if isinstance(what, tuple):
        above, below = (row.get(counter) for counter in what)
        return above / below if above and below else None
    return row.get(what) if isinstance(what, str) else what


def tensor_bytes(name):
    """The bytes of a tensor of the size in the row's name; 0 if there is no size in it."""
    found = re.search(r"/(\d+(?:x\d+)*)/(b?float\d+)$", name)
    return math.prod(map(int, found[1].split("x"))) * BYTES[found[2]] if found else 0


def mean_of(rows, above, below):
    """The geometric mean, and the number of rows."""
    ratios = [ratio for ratio in (value(row, (above, below)) for row in rows) if ratio]
    return (math.exp(sum(map(math.log, ratios)) / len(ratios)), len(ratios)) if ratios else (None, 0)


def checks(rows):
    """Each target of each row that has the numbers for it."""
    checked = [Check(target, name, value(row, target.seen), value(row, target.wanted))
            for target in TARGETS for name, row in rows.items()
            if re.match(target.rows, name) and tensor_bytes(name) >= target.least_bytes]
    mean, count = mean_of([row for name, row in rows.items() if name.startswith(MEAN.rows)], *MEAN.seen)
    checked.append(Check(MEAN, f"{MEAN.rows}... ({count} rows)", mean, MEAN.wanted))
    return [check for check in checked if check.seen is not None and check.wanted is not None]


def missed_lines(checked):
    return [[check.row, check.target.what, format(check.seen, check.target.form),
             f"{check.target.sign} {format(check.wanted, check.target.form)}"] for check in checked if not check.is_met()]


def count_lines(checked):
    """How often each target was met, of how often it could be checked: 0 of 0 if no row has its numbers."""
    lines = []
    for target in (*TARGETS, MEAN):
        own = [check.is_met() for check in checked if check.target is target]
        wanted = f"{target.sign} {'stock' if isinstance(target.wanted, str) else target.wanted}"
        lines.append([target.what, wanted, str(sum(own)), str(len(own))])
    return lines
