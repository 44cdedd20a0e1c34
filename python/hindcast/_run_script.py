"""Runs a script or a module like Python, with hindcast on all of its threads, and prints the report at the end."""

import argparse
import atexit
import builtins
import importlib.util
import io
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType, TracebackType
from typing import Any, Optional

from . import _children

_USAGE = "python -m hindcast [option]... (script.py | -m module) [argument]..."
_HELP = """Runs a script or a module under hindcast.enable_process(), on all of its threads. At the end, a report of what hindcast did goes to
stderr. HINDCAST_DISABLE=1 in the environment leaves everything to PyTorch's engine."""


class Report:
    """Written when the process ends, and by children that ran backwards: each covers its own process."""

    def __init__(self, path: Optional[str], is_child: bool = False) -> None:
        self._path = path
        self._runner = -1 if is_child else os.getpid()
        self._calls_at_fork = 0
        self.has_begun = is_child  # torch is there
        if path is not None:
            self._path = os.path.abspath(path)  # the script may change the directory

    def forked(self) -> None:
        self._calls_at_fork = _calls() if self.has_begun else 0

    def write(self) -> None:
        process = os.getpid()
        if process != self._runner and (not self.has_begun or _calls() == self._calls_at_fork):
            return
        text = f"hindcast, process {process}:\n{_report() if self.has_begun else 'It has not imported torch.'}\n"
        if self._path is not None:
            with open(self._path, "a") as out:
                out.write(text)
        elif sys.__stderr__ is not None:
            sys.__stderr__.write(text)
            sys.__stderr__.flush()


def _report() -> str:
    from ._introspection import report

    return report()


def _calls() -> int:
    from ._introspection import stats

    counters = stats()
    return int(counters["backwards"] + counters["fallbacks"])


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m hindcast", usage=_USAGE, description=_HELP)
    parser.add_argument("-m", dest="is_module", action="store_true", help="run a module, as `python -m` does")
    parser.add_argument("-o", dest="report", metavar="FILE", help="write the report to FILE")
    parser.add_argument("--compiler", choices=("fused", "eager", "fused_through_aten"))
    parser.add_argument("--dynamic", choices=("automatic", "never"), default="automatic")
    for name, what in (
        ("deterministic", "equal inputs give equal bits"),
        ("verify", "check each new graph and each kernel"),
        ("nan-guard", "look for infinities and NaN in gradients"),
        ("cuda-graphs", "on CUDA, replay backwards as CUDA graphs"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=what)
    parser.add_argument("--no-back-off", dest="back_off", action="store_false", help="capture what does not pay, too")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if not parsed.program:
        parser.error("there is no script, and no -m module")
    if not parsed.is_module and not os.path.isfile(parsed.program[0]):
        parser.error(f"{parsed.program[0]!r} is no file; expected a script, or -m and a module")
    if parsed.report is not None:
        try:
            open(parsed.report, "w").close()
        except OSError as error:
            parser.error(f"-o: {error}")
    return parsed


def _options(parsed: argparse.Namespace) -> dict[str, Any]:
    names = ("compiler", "dynamic", "deterministic", "verify", "nan_guard", "cuda_graphs", "back_off")
    return {name: getattr(parsed, name) for name in names}


class _AfterTorch(MetaPathFinder):
    """Calls `begin` as soon as torch has been imported."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin
        self._is_finding = False

    def find_spec(self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
        if name.startswith("hindcast.") and name not in ("hindcast._children", "hindcast._run_script"):
            import torch  # noqa: F401  # `begin` needs modules of this package, which must not be half imported then
        if name != "torch" or self._is_finding:
            return None
        self._is_finding = True
        try:
            spec = importlib.util.find_spec("torch")
        finally:
            self._is_finding = False
        if spec is None or spec.loader is None:
            return None
        loader, execute = spec.loader, spec.loader.exec_module

        def execute_and_begin(module: ModuleType) -> None:
            del loader.exec_module  # type: ignore[method-assign]  # the object's own, which hides its class's
            execute(module)
            if self in sys.meta_path:  # not if the module is executed once more
                sys.meta_path.remove(self)
                self._begin()

        loader.exec_module = execute_and_begin  # type: ignore[method-assign]
        return spec


def _new_main() -> ModuleType:
    """The module for the script's names, which pickle and multiprocessing look up."""
    interpreters, module = sys.modules["__main__"], ModuleType("__main__")
    vars(module)["__builtins__"] = builtins  # the module, as in the interpreter's own; in other modules the name is its dict
    if "__annotations__" in vars(interpreters):  # until Python 3.13
        vars(module)["__annotations__"] = {}
    sys.modules["__main__"] = module
    return module


def _run_file(path: str) -> None:
    path = os.path.abspath(path)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(path))  # replaces the working directory, which `python -m` had put there
    module = _new_main()
    vars(module).update(__file__=path, __loader__=SourceFileLoader("__main__", path), __cached__=None)
    exec(code, vars(module))


def _run(program: list[str], is_module: bool) -> None:
    sys.argv[:] = program
    if is_module:
        _new_main()
        runpy._run_module_as_main(program[0], alter_argv=True)  # type: ignore[attr-defined]  # what `python -m` calls
    else:
        _run_file(program[0])


def _hide_runner() -> None:
    """Makes tracebacks of uncaught exceptions begin in the script."""
    former = sys.excepthook
    own = (main.__code__, _run.__code__, _run_file.__code__)

    def excepthook(kind: type[BaseException], error: BaseException, traceback: Optional[TracebackType]) -> Any:
        frame, script = traceback, traceback
        while frame is not None:
            if frame.tb_frame.f_code in own:
                script = frame.tb_next
            frame = frame.tb_next
        former(kind, error.with_traceback(script), script)

    sys.excepthook = excepthook


def main() -> None:
    parsed = _parse(sys.argv[1:])
    options = _options(parsed)
    written = Report(parsed.report)

    def begin() -> None:
        from ._enable import enable_process

        enable_process(**options).__enter__()  # until the process ends
        written.has_begun = True

    if "torch" in sys.modules:  # sitecustomize has imported it
        begin()
    else:
        sys.meta_path.insert(0, _AfterTorch(begin))
    atexit.register(written.write)  # after the script's own, and after tracebacks
    os.register_at_fork(after_in_child=written.forked)
    _children.follow(options, parsed.report, written.write)
    _hide_runner()
    _run(parsed.program, parsed.is_module)
