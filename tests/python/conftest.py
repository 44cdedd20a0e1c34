import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # equal products give equal bits on a card
os.environ.setdefault("HINDCAST_BACK_OFF", "0")  # read once: tests count captures and hits, also of programs that gain nothing

import hindcast  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from device_of_tests import DEVICE  # noqa: E402

torch.set_num_threads(1)
if "HINDCAST_TEST_DEVICE" in os.environ:
    torch.set_default_device(DEVICE)


@pytest.fixture(autouse=True)
def fresh_counters():
    hindcast.wait()  # a program that an earlier test left to the background would be counted in this one
    hindcast.reset()
    yield
    assert not hindcast.is_enabled(), "a test left a guard behind"


def pytest_collection_modifyitems(config, items):
    """GoogleTest's sharding (tests/run_part.sh): every count-th test."""
    index, count = int(os.environ.get("GTEST_SHARD_INDEX", 0)), int(os.environ.get("GTEST_TOTAL_SHARDS", 1))
    others = [item for i, item in enumerate(items) if i % count != index]
    config.hook.pytest_deselected(items=others)
    items[:] = items[index::count]
