"""Compilers for the programs of :func:`hindcast.aot_function`."""

from collections.abc import Sequence
from typing import Any, Optional

from ._programs import Program

fused = "fused"
"""The default: kernels for the CPU, compiled in the background; the rest runs through ATen."""

eager = "eager"
"""ATen, op by op, to PyTorch's bits."""

fused_through_aten = "fused_through_aten"
"""Plans of the first, bits of the second: distinguishes a wrong kernel from a wrong plan."""


def print(program: Program, examples: Sequence[Any]) -> None:  # noqa: A001  its name in C++
    """Writes each program to stdout, then leaves it to ATen. Like any callable, an example of a compiler.

    A compiler gets the program and tensors like those of later calls. It returns a callable from a list of
    tensors to a list of tensors, with ``None`` where there is none, or ``None``: ATen runs the program then.
    """
    import builtins

    builtins.print(program.code)


def nop(program: Program, examples: Sequence[Any]) -> Optional[Any]:
    """Runs the program unchanged, op by op, with the recorded sizes."""
    return program.run
