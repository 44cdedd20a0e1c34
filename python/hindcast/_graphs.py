"""Shows the programs of compiled functions and modules."""

import os
from typing import Union

from ._aot import AotFunction
from ._aot_module import AotModule
from ._programs import Programs


def _function_of(f: Union[AotFunction, AotModule]) -> AotFunction:
    found = f.__dict__.get("_aot_call") if isinstance(f, AotModule) else f
    if not isinstance(found, AotFunction):
        raise TypeError(f"{f!r} of type {type(f).__name__} is no function or module that hindcast has compiled")
    return found


def get_graphs(f: Union[AotFunction, AotModule]) -> list[Programs]:
    """The programs of a compiled function or module: joint, forward and backward of each kind of call that had a backward,
    the newest first."""
    return _function_of(f).programs()


def print_graph(f: Union[AotFunction, AotModule]) -> None:
    """Prints the forward and backward programs, and what is saved between them and why."""
    for programs in get_graphs(f):
        print(programs.forward.code)
        if programs.backward is not None:
            print(programs.backward.code)
            print(programs.explanation)


def draw_graph(f: Union[AotFunction, AotModule], path: Union[str, os.PathLike[str]]) -> None:
    """Writes the joint program of the newest kind of call as SVG, using Graphviz' ``dot``."""
    programs = get_graphs(f)
    if not programs:
        raise RuntimeError("hindcast.draw_graph: there is no program yet: call the function, and backward() of its result")
    programs[0].joint.draw(path)
