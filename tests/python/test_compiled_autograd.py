"""PyTorch's own compiled autograd in the same process. A node class registers its formula with the first caller, permanently."""

from processes import python

CA = """
import warnings
from torch._dynamo import compiled_autograd
def check(calls=1):
    for _ in range(calls):
        w = torch.randn(3, requires_grad=True)
        w.sin().sum().backward()
        assert torch.equal(w.grad, w.detach().cos())
"""


def test_it_goes_first_where_it_is_on():
    python(
        CA
        + """
with compiled_autograd._enable(lambda graph: graph), hindcast.enable("eager"), warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    check(2)
assert [str(one.message) for one in seen if "hindcast leaves backward() to it" in str(one.message)], seen
assert len(seen) == 1, [str(one.message) for one in seen]
assert hindcast.stats()["fallbacks_by_reason"] == {"CompiledAutograd": 2}
assert not hindcast.stats()["backwards"]
assert "compiled autograd is on in this thread" in hindcast.report()
"""
    )


def test_hindcast_after_it():
    python(
        CA
        + """
with compiled_autograd._enable(lambda graph: graph):
    check()
with hindcast.enable("eager"):
    check(3)
assert hindcast.stats()["hits"] == 2, hindcast.stats()
"""
    )


def test_it_after_hindcast_gives_a_result_or_an_error():
    python(
        CA
        + """
with hindcast.enable("eager"):
    check(2)
    try:
        with compiled_autograd._enable(lambda graph: graph):
            check()
    except AttributeError as error:
        assert "SumBackward0" in str(error)
    check(2)
"""
    )


def test_its_module_while_another_thread_imports_it():
    python(
        """
import sys, types
sys.modules["torch._dynamo.compiled_autograd"] = types.ModuleType("without its flags yet")
with hindcast.enable("eager"):
    for _ in range(2):
        w = torch.randn(3, requires_grad=True)
        w.sin().sum().backward()
        assert torch.equal(w.grad, w.detach().cos())
assert hindcast.stats()["hits"] == 1
"""
    )
