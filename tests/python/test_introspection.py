import hindcast
import pytest
import torch
from side_by_side import leaf, needs_named_tensors
from torch.utils.flop_counter import FlopCounterMode


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


class Tagged(torch.Tensor):
    pass


@pytest.mark.filterwarnings("ignore:.*amed")
@pytest.mark.parametrize(
    "reason, sentence, backward",
    [
        ("GradientEdge", "gradient edge", lambda y: torch.autograd.backward(torch.autograd.graph.get_gradient_edge(y), torch.ones(3))),
        ("TensorSubclass", "subclass of torch.Tensor", lambda y: y.sum().as_subclass(Tagged).backward()),
        pytest.param(
            "NamedTensor", "named dimensions", lambda y: y.backward(torch.ones(3, names=("n",))), marks=needs_named_tensors
        ),
        ("FunctorchTensor", "is_grads_batched", lambda y: torch.autograd.grad(y, y, torch.eye(3), is_grads_batched=True)),
    ],
)
def test_a_call_left_to_pytorch_is_explained_and_logged(reason, sentence, backward, tmp_path):
    hindcast.set_logs("fallbacks", tmp_path / "log")
    try:
        with hindcast.enable("eager"):
            for _ in range(2):
                backward(leaf(3).sin())
    finally:
        hindcast.set_logs()
    assert hindcast.stats()["fallbacks_by_reason"] == {reason: 2}
    (row,) = [line for line in hindcast.report().splitlines() if line.split()[:1] == [reason]]
    assert sentence in row
    first, second = (tmp_path / "log").read_text().splitlines()
    assert f"warning: {reason}: " in first and "warning" not in second and sentence in first


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
    with torch.device("cpu"), hindcast.enable("eager"):
        assert hindcast.is_enabled()
    with torch.device("cpu"), FlopCounterMode(display=False):
        assert hindcast.stats()["hits"] == 0
        with hindcast.enable("eager"):
            assert not hindcast.is_enabled()
        hindcast.report()
        hindcast.graphs()
