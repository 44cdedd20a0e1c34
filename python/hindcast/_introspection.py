"""What hindcast did in this process, and what it keeps."""

import os
from typing import Any, NamedTuple, Optional, Union

from ._backward import count_unseen, process_state, thread_state
from ._library import call

_NOT_RECOMPILES = ("NewNode", "LimitReached")


class Graph(NamedTuple):
    """A captured backward."""

    text: str
    """In the words of PyTorch's compiled autograd log; the examples of docs/debugging.md are such texts."""
    dot: str
    """The same for Graphviz."""


def stats() -> dict[str, Any]:
    """Counters of this process since it started or since :func:`reset`.

    ``hits`` (backwards replayed from start to end), ``misses`` (backwards that needed a capture), ``unique_graphs``
    (captures), ``recompiles`` (reasons to capture a known structure again), ``fallbacks`` (calls left to PyTorch's
    engine) with ``fallbacks_by_reason``, ``opaque_nodes`` (nodes called as themselves, by name) with ``opaque_reasons``,
    ``misses_by_reason``, ``eager_functions`` (compiled functions and graphs of ``torch.compile`` that run eagerly, by
    reason), and the other fields of hindcast's C++ ``Stats``.
    """
    count_unseen()
    counters, times, misses, fallbacks, opaque_nodes, opaque_reasons, without_cuda_graph, eager_functions = call("stats")
    return {
        **counters,
        **times,
        "recompiles": sum(count for reason, count in misses.items() if reason not in _NOT_RECOMPILES),
        "fallbacks": sum(fallbacks.values()),
        "misses_by_reason": misses,
        "fallbacks_by_reason": fallbacks,
        "opaque_nodes": opaque_nodes,
        "opaque_reasons": opaque_reasons,
        "without_cuda_graph": without_cuda_graph,
        "eager_functions": eager_functions,
    }


def report() -> str:
    """The counters as readable text, with the reasons of recent misses."""
    count_unseen()
    return str(call("report"))


def graphs() -> list[Graph]:
    """The captured graphs that are kept, in the order of their capture."""
    return [Graph(text, dot) for text, dot in zip(*call("graphs"))]


def reset() -> None:
    """Forgets every captured graph and what threads leave to PyTorch's engine, and zeroes the counters. Running backwards finish
    undisturbed."""
    process_state.resets += 1
    thread_state.take_uncounted()
    call("reset")


def wait() -> None:
    """Waits until the kernels that are pending at the call are compiled, or have failed."""
    call("wait")


def trim() -> int:
    """Returns memory kept for large results of later steps to PyTorch's allocator. Returns its size in bytes."""
    return int(call("trim"))


def set_logs(spec: str = "", out: Optional[Union[str, os.PathLike[str]]] = None) -> None:
    """Sets what is logged from now on, like ``HINDCAST_LOGS=spec``: ``set_logs("+recompiles,perf")``.

    Args:
        spec: names separated by commas, each with ``+`` for debug, ``-`` for errors only, or neither.
        out: a file to append to; stderr by default.

    Raises:
        ValueError: for an unknown name or a file that cannot be opened; nothing is changed then.
    """
    call("set_logs", spec, "" if out is None else os.fspath(out))
