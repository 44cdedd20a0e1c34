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


RAISING = """
def stop(gradient):
    raise ValueError("far enough")

raised = 0
with hindcast.enable():
    for step in range(100):
        x = torch.ones(3, requires_grad=True)
        y = x.sin()
        y.register_hook(stop)
        try:
            y.exp().sum().backward()
        except ValueError:
            raised += 1
stats = hindcast.stats()
print(raised, stats["misses"], stats["fallbacks_by_reason"]["DoesNotPay"])
"""


def test_what_a_hook_ends_each_time_goes_to_pytorchs_engine(monkeypatch):
    monkeypatch.setenv("HINDCAST_BACK_OFF", "1")
    assert python(RAISING).split() == ["100", "8", "92"]


TURNS = """
def backward(step):
    x = torch.ones(3, requires_grad=True)
    y = x
    for bit in range(10):
        y = y.sin() if step >> bit & 1 else y.tanh()
    y.sum().backward()

def counts():
    stats = hindcast.stats()
    left = stats["fallbacks_by_reason"].get("DoesNotPay", 0)
    return stats["unique_graphs"], stats["hits"], stats["backwards"] + left

for step in range(300):
    with hindcast.enable():
        backward(step)
before = counts()
with hindcast.enable():
    with hindcast.enable(back_off=False):
        backward(1000)
between = counts()
for step in range(64):
    with hindcast.enable():
        backward(1001)
after = counts()
print(between[0] - before[0], after[1] - between[1], before[2], between[2], after[2])
"""


def test_what_is_not_looked_at_is_counted_and_ends_with_the_options_and_with_what_repeats(monkeypatch):
    monkeypatch.setenv("HINDCAST_BACK_OFF", "1")
    captured, hits, *calls = [int(word) for word in python(TURNS).split()]
    assert captured == 1 and hits >= 16
    assert calls == [300, 301, 365]
