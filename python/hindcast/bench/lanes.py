"""The engines that are measured. PyTorch's compiled autograd and hindcast bind the same node classes, each in its own way,
so that a process runs one of them."""

import contextlib
import importlib
import statistics
import time
from contextlib import AbstractContextManager
from typing import Any, Callable

import hindcast
import torch

PEERS = ("ca_eager", "ca_inductor")


class Lane:
    """Stock: PyTorch's own engine, and what the others have in common."""

    name = "stock"

    def start(self) -> None:
        """One-time work of an engine in a process, which is not part of a workload's cost."""

    def facts(self) -> dict[str, Any]:
        """Further facts of a row."""
        return {}

    def context(self) -> AbstractContextManager[None]:
        """The context of backwards."""
        return contextlib.nullcontext()

    def settle(self) -> None:
        """Waits for background compiles."""

    def trim(self) -> None:
        """Returns the memory kept for later backwards."""

    def captures(self) -> int:
        """How many backwards needed a capture."""
        return 0

    def walk_us(self, backward: Callable[[], float]) -> float:
        """The time to find the compiled graph in a backward, without running it."""
        raise NotImplementedError


def _run_once(lane: Lane) -> None:
    x = torch.ones(8, requires_grad=True)
    for _ in range(2):
        loss = (x * 3).exp().sum()
        with lane.context():
            loss.backward()  # type: ignore[no-untyped-call]
    lane.settle()


class Hindcast(Lane):
    """hindcast: with its default compiler, unless another is given."""

    name = "hindcast"

    def __init__(self, compiler: Any = None) -> None:
        self._guard = hindcast.enable(compiler)

    def start(self) -> None:
        _run_once(self)
        hindcast.reset()

    def context(self) -> AbstractContextManager[None]:
        return self._guard

    def settle(self) -> None:
        hindcast.wait()

    def trim(self) -> None:
        hindcast.trim()

    def captures(self) -> int:
        stats = hindcast.stats()
        # Turns of PyTorch's engine are part of a program's normal run.
        return int(stats["misses"] + stats["fallbacks"] - stats["fallbacks_by_reason"].get("NotFaster", 0))

    def walk_us(self, backward: Callable[[], float]) -> float:
        samples: list[float] = []
        for _ in range(21):
            before = hindcast.stats()["collect_us"]
            backward()
            samples.append(hindcast.stats()["collect_us"] - before)
        return statistics.median(samples)


class CompiledAutograd(Lane):
    """PyTorch's compiled autograd: stock forward, the backward's graph run op by op or compiled by Inductor."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._backend = name.removeprefix("ca_")
        self._module: Any = importlib.import_module("torch._dynamo.compiled_autograd")
        self._compiler: Any = torch.compile(backend=self._backend)
        self._probe_s = self._start_s = 0.0

    def start(self) -> None:
        start = time.perf_counter()
        if self._backend == "inductor":  # compiles and runs a program for each instruction set
            importlib.import_module("torch._inductor.cpu_vec_isa").pick_vec_isa()
        self._probe_s = time.perf_counter() - start
        _run_once(self)
        self._start_s = time.perf_counter() - start

    def facts(self) -> dict[str, Any]:
        return {"probe_s": self._probe_s, "start_s": self._start_s}

    def context(self) -> AbstractContextManager[None]:
        # Sizes are constants until they change, as under torch.compile's defaults.
        context: AbstractContextManager[None] = self._module._enable(self._compiler, dynamic=False)
        return context

    def captures(self) -> int:
        return int(sum(importlib.import_module("torch._dynamo.utils").counters["compiled_autograd"].values()))

    def walk_us(self, backward: Callable[[], float]) -> float:
        torch._C._dynamo.compiled_autograd.clear_cache()  # else it finds the compiled graph
        self._compiler = lambda graph: lambda *inputs: []
        for _ in range(3):
            backward()
        return statistics.median(backward() for _ in range(21))


def make(name: str, compiler: Any = None) -> Lane:
    """The lane of that name; `compiler` is hindcast's."""
    return CompiledAutograd(name) if name in PEERS else Hindcast(compiler)
