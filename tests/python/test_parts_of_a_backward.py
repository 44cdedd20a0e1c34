"""Backwards of some results of a compiled function, or for some of its arguments."""

import contextlib

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


class Squared(torch.autograd.Function):
    is_traceable = True

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0]


SQUARES = {
    "custom Function": Squared.apply,
    "checkpoint": lambda x: checkpoint(torch.square, x, use_reentrant=False),
    "a formula that branches in a checkpoint": lambda x: checkpoint(lambda each: each.square().max() * each, x, use_reentrant=False),
}


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("square", SQUARES.values(), ids=SQUARES)
def test_a_loss_of_one_result_and_of_what_was_kept(square, guard, both):
    kept = []

    def function(x):
        y = square(x)
        z = y.prod() * 1
        kept.append(y + z)
        return z.exp(), y.cos()

    compiled = hindcast.aot_function(function)
    for number in range(4):
        gradients = []
        for call in (function, compiled):
            x = (torch.linspace(0.5, 1.0, 4, dtype=torch.float64) + 0.05 * number).requires_grad_()
            with hindcast.enable() if guard and call is compiled else contextlib.nullcontext():
                a, b = call(x)
                (a + kept.pop().square().sum() + (b.sum() if both else 0)).backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)


BRANCHING = {
    "max": lambda x: x * x.max(),
    "prod": lambda x: x + x.prod(),
    "median": lambda x: x * x.median(),
    "cumprod": lambda x: x.cumprod(0),
    "masked_fill": lambda x: x.masked_fill(x > 1, x.sum()),
}


@pytest.mark.parametrize("function", BRANCHING.values(), ids=BRANCHING)
def test_formulas_that_branch_on_values_in_a_checkpoint(function):
    def checkpointed(x):
        return checkpoint(function, x * 1, use_reentrant=False).exp()

    compiled = hindcast.aot_function(checkpointed)
    for zero in (False, True, False):
        gradients = []
        for call in (compiled, checkpointed):
            x = torch.linspace(0.5, 1.5, 4, dtype=torch.float64)
            x[1] *= not zero
            gradients.append(torch.autograd.grad(call(x.requires_grad_()).sum(), x))
        torch.testing.assert_close(*gradients)


class Block(torch.nn.Module):
    """Counts how often it runs, also when it is recomputed."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.runs = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), 0

    def forward(self, x):
        self.runs += 1
        return self.norm(self.linear(x)).tanh()


RECOMPUTED = {
    "an expanded gradient": lambda block, x: checkpoint(block, x, use_reentrant=False).sum(),
    "one result": lambda block, x: (checkpoint(block, x, use_reentrant=False), x * 2),
    "the other result": lambda block, x: (x * 2, checkpoint(block, x, use_reentrant=False)),
    "a result before it": lambda block, x: (lambda h: (h, checkpoint(block, h, use_reentrant=False)))(block.linear(x)),
    "a result behind it": lambda block, x: (lambda h: (h.exp(), h.sin()))(checkpoint(block, x, use_reentrant=False)),
}


@pytest.mark.parametrize("is_expanded", [False, True])
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("function", RECOMPUTED.values(), ids=RECOMPUTED)
def test_a_checkpoint_is_recomputed_as_often_as_in_eager_mode(function, counts, is_expanded):
    outcomes = []
    for compiles in (False, True):
        torch.manual_seed(0)
        block = Block()
        if not counts:
            block.forward = lambda x, of=block: of.norm(of.linear(x)).tanh()
        call = hindcast.aot_function(function) if compiles else function
        outcome = []
        for rows in (5, 5, 3, 5, 4):
            x = torch.randn(rows, 4, requires_grad=True)
            results = call(block, x)
            first = results[0] if isinstance(results, tuple) else results
            (first.sum() if is_expanded else first.square().sum()).backward()
            outcome.append([x.grad, block.runs, int(block.norm.num_batches_tracked), block.norm.running_mean.clone()])
        outcomes.append(outcome)
    torch.testing.assert_close(*outcomes)


def test_a_loss_of_a_kept_checkpoint_recomputes_it_once_more_in_the_first_call_alone():
    runs = []
    for compiles in (False, True):
        block, kept = Block(), {}

        def function(x):
            kept["block"] = checkpoint(block, x, use_reentrant=False)
            return (kept["block"] * 2).sin()

        call = hindcast.aot_function(function) if compiles else function
        for _ in range(4):
            result = call(torch.randn(5, 4))
            before = block.runs
            (result.square().mean() + kept["block"].abs().mean()).backward()
            runs.append(block.runs - before)
    assert runs == [1, 1, 1, 1, 2, 1, 1, 1]


@pytest.mark.parametrize("first_has_backward", [False, True])
@pytest.mark.parametrize("recomputes", [False, True])
def test_a_number_that_differs_before_there_is_a_program(recomputes, first_has_backward):
    def function(x):
        y = checkpoint(torch.tanh, x, use_reentrant=False) if recomputes else x.tanh()
        return y * float(x.detach().sum() > 0), x * 2

    compiled = hindcast.aot_function(function)
    for number, sign in enumerate((1, -1, 1, 1, -1, 1, -1, -1)):
        outcomes = []
        for call in (compiled, function):
            x = torch.full((3,), 0.5 * sign, requires_grad=True)
            result = call(x)[0]
            if number or first_has_backward:
                result.sum().backward()
            outcomes.append([result, x.grad])
        torch.testing.assert_close(*outcomes)


def test_a_cache_for_each_size_is_no_reason_to_run_eagerly():
    """A traced call keeps its size's mask, and its backward does not begin there."""
    masks = {}

    def function(x):
        rows = x.shape[0]
        if rows not in masks:
            masks[rows] = torch.ones(rows, rows, dtype=x.dtype).tril()
        return checkpoint(lambda each: (masks[rows] @ each).tanh(), x, use_reentrant=False)

    compiled = hindcast.aot_function(function)
    for rows in (3, 4, 5, 6) * 3:
        x = torch.randn(rows, 2, dtype=torch.float64, requires_grad=True)
        torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x), torch.autograd.grad(function(x).sum(), x))
    assert compiled.stats()["eager"] == 0
