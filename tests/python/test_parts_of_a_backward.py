"""Backwards of some results of a compiled function, or for some of its arguments."""

import hindcast
import pytest
import torch
from side_by_side import leaf
from torch.utils.checkpoint import checkpoint

CALLS = 5


def test_a_parameter_without_gradient_has_none_at_all_sizes():
    weight = leaf(4, 4)

    def function(x, y):
        mixed = torch.lerp(y, x, 0.3)
        return y, mixed, mixed + x @ weight * 0.5

    def gradients(call, expanded, rows, heads):
        x, y = (torch.ones(1 if expanded else rows, 4, requires_grad=True) for _ in range(2))
        results = call(*(each.expand(rows, 4) if expanded else each for each in (x, y)))
        loss = sum(each.square().sum() for each in results[:heads])
        return torch.autograd.grad(loss, (x, y, weight), allow_unused=True)

    compiled = hindcast.aot_function(function)
    for expanded, rows, heads in ((True, 3, 3), (False, 3, 3), (True, 7, 3), (False, 3, 2), (True, 3, 2), (True, 3, 2), (True, 5, 2)):
        seen, expected = (gradients(call, expanded, rows, heads) for call in (compiled, function))
        torch.testing.assert_close(seen, expected)
    assert compiled.stats()["hits"] > 0


class Counted(torch.autograd.Function):
    is_traceable = True
    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        Counted.calls += 1
        return gradient * 2


def checkpointed(norm, x):
    return checkpoint(lambda each: norm(each).relu(), x, use_reentrant=False)


USERS = {"checkpoint": checkpointed, "custom Function": lambda norm, x: Counted.apply(norm(x))}


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("users", USERS.values(), ids=USERS)
def test_users_code_runs_for_what_is_asked_alone(users, retain):
    outcomes = []
    for compiles in (False, True):
        norm = torch.nn.BatchNorm1d(4)

        def function(x, y):
            return x.sin(), users(norm, y)

        call = hindcast.aot_function(function) if compiles else function
        outcome = []
        for seed in range(CALLS):
            torch.manual_seed(seed)
            x, y = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
            a, b = call(x, y)
            Counted.calls = 0
            gradients = torch.autograd.grad(a.sum() + b.sum(), x, retain_graph=retain)
            outcome.append([*gradients, Counted.calls, int(norm.num_batches_tracked), norm.running_var.clone()])
        outcomes.append(outcome)
    torch.testing.assert_close(*outcomes)


@pytest.mark.parametrize("asks_first", [False, True])
def test_a_checkpoint_that_draws_again(asks_first):
    """It does not restore the state of random numbers, so a backward that does not recompute it draws none."""

    def function(x, y):
        dropped = checkpoint(lambda each: torch.dropout(each.sigmoid(), 0.3, True), y, use_reentrant=False, preserve_rng_state=False)
        return x * 2, dropped

    outcomes = []
    for call in (function, hindcast.aot_function(function, fallback_random=True)):
        torch.manual_seed(0)
        outcome = []
        for number in range(CALLS):
            x, y = (torch.randn(4, requires_grad=True) for _ in range(2))
            loss = sum(each.sum() for each in call(x, y))
            if asks_first and number % 2 == 0:
                torch.autograd.grad(loss, x, retain_graph=True)
            loss.backward()
            outcome.append([y.grad, torch.rand(())])
        outcomes.append(outcome)
    torch.testing.assert_close(*outcomes)
