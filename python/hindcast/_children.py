"""Processes of multiprocessing: the guard of their parent, and a report of their own."""

import multiprocessing.spawn
from multiprocessing.process import BaseProcess
from typing import Any, Callable, Optional

# A process that is spawned is a new Python. What it reads first has this text in it, which waits until the process has read its work: one
# that has not imported torch by then stays without hindcast, and does not pay for it.
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
    """Its copy in another process runs the text."""

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
    """From now on, children have the guard, and write reports when their work is done."""
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
