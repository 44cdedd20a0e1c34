"""Processes of multiprocessing: their parent's guard, and a report of their own."""

import multiprocessing.spawn
from multiprocessing.process import BaseProcess
from typing import Any, Callable, Optional

# A spawned process is a new Python. The first thing that it unpickles contains this text, which waits until the process has read its work:
# a process that has not imported torch by then stays without hindcast, at no cost.
_IN_SPAWNED = """
import sys
from multiprocessing.process import BaseProcess

bootstrap = BaseProcess._bootstrap

def bootstrap_with_hindcast(process, *arguments, **names):
    BaseProcess._bootstrap = bootstrap
    if "torch" in sys.modules:
        try:
            from hindcast import _children
        except ImportError:
            pass  # another environment
        else:
            _children.enable_here(*{arguments!r})
    return process._bootstrap(*arguments, **names)

BaseProcess._bootstrap = bootstrap_with_hindcast
"""


class _Enabling:
    """When unpickled in another process, it runs the text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __reduce__(self) -> Any:
        return exec, (self._text, {})


def enable_here(options: dict[str, Any], report: Optional[str]) -> None:
    """In a process that was spawned."""
    from ._enable import enable_process
    from ._run_script import Report

    enable_process(**options).__enter__()
    follow(options, report, Report(report, is_child=True).write)


def follow(options: dict[str, Any], report: Optional[str], write: Callable[[], None]) -> None:
    """From now on, children get the guard, and write reports when their work is done."""
    get_preparation_data, bootstrap = multiprocessing.spawn.get_preparation_data, BaseProcess._bootstrap  # type: ignore[attr-defined]
    enabling = _Enabling(_IN_SPAWNED.format(arguments=(options, report)))

    def with_hindcast(name: str) -> dict[str, Any]:
        return {**get_preparation_data(name), "hindcast": enabling}

    def with_report(process: Any, *arguments: Any, **names: Any) -> Any:
        try:
            return bootstrap(process, *arguments, **names)
        finally:
            write()

    multiprocessing.spawn.get_preparation_data = with_hindcast
    BaseProcess._bootstrap = with_report  # type: ignore[attr-defined]
