"""Flattens containers like PyTorch, except that a ``torch.Size`` is a leaf: PyTorch's own functions convert it to a tuple."""

from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten


def is_size(value: Any) -> bool:
    return type(value) is torch.Size


def flatten(value: Any) -> tuple[list[Any], TreeSpec]:
    return tree_flatten(value, is_leaf=is_size)
