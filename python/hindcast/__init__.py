"""Compiled autograd in C++ under Python's unchanged ``loss.backward()``.

    >>> import hindcast
    >>> with hindcast.enable():
    ...     loss.backward()
"""

import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "AotFunction",
    "AotModule",
    "ClipGradNorm",
    "CompiledStep",
    "Graph",
    "Node",
    "Program",
    "Programs",
    "TrainStep",
    "aot_function",
    "aot_module",
    "compiled_step",
    "compilers",
    "draw_graph",
    "dynamo_backend",
    "enable",
    "enable_process",
    "get_graphs",
    "graphs",
    "is_enabled",
    "memory_efficient_fusion",
    "partition",
    "print_graph",
    "report",
    "reset",
    "set_logs",
    "stats",
    "train_step",
    "trim",
    "wait",
]

# `python -m hindcast script.py` imports this package first, while sys.argv[0] is "-m". The script is to import torch, which reads the
# environment and finds other packages when it is imported.
if TYPE_CHECKING or sys.argv[:1] != ["-m"] or "__getattr__" in globals():
    from . import compilers, partition
    from ._aot import AotFunction, aot_function
    from ._aot_module import AotModule, aot_module, memory_efficient_fusion
    from ._dynamo import dynamo_backend
    from ._enable import enable, enable_process, is_enabled
    from ._graphs import draw_graph, get_graphs, print_graph
    from ._introspection import Graph, graphs, report, reset, set_logs, stats, trim, wait
    from ._optim import ClipGradNorm, CompiledStep, compiled_step
    from ._programs import Node, Program, Programs
    from ._train import TrainStep, train_step
else:
    _loading = threading.RLock()

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in ("compilers", "partition"):
            return importlib.import_module(f"{__name__}.{name}")
        import torch  # noqa: F401  # before this package's modules: _run_script imports them after it

        with _loading:
            if name not in globals():
                importlib.reload(sys.modules[__name__])
        return globals()[name]
