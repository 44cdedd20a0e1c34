"""Programs of compiled functions, for inspection."""

import ast
import os
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, Union

import torch

from ._library import call


class Node(NamedTuple):
    """One step of a program."""

    op: str
    """Of ATen, such as ``aten::mul.Tensor``; ``"placeholder"``: a tensor that the program takes; ``"output"``: its end."""
    args: tuple[Any, ...]
    """In the order of the op's schema: numbers, lists and such, and names of values as ``"%name"``; other constants as texts."""
    names: tuple[str, ...]
    """The names of the results."""
    dtypes: tuple[Optional[torch.dtype], ...]
    shapes: tuple[tuple[Union[int, str], ...], ...]
    """A size that may change is a text, such as ``"s0"``."""

    @property
    def name(self) -> str:
        return self.names[0] if self.names else ""

    @property
    def dtype(self) -> Optional[torch.dtype]:
        return self.dtypes[0] if self.dtypes else None

    @property
    def shape(self) -> Optional[tuple[Union[int, str], ...]]:
        return self.shapes[0] if self.shapes else None


_DTYPES = {
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Short": torch.int16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Half": torch.half,
    "Float": torch.float,
    "Double": torch.double,
    "ComplexHalf": torch.complex32,
    "ComplexFloat": torch.complex64,
    "ComplexDouble": torch.complex128,
    "Bool": torch.bool,
    "BFloat16": torch.bfloat16,
}


def _value(text: str) -> Any:
    if text.startswith("["):
        items = text[1:-1].split(", ") if len(text) > 2 else []
        return [_value(item) for item in items]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


class Program:
    """A program over tensors: the recorded joint, forward or backward of a function."""

    def __init__(self, number: int) -> None:
        self._number = number
        weakref.finalize(self, call, "graph_forget", number).atexit = False

    @property
    def code(self) -> str:
        """The program as text, in the format of PyTorch's logs."""
        return str(call("graph_text", self._number))

    @property
    def dot(self) -> str:
        """The same as a picture, for Graphviz."""
        return str(call("graph_dot", self._number))

    @property
    def nodes(self) -> list[Node]:
        """Its steps, as data."""
        return [
            Node(
                op,
                tuple(map(_value, args)),
                tuple(names),
                tuple(_DTYPES.get(dtype) for dtype in dtypes),
                tuple(tuple(_value(shape)) for shape in shapes),
            )
            for op, args, names, dtypes, shapes in zip(*call("graph_nodes", self._number))
        ]

    def run(self, inputs: Sequence[Optional[torch.Tensor]]) -> list[Optional[torch.Tensor]]:
        """Runs it through ATen, op by op, with the recorded sizes."""
        return list(call("graph_run", self._number, list(inputs)))

    def draw(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes an SVG, using Graphviz' ``dot``."""
        call("graph_svg", self._number, os.fspath(path))

    def __str__(self) -> str:
        return self.code


class Programs(NamedTuple):
    """The programs of one kind of call."""

    joint: Program
    """Forward and backward, before the partition."""
    forward: Program
    backward: Optional[Program]
    """``None`` if nothing needs a gradient."""
    explanation: str
    """What is saved for the backward, and why."""


def programs_of(function: int) -> list[Programs]:
    numbers, explanations = call("aot_programs", function)
    graphs = [Program(number) if number else None for number in numbers]
    return [Programs(*graphs[3 * i : 3 * i + 3], text) for i, text in enumerate(explanations)]  # type: ignore[arg-type]
