import hindcast
import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fresh_counters():
    hindcast.reset()
    yield
    assert not hindcast.is_enabled(), "a test left a guard behind"
