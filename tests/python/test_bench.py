import json
import sys
import xml.etree.ElementTree
from argparse import Namespace

import pytest
import torch
from hindcast.bench import __main__ as bench
from hindcast.bench import chart, children, lanes, memory, peers, table, workloads

OPTIONS = Namespace(only="mlp/64", threads=1, seconds=0.01, rounds=1, limit=120.0, compiler=None)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    def run(*arguments):
        threads = torch.get_num_threads()
        files = ["--json", str(tmp_path / "rows.json"), "--svg", str(tmp_path / "chart.svg")]
        monkeypatch.setattr("sys.argv", ["bench", "--only", "mlp/64", "--seconds", "0.01", *files, *arguments])
        bench.main()
        torch.set_num_threads(threads)
        return json.loads((tmp_path / "rows.json").read_text()), capsys.readouterr().out, (tmp_path / "chart.svg").read_text()

    return run


def row(lane, **changes):
    times = {"stock_us": 10.0, "us": 5.0, "first_us": 1e3, "new_batch_us": 1e3, "ns_per_node": 9.0}
    ratios = {"ratio": 2.0, "ratio_spread": 0.1, "cpu_ratio": 2.0}
    return {
        "name": "mlp", "lane": lane, "notes": [], "nodes": 3, "kernels_us": 0.0, "waited": 0.0, "peak_bytes": 8,
        "stock_peak_bytes": 8, **times, **ratios, **changes,
    }  # fmt: skip


def test_a_row_for_each_workload_on_the_screen_and_in_the_files(run):
    written, screen, drawing = run()
    (found,) = written["rows"]
    assert found["name"] == "mlp/64-128-64/b32" and found["lane"] == "hindcast" and found["notes"] == []
    assert found["nodes"] == 11 and found["ratio"] > 0 and found["first_us"] > 0 and found["ns_per_node"] > 0
    assert found["name"] in screen and f"load average {written['load_average']}" in screen
    xml.etree.ElementTree.fromstring(drawing)
    assert found["name"] in drawing


@pytest.mark.parametrize("compiler", ["eager", "fused"])
def test_every_workload_is_replayed_with_stocks_gradients(compiler):
    for workload in workloads.workloads():
        if workload.name.startswith("resnet18/64"):  # the same net, larger
            continue
        found = bench.measure(workload, lanes.Hindcast(compiler), 0)
        assert found["notes"] == [], found["name"]


def test_peak_memory_is_what_the_allocator_was_asked_for():
    x = torch.ones(1000, requires_grad=True)
    # The gradients of sum (expanded, hence 4 bytes) and of exp; x takes over the second.
    assert memory.peak_bytes(lambda: x.exp().sum(), lanes.Lane()) == 4 + 4000


def test_a_peer_that_takes_too_long_is_a_row_that_says_so():
    found = peers.run("mlp/64-128-64/b32", "ca_eager", Namespace(**{**vars(OPTIONS), "limit": 0.2}))
    assert found["error"] == "not done after 0.2 s"
    assert "FAILED: not done" in table.line(found)


def test_of_a_peer_that_takes_too_long_the_first_backward_is_told():
    (told,) = children.messages('a warning\n3\n{"name": "mlp", "lane": "ca_inductor", "notes": [], "first_us": 1e6}\n{"name')
    slow = {**told, "error": "not done after 9 s"}
    assert "FAILED: not done after 9 s (first 1,000.0 ms)" in table.line(slow)
    assert table.against([row("hindcast"), slow]) == [{"name": "mlp", "hit/stock": 2.0, "first/Inductor": 1000.0}]


def test_a_peer_that_fails_is_a_row_that_says_so(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    ours, eager, inductor = peers.rows(OPTIONS)
    assert ours["error"] == eager["error"] == inductor["error"] == "exit 1: no output"
    assert table.against([ours, eager, inductor]) == [{"name": "mlp/64-128-64/b32"}]
    xml.etree.ElementTree.fromstring(chart.svg([ours, eager, inductor], "all <failed>"))


def test_hindcast_in_a_process_of_its_own():
    found = peers.run("mlp/64-128-64/b32", "hindcast", OPTIONS)
    assert "error" not in found and found["notes"] == [] and found["pairs"] > 10


def test_the_median_of_the_rounds_counts_and_a_failed_one_is_told(monkeypatch):
    killed = {**row("hindcast"), "error": "killed"}
    results = iter([row("hindcast", ratio=3.0), row("hindcast", ratio=1.0), killed, row("hindcast", ratio=2.0)])
    monkeypatch.setattr(peers, "LANES", ("hindcast",))
    monkeypatch.setattr(peers, "run", lambda *_: next(results))
    (found,) = peers.rows(Namespace(**{**vars(OPTIONS), "rounds": 4}))
    assert found["ratio"] == 2.0 and found["ratios"] == [3.0, 1.0, 2.0] and found["notes"] == ["a round failed: killed"]
    assert "rounds 3.00 1.00 2.00" in table.line(found)


def test_what_misses_its_goal_is_marked():
    rows = [row("hindcast"), row("ca_eager", ratio=0.5), row("ca_inductor", ratio=4.0, first_us=49e3)]
    (ahead,) = table.against(rows)
    assert ahead["hit/stock"] == 2 and ahead["hit/eager"] == 4 and ahead["hit/Inductor"] == 0.5 and ahead["first/Inductor"] == 49
    marked = table.against_lines([ahead])[-1]
    assert "! 0.50" in marked and "! 49.00" in marked and marked.count("!") == 2


def test_a_busy_machine_is_told_and_what_helps():
    assert table.hints([row("hindcast", waited=0.01)], {"threads": 2, "environment": {}}) == []
    busy = [row("hindcast", waited=0.5)]
    assert "the machine was busy" in table.hints(busy, {"threads": 1, "environment": {}})[-1]
    assert "OMP_WAIT_POLICY=PASSIVE" in table.hints(busy, {"threads": 2, "environment": {}})[-1]
    assert len(table.hints(busy, {"threads": 2, "environment": {"OMP_WAIT_POLICY": "PASSIVE"}})) == 1
