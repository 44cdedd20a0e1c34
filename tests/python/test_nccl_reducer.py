"""The script for machines with cards over NCCL (tests/gpu/nccl_reducer.py), here over Gloo on the CPU."""

import copy
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "gpu" / "nccl_reducer.py"


def run(*arguments, **environment):
    """The exit status and the output."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("ranks", [1, 2])
def test_over_gloo(ranks):
    status, out = run("--backend=gloo", "--device=cpu", f"--ranks={ranks}")
    assert status == 0, out
    first, eager, fused = out.splitlines()
    assert first.startswith(f"{ranks} rank(s), gloo on cpu; stock: all-reduce of ") and first.count("all-reduce") > 2
    assert eager == "eager: parameters within 0; hits: 5 of 6 and 5 of 6; 0 graphs with kernels"
    assert fused.startswith("fused: parameters within ") and "hits: 5 of 6 and 5 of 6" in fused


@pytest.mark.parametrize("arguments, why", [([], "torch finds no CUDA device"), (["--device=cpu"], "NCCL is for cards")])
def test_where_nothing_can_be_tested_it_says_why(arguments, why):
    status, out = run(*arguments, CUDA_VISIBLE_DEVICES="")
    assert status == 0
    assert out.startswith("nothing is tested: ") and (why in out or "this torch has no NCCL" in out)


@pytest.fixture(scope="module")
def reducer():
    spec = importlib.util.spec_from_file_location("nccl_reducer", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seen(reducer):
    return {
        "parameters": {"weight": torch.ones(3), "bias": torch.ones(3)},
        "events": ["all-reduce of 2", "all-reduce of 3", reducer.FIRST_LAYER],
        **{(count, what): 5 for count in ("hits", "kernels") for what in ("parameters", "events")},
    }


def test_what_is_alike_has_no_problems(reducer):
    for engine in reducer.ENGINES:
        assert reducer.problems_of(seen(reducer), seen(reducer), engine, wants_kernels=True) == []


@pytest.mark.parametrize(
    "engine, break_it, problem",
    [
        ("eager", lambda ours: ours["parameters"]["bias"].mul_(1 + 1e-6), "bias is not equal to the stock engine's"),
        ("fused", lambda ours: ours["parameters"]["bias"].mul_(1.001), "bias is 0.001 of its largest number"),
        ("fused", lambda ours: ours["parameters"]["bias"].mul_(float("nan")), "bias is inf of its largest number"),
        ("fused", lambda ours: ours["events"].reverse(), "the order is the first layer's gradient, all-reduce of 3"),
        ("fused", lambda ours: ours["events"].reverse(), "no all-reduce started before the backward ended"),
        ("eager", lambda ours: ours.update({("hits", "events"): 0}), "no backward was a hit while events were looked at"),
        ("fused", lambda ours: ours.update({("kernels", "parameters"): 0}), "no backward had kernels while parameters were looked at"),
    ],
)
def test_what_differs_is_said(reducer, engine, break_it, problem):
    ours = copy.deepcopy(seen(reducer))
    break_it(ours)
    problems = reducer.problems_of(seen(reducer), ours, engine, wants_kernels=True)
    assert any(one.startswith(problem) for one in problems), problems


def test_rounding_is_no_problem_of_fused(reducer):
    ours = seen(reducer)
    ours["parameters"]["bias"].mul_(1 + 1e-6)
    assert reducer.problems_of(seen(reducer), ours, "fused", wants_kernels=True) == []
