"""Compiled autograd in C++ under Python's unchanged ``loss.backward()``.

    >>> import hindcast
    >>> with hindcast.enable():
    ...     loss.backward()
"""

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
