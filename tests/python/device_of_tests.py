"""The device of the tests' tensors. HINDCAST_TEST_DEVICE=cuda runs them on a card; any value also sets the default device."""

import os

import pytest

DEVICE = os.environ.get("HINDCAST_TEST_DEVICE", "cpu")
ADDS_IN_ANY_ORDER = DEVICE != "cpu"  # a card's atomic additions: two runs of one operator may differ by rounding

not_on_a_card = pytest.mark.skipif(DEVICE != "cpu", reason="needs tensors of the CPU")
