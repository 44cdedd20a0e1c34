import os

os.environ.setdefault("HINDCAST_BACK_OFF", "0")  # read once: tests count captures and hits of programs that gain nothing

import hindcast  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fresh_counters():
    hindcast.reset()
    yield
    assert not hindcast.is_enabled(), "a test left a guard behind"
