"""back_off is on by default; it is off in this process (conftest.py), so each test has one of its own."""

from processes import python

PROGRAM = """
with hindcast.enable({options}):
    for step in range(300):
        x = torch.ones(3, requires_grad=True)
        y = x
        for bit in range(10):
            y = y.sin() if step >> bit & 1 else y.tanh()
        y.sum().backward()
stats = hindcast.stats()
print(stats["unique_graphs"], stats["fallbacks_by_reason"].get("DoesNotPay", 0))
"""


def counts(monkeypatch, options=""):
    monkeypatch.setenv("HINDCAST_BACK_OFF", "1")
    return [int(word) for word in python(PROGRAM.format(options=options)).split()]


def test_structures_that_never_come_back_go_to_pytorchs_engine(monkeypatch):
    graphs, left = counts(monkeypatch)
    assert graphs <= 64 and graphs + left == 300


def test_without_it_all_are_captured(monkeypatch):
    assert counts(monkeypatch, "back_off=False") == [300, 0]
