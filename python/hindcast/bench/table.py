"""Rows as text: the measurements, and how far hindcast is ahead of PyTorch's compiled autograd."""

import contextlib
from collections.abc import Sequence
from typing import Any, Callable

_HEAD = (
    "workload", "engine", "nodes", "stock us", "us", "ratio", "", "cpu", "first ms", "kernels", "new b. ms", "ns/node",
    "peak KiB", "stock's", "waited",
)  # fmt: skip
_WIDTHS = (34, 11, 5, 9, 9, 6, 5, 5, 9, 8, 9, 8, 9, 9, 6)
_LABELS = {"hindcast": "hindcast", "ca_eager": "ca eager", "ca_inductor": "ca Inductor"}

# A property of a workload -> (hindcast's row over the other's, which lane, the goal)
_Ratio = Callable[[dict[str, Any], dict[str, Any]], float]
GOALS: dict[str, tuple[str, _Ratio, float]] = {
    "hit/stock": ("hindcast", lambda ours, _: float(ours["ratio"]), 1),
    "hit/eager": ("ca_eager", lambda ours, peer: float(ours["ratio"] / peer["ratio"]), 3),
    "hit/Inductor": ("ca_inductor", lambda ours, peer: float(ours["ratio"] / peer["ratio"]), 1),
    "first/eager": ("ca_eager", lambda ours, peer: float(peer["first_us"] / ours["first_us"]), 0),
    "first/Inductor": ("ca_inductor", lambda ours, peer: float(peer["first_us"] / ours["first_us"]), 50),
    "new/eager": ("ca_eager", lambda ours, peer: float(peer["new_batch_us"] / ours["new_batch_us"]), 0),
    "new/Inductor": ("ca_inductor", lambda ours, peer: float(peer["new_batch_us"] / ours["new_batch_us"]), 0),
}


def _kib(size: int) -> str:
    return f"{size / 1024:,.0f}" if size >= 10240 else f"{size / 1024:.1f}"


def _aligned(cells: Sequence[str], rest: str = "") -> str:
    padded = [text.ljust(width) if i < 2 else text.rjust(width) for i, (text, width) in enumerate(zip(cells, _WIDTHS))]
    return " ".join([*padded, rest]).rstrip()


def head() -> str:
    return _aligned(_HEAD)


def line(row: dict[str, Any]) -> str:
    label = _LABELS[row["lane"]]
    if "error" in row:
        first = f" (first {row['first_us'] / 1000:,.1f} ms)" if "first_us" in row else ""
        return _aligned((row["name"], label), f"FAILED: {row['error']}{first}")
    cells = (
        row["name"], label, str(row["nodes"]), f"{row['stock_us']:,.0f}", f"{row['us']:,.0f}", f"{row['ratio']:.2f}",
        f"±{50 * row['ratio_spread']:.0f}%", f"{row['cpu_ratio']:.2f}", f"{row['first_us'] / 1000:,.1f}",
        f"+{row['kernels_us'] / 1000:,.0f}", f"{row['new_batch_us'] / 1000:,.1f}", f"{row['ns_per_node']:,.0f}",
        _kib(row["peak_bytes"]), _kib(row["stock_peak_bytes"]), f"{100 * row['waited']:.0f}%",
    )  # fmt: skip
    notes = list(row["notes"])
    if len(row.get("ratios", ())) > 1:
        notes.insert(0, "rounds " + " ".join(f"{ratio:.2f}" for ratio in row["ratios"]))
    return _aligned(cells, "  ".join(notes))


def against(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each workload by which factor hindcast is ahead; nothing if a row of the two failed before it was measured."""
    by_lane = {(row["name"], row["lane"]): row for row in rows}
    found = []
    for name in dict.fromkeys(row["name"] for row in rows):
        ahead: dict[str, Any] = {"name": name}
        for goal, (lane, ratio, _) in GOALS.items():
            with contextlib.suppress(KeyError):
                ahead[goal] = ratio(by_lane[name, "hindcast"], by_lane[name, lane])
        found.append(ahead)
    return found


def against_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """As a table; values below their goal are marked."""
    lines = [" ".join(["hindcast is ahead, times".ljust(34), *(goal.rjust(14) for goal in GOALS)])]
    lines.append(" ".join(["to reach".ljust(34), *((f"{least:g}" if least else "").rjust(14) for *_, least in GOALS.values())]))
    for ahead in found:
        cells = [ahead["name"].ljust(34)]
        for goal, (*_, least) in GOALS.items():
            value = ahead.get(goal)
            cells.append(("-" if value is None else f"{'! ' if value < least else ''}{value:,.2f}").rjust(14))
        lines.append(" ".join(cells))
    return lines


def hints(rows: Sequence[dict[str, Any]], about: dict[str, Any]) -> list[str]:
    """Advice for a machine that was too busy to measure on."""
    if max((row["waited"] for row in rows if "error" not in row), default=0) < 0.1:
        return []
    lines = ["Threads waited for cores: the machine was busy, and times say less than they should."]
    if about["threads"] > 1 and "OMP_WAIT_POLICY" not in about["environment"]:
        # Each of an operator's parallel loops then lasts as long as the idle thread holds the core.
        lines.append("OpenMP's threads spin while they wait for one that has no core: set OMP_WAIT_POLICY=PASSIVE.")
    return lines
