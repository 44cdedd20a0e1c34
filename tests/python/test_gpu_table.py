"""bench/gpu/table.py with made-up numbers: each target is met, missed, or not checked if a row lacks the numbers for it."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "bench/gpu/table.py"

# A row, numbers that reach its target, numbers that do not, and the table's message then.
CASES = {
    "bandwidth": ("bias_gelu/8192x4096/float32", {"floor_share": 0.9}, {"floor_share": 0.899}, "copy's bandwidth 0.899 >= 0.900"),
    "bandwidth at 64 MiB": ("seed/add_norm_add/2x4096x4096/float16", {"floor_share": 0.9}, {"floor_share": 0.5}, "0.500 >= 0.900"),
    "norm": ("layer_norm/8192x4096/bfloat16", {"floor_share": 0.85}, {"floor_share": 0.849}, "copy's bandwidth 0.849 >= 0.850"),
    "softmax": ("softmax/4096x50304/bfloat16", {"floor_share": 0.86}, {"floor_share": 0.84}, "copy's bandwidth 0.840 >= 0.850"),
    "torch.compile": ("seed/layer_norm/8x256x512/float16", {"compile_us": 5, "hindcast_us": 5}, {"compile_us": 4, "hindcast_us": 5},
                      "torch.compile/hindcast 0.800 >= 1.000"),
    "large": ("cosines/8192x8192/float32", {"stock_us": 29, "hindcast_us": 10}, {"stock_us": 28, "hindcast_us": 10}, "2.800 >= 2.900"),
    "small": ("cosines/1024x2048/float32", {"stock_us": 40, "hindcast_us": 10}, {"stock_us": 39, "hindcast_us": 10}, "3.900 >= 4.000"),
    "graphs": ("steps/tiny/8x8/float32", {"stock_us": 50, "graphs_us": 10}, {"stock_us": 49, "graphs_us": 10}, "4.900 >= 5.000"),
    "host": ("steps/mlp/64x64/float32", {"host_of_bound": 1}, {"host_of_bound": 1.5}, "of its bound 1.500 <= 1.000"),
    "launches": ("chain/64x256/float32", {"launches": 1, "stock_launches": 2}, {"launches": 2, "stock_launches": 2}, "launches 2 < 2"),
    "peak": ("whole/seed/layer_norm/8x256x512/float16", {"peak_mib": 2, "stock_peak_mib": 2}, {"peak_mib": 3, "stock_peak_mib": 2},
             "peak MiB 3.00 <= 2.00"),
    "whole": ("whole/seed/add_norm_add/8x256x512/float16", {"stock_us": 2.2, "hindcast_us": 1}, {"stock_us": 2.1, "hindcast_us": 1},
              "stock/hindcast 2.100 >= 2.200"),
}  # fmt: skip


@pytest.fixture
def table(tmp_path):
    def table(rows):
        """The table printed for these rows, with single spaces."""
        benchmarks = [{"name": f"{name}/iterations:1/manual_time", "run_type": "iteration", **row} for name, row in rows.items()]
        file = tmp_path / "rows.json"
        file.write_text(json.dumps({"benchmarks": benchmarks}))
        printed = subprocess.run([sys.executable, str(SCRIPT), str(file)], capture_output=True, text=True, check=True).stdout
        return re.sub(" +", " ", printed)

    return table


@pytest.mark.parametrize("case", CASES)
def test_a_target_is_met_or_missed(table, case):
    row, reaches, falls_short, says = CASES[case]
    met = table({row: reaches})
    assert "met: 1 of 1 targets" in met and "Missed" not in met
    missed = table({row: falls_short})
    assert "met: 0 of 1 targets" in missed and says in missed.split("Missed")[1]


def test_what_has_no_numbers_counts_as_nothing(table):
    printed = table({"layer_norm/8192x4096/float32": {"hindcast_us": 3}, "steps/mlp/64x64/float32": {"stock_us": 3}})
    assert "met: 0 of 0 targets" in printed and "Missed" not in printed
    assert "geometric mean: stock/hindcast >= 2.2 0 0" in printed


@pytest.mark.parametrize("row", ["bias_gelu/64x256/float32", "seed/layer_norm/1x2048x12288/float16", "softmax/a"])
def test_below_64_mib_bandwidth_is_no_target(table, row):
    assert "met: 0 of 0 targets" in table({row: {"floor_share": 0.1}})


def test_the_mean_is_of_all_whole_rows(table):
    ratios = {"whole/seed/layer_norm/8x256x512/float16": 4, "whole/seed/layer_norm/8x256x512/float32": 1.22}
    printed = table({name: {"stock_us": ratio, "hindcast_us": 1} for name, ratio in ratios.items()})
    assert "met: 1 of 1 targets" in printed and "both 2.21" in printed
    assert "met: 0 of 1 targets" in table({name: {"stock_us": 2, "hindcast_us": 1} for name in ratios})


def test_what_graphs_keep_is_in_mib(table):
    printed = table({"steps/mlp/64x64/float32": {"graph_bytes": 3 << 20, "peak_mib": 1.5, "stock_peak_mib": 2}})
    assert "graphs MiB" in printed and re.search(r"^steps/mlp/64x64/float32 .* 3\.0$", printed, re.MULTILINE)
