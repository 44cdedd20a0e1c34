"""A chart of the rows as SVG: a bar for each engine of each workload, as long as it is fast, and a line where stock is."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

_COLORS = {"hindcast": "#2563eb", "ca_inductor": "#f59e0b", "ca_eager": "#9ca3af"}
_LABELS = {"hindcast": "hindcast", "ca_inductor": "compiled autograd, Inductor", "ca_eager": "compiled autograd, eager"}
_LEFT, _WIDTH, _RIGHT, _BAR, _GAP, _TOP = 200, 520, 70, 14, 12, 76


def _text(x: float, y: float, text: str, **attributes: str) -> str:
    given = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{given}>{escape(text)}</text>'


def svg(rows: Sequence[dict[str, Any]], about: str) -> str:
    """Bars of stock's time over the engine's, on a logarithmic scale: 1 is stock, further right is faster."""
    ratios = [row["ratio"] for row in rows if "error" not in row] or [1.0]
    low = min(0.5, *ratios) / 1.2
    high = max(2.0, *ratios) * 1.2

    def at(ratio: float) -> float:
        return _LEFT + _WIDTH * math.log(ratio / low) / math.log(high / low)

    bars = []
    y = _TOP
    for name in dict.fromkeys(row["name"] for row in rows):
        group = [row for row in rows if row["name"] == name]
        bars.append(_text(_LEFT - 8, y + len(group) * _BAR / 2 + 4, name, text_anchor="end"))
        for row in group:
            if "error" in row:
                bars.append(_text(_LEFT + 4, y + _BAR - 3, "failed: " + row["error"][:60], fill="#b91c1c"))
            else:
                end, color = at(row["ratio"]), _COLORS[row["lane"]]
                bars.append(f'<rect x="{_LEFT}" y="{y}" width="{end - _LEFT:.1f}" height="{_BAR - 2}" fill="{color}"/>')
                bars.append(_text(end + 4, y + _BAR - 3, f"{row['ratio']:.2f}"))
            y += _BAR
        y += _GAP

    legend = []
    x = _LEFT
    for lane in dict.fromkeys(row["lane"] for row in rows):
        legend.append(f'<rect x="{x}" y="44" width="10" height="10" fill="{_COLORS[lane]}"/>' + _text(x + 14, 53, _LABELS[lane]))
        x += 26 + 7 * len(_LABELS[lane])
    stock = f'<line x1="{at(1):.1f}" x2="{at(1):.1f}" y1="{_TOP - 6}" y2="{y}" stroke="#111827" stroke-dasharray="3 3"/>'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + _RIGHT}" height="{y + 24}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(8, 18, "Backward: stock's time over the engine's, longer is faster", font_size="13"),
        _text(8, 34, about, fill="#6b7280", font_size="10"),
        *legend, *bars, stock, _text(at(1), y + 14, "stock = 1", text_anchor="middle"),
        "</svg>", "",
    ])  # fmt: skip
