"""Flattens containers like PyTorch, except that a ``torch.Size`` is a leaf: PyTorch's own functions convert it to a tuple."""

from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten


_NUMBERS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
SYMBOLS = tuple(_NUMBERS)


def is_size(value: Any) -> bool:
    return type(value) is torch.Size


def without_symbols(value: Any) -> Any:
    """The value with numbers in place of symbols, also in a size or a slice. The trace then holds for these numbers alone."""
    kind = type(value)
    if kind in _NUMBERS:
        return _NUMBERS[kind](value)
    if kind is torch.Size and any(type(size) in _NUMBERS for size in value):
        return torch.Size(map(int, value))
    if kind is slice and any(type(end) in _NUMBERS for end in (value.start, value.stop, value.step)):
        return slice(*map(without_symbols, (value.start, value.stop, value.step)))
    return value


def flatten(value: Any) -> tuple[list[Any], TreeSpec]:
    return tree_flatten(value, is_leaf=is_size)
