"""Flattens containers like PyTorch, except that a ``torch.Size`` is a leaf: PyTorch's own functions convert it to a tuple."""

from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten


SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBERS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def is_size(value: Any) -> bool:
    return type(value) is torch.Size


def number_of(value: Any) -> Any:
    """The number that a symbol stands for, or a size of numbers. The trace then holds for this number alone."""
    if is_size(value):
        return torch.Size(map(int, value)) if any(type(size) is torch.SymInt for size in value) else value
    return _NUMBERS[type(value)](value)


def flatten(value: Any) -> tuple[list[Any], TreeSpec]:
    return tree_flatten(value, is_leaf=is_size)
