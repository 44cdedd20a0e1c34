"""DistributedDataParallel and FSDP2 over Gloo: two processes on this machine, which rendezvous through a file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("distributed_worker.py")
SETTINGS = ["plain", "static_graph", "find_unused_parameters", "gradient_as_bucket_view", "no_sync", "fsdp"]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The output of both processes."""
    meeting = tmp_path_factory.mktemp("distributed") / "meeting"
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), str(meeting)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for rank in range(2)
    ]
    results = []
    try:
        for worker in workers:
            out, errors = worker.communicate(timeout=120)
            assert worker.returncode == 0, errors
            results.append(json.loads(out))
    finally:
        for worker in workers:
            worker.kill()
    return results


@pytest.mark.parametrize("setting", SETTINGS)
def test_parameters_are_equal_to_the_bit(ranks, setting):
    for rank in ranks:
        assert rank[setting]["hindcast"] == rank[setting]["stock"]
        assert rank[setting]["hits"] > 0
    assert ranks[0][setting]["hindcast"] == ranks[1][setting]["hindcast"]


def test_communication_starts_before_the_first_layers_backward(ranks):
    for rank in ranks:
        assert rank["order"]["hits"] > 0
        assert rank["order"]["events"].index("all-reduce") < rank["order"]["events"].index("first layer")
