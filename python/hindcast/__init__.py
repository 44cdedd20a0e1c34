"""Compiled autograd in C++ under Python's unchanged ``loss.backward()``.

    >>> import hindcast
    >>> with hindcast.enable():
    ...     loss.backward()
"""

from ._enable import enable, is_enabled
from ._introspection import Graph, graphs, report, reset, set_logs, stats, trim, wait

__version__ = "0.1.0"

__all__ = ["Graph", "enable", "graphs", "is_enabled", "report", "reset", "set_logs", "stats", "trim", "wait"]
