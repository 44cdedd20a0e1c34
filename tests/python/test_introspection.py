import hindcast
import pytest
import torch
from side_by_side import leaf


def test_stats_start_at_zero_and_have_the_promised_names():
    stats = hindcast.stats()
    for name in ("hits", "misses", "unique_graphs", "recompiles", "fallbacks"):
        assert stats[name] == 0
    assert stats["opaque_nodes"] == {} and stats["fallbacks_by_reason"] == {}


def test_graphs_are_listed_in_the_order_of_their_capture():
    with hindcast.enable("eager"):
        leaf(3).sin().sum().backward()
        leaf(3).exp().sum().backward()
    first, second = hindcast.graphs()
    assert "SinBackward0" in first.text and "torch.ops.aten.cos" in first.text
    assert "ExpBackward0" in second.text
    assert first.dot.startswith("digraph")
    hindcast.reset()
    assert hindcast.graphs() == [] and hindcast.stats()["backwards"] == 0


def test_the_report_names_what_happened():
    with hindcast.enable("eager"):
        leaf(3).sin().sum().backward()
    assert "graphs captured" in hindcast.report()


def test_trim_and_wait_return():
    hindcast.wait()
    assert hindcast.trim() >= 0


def test_logs_go_to_a_file(tmp_path):
    hindcast.set_logs("recompiles", tmp_path / "log")
    try:
        with hindcast.enable("eager"):
            leaf(3).sin().sum().backward()
    finally:
        hindcast.set_logs()
    assert "[hindcast/recompiles] Cache miss due to new autograd node" in (tmp_path / "log").read_text()


def test_an_unknown_log_is_refused():
    with pytest.raises(ValueError, match="unknown name 'recompile'.*Did you mean 'recompiles'"):
        hindcast.set_logs("recompile")


def test_everything_answers_under_modes():
    with torch.device("cpu"), torch.utils.flop_counter.FlopCounterMode(display=False):
        assert hindcast.stats()["hits"] == 0
        with hindcast.enable("eager"):
            assert not hindcast.is_enabled()
        hindcast.report()
        hindcast.graphs()
