"""Calls of a compiled function with changes of everything that it sees in between, in any order: two equal worlds, one of them compiled."""

import contextlib
import copy
import os
import random

import hindcast
import pytest
import torch
from side_by_side import assert_same
from test_what_can_change import CHANGES, HOOKS, make

# These change all modules, or replace what other changes look for.
NOT_HERE = {"module that goes", "order of modules", "class", "__dict__"}
MODULE_CHANGES = {name: change for name, change in {**CHANGES, **HOOKS}.items() if name not in NOT_HERE and "all modules" not in name}
STEPS = 60
SEEDS = range(int(os.environ.get("HINDCAST_CHANGES_FROM", "0")), int(os.environ.get("HINDCAST_CHANGES_TO", "12")))


class World:
    """`compile` makes another callable of a function."""

    def __init__(self, compile):
        self.compile = compile
        self.module = make()
        self.settings = {"scale": 1.0, "writes": False, "parts": [2, 3], "view": None}
        self.handles = []
        self.start()

    def start(self):
        module, settings = self.module, self.settings

        def function(x, y, factor=1.0, *, names=("z",)):
            rows, columns = y.shape
            z = module(x) * settings["scale"] * factor
            if settings["writes"]:
                y.mul_(2)
            if rows == settings["parts"][0] * 3:
                z = z + 1
            parts = {name: z.reshape(z.shape[0], -1)[: rows - 1].sin() for name in names}
            view = y.view(columns, rows) if settings["view"] == "y" else x if settings["view"] == "x" else z[:, 0]
            return parts, view, y.sum() / rows + x.new_ones(rows, columns).sum()

        self.function = self.compile(function)

    def copied(self):
        self.module = copy.deepcopy(self.module)
        self.settings = copy.deepcopy(self.settings)
        self.handles.clear()
        self.start()


def arguments(how, rows, dtype):
    """Two tensors; `how` decides what they share."""
    x = torch.randn(rows, 4, dtype=dtype)
    if how == "sliced":
        x = torch.randn(rows + 3, 4, dtype=dtype)[2:-1]
    if how == "transposed":
        x = torch.randn(4, rows, dtype=dtype).t()
    if how != "without gradient":
        x.requires_grad_()
    y = torch.randn(rows, 6, dtype=dtype)
    if how == "same":
        return x, x
    if how == "view":
        return x, x.detach()[:, 1:]
    if how == "with history":
        return x, (torch.randn(rows, 6, dtype=dtype, requires_grad=True) * 2)
    return x, y


CONTEXTS = {
    "plain": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


def outcome(world, how, rows, context, factor, names):
    """Everything observable of one call."""
    torch.manual_seed(rows)
    dtype = world.module.first.weight.dtype
    x, y = arguments(how, rows, dtype)
    world.module.zero_grad()
    try:
        with CONTEXTS[context]():
            parts, view, scalar = world.function(x, y, factor, names=names)
        total = scalar.float() + sum(part.float().square().sum() for part in parts.values())
        if total.requires_grad:
            total.backward()
        results = [part.detach().clone() for part in parts.values()], view.detach().clone(), scalar.detach().clone(), view is x
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return type(error), x.grad, y.detach().clone()
    grads = [None if p.grad is None else p.grad.clone() for p in world.module.parameters()]
    return results, x.grad, y.grad if y.is_leaf else None, y.detach().clone(), grads, y._version, x._version


def change_settings(world, chosen):
    what, value = chosen
    if what == "parts":
        world.settings["parts"][0] = value
    else:
        world.settings[what] = value


SETTINGS = [("scale", 2.0), ("scale", 1), ("writes", True), ("writes", False), ("parts", 1), ("parts", 2)]
SETTINGS += [("view", "x"), ("view", "y"), ("view", None)]


def change(worlds, chosen):
    """The same change in both. Returns what was changed, for messages."""
    kind = chosen.random()
    if kind < 0.45:
        name = chosen.choice(list(MODULE_CHANGES))
        for world in worlds:
            torch.manual_seed(7)
            with contextlib.suppress(AttributeError, KeyError, RuntimeError):  # an earlier change may have taken away what it changes
                made = MODULE_CHANGES[name](world.module)
                if hasattr(made, "remove"):
                    world.handles.append(made)
        return name
    if kind < 0.75:
        setting = chosen.choice(SETTINGS)
        for world in worlds:
            change_settings(world, setting)
        return setting
    if kind < 0.85:
        for world in worlds:
            if world.handles:
                world.handles.pop().remove()
        return "a hook less"
    if kind < 0.92:
        training = chosen.random() < 0.5
        for world in worlds:
            world.module.train(training)
        return f"train({training})"
    for world in worlds:
        world.copied()
    return "copied"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_function_is_what_it_is_whatever_changes(seed):
    chosen = random.Random(seed)
    options = {"limit": 16, "back_off": False, "async_": False, "fallback_random": True}
    worlds = [World(lambda function: function), World(lambda function: hindcast.aot_function(function, "eager", "eager", **options))]
    calls = [
        (
            chosen.choice(("plain", "plain", "plain", "sliced", "transposed", "without gradient", "same", "view", "with history")),
            chosen.choice((4, 6, 6, 3, 8, 1, 5, 7)),
            chosen.choice(("plain", "plain", "plain", "no_grad", "inference", "autocast")),
            chosen.choice((1.0, 1.0, 2.0)),
            chosen.choice((("z",), ("z",), ("z", "w"))),
        )
        for _ in range(4)
    ]
    story = []
    for _ in range(STEPS):
        if chosen.random() < 0.12:
            story.append(change(worlds, chosen))
        call = chosen.choice(calls)
        story.append(call)
        expected, seen = (outcome(world, *call) for world in worlds)
        try:
            assert_same(seen, expected)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(map(str, story))) from None
