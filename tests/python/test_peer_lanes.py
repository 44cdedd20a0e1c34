"""Lanes of bench/peers.py that run as separate processes: which loss is wrong, and what a result reports."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
import peer_lanes  # noqa: E402


def test_losses_may_differ_by_rounding():
    expected = [2.0, 1.0, 7.067e-5]
    assert peer_lanes.differing([2.0001, 1.00009, 7.066e-5], expected) is None


@pytest.mark.parametrize("losses", [[2.001, 1.0], [2.0, 1.001], [2.0, float("nan")]])
def test_a_loss_that_differs_is_named(losses):
    assert "expected eager_fused's" in peer_lanes.differing(losses, [2.0, 1.0])


def test_a_result_is_of_processor_time_block_by_block():
    samples = {peer_lanes.BASE: [[8.0, 9.0]] * 3, peer_lanes.OURS: [[4.0, 20.0]] * 3, "jax": [[2.0, 30.0]] * 3}
    result = peer_lanes.result_of("jax", samples, {"first_ms": 5}, [])
    assert (result["ratio"], result["hindcast_ratio"], result["peer_us"], result["clock_us"]) == (4, 0.5, 2, 30)


def test_a_worker_that_ends_without_an_answer_has_failed(monkeypatch):
    monkeypatch.setattr(peer_lanes, "WORKER", "no_such_file.py")
    worker = peer_lanes.Worker("a row", "a lane", 1, {})
    try:
        with pytest.raises(peer_lanes.Failed, match="exit 2"):
            worker.answer(60)
    finally:
        worker.end()
