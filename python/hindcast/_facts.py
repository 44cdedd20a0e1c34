"""What a call of a compiled function is besides its tensors: two calls with equal facts may run the same program."""

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ._backward import mode_reason

_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_BY_VALUE = frozenset(
    (bool, int, str, bytes, type(None), type(...), range, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
)


class Untraceable(Exception):
    """Only the function itself is right for this call."""


class Same:
    """Equal to itself alone, and to another of the same object. Keeps the object alive, so that no other gets its id."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.of is self.of

    def __hash__(self) -> int:
        return id(self.of)


def is_by_value(leaf: Any) -> bool:
    return type(leaf) in _BY_VALUE or type(leaf) in (float, complex)


def _slices(leaf: slice) -> Any:
    return slice, key_of(leaf.start), key_of(leaf.stop), key_of(leaf.step)


def module_key(module: torch.nn.Module, keep: list[Any]) -> tuple[Any, ...]:
    """Which modules, parameters and buffers there are, and in which modes. What it names by id goes to `keep`."""
    key: list[Any] = []
    waiting = [module]
    seen = set()
    while waiting:
        state = waiting.pop().__dict__
        if id(state) in seen:
            continue
        seen.add(id(state))
        key.append(id(state))
        key.append(state["training"])
        keep.append(state)
        for tensors in (state["_parameters"], state["_buffers"]):
            for tensor in tensors.values():
                key.append(id(tensor))
                keep.append(tensor)
        for hooks in (state["_forward_hooks"], state["_forward_pre_hooks"], state["_backward_hooks"]):
            key.append(tuple(hooks) if hooks else None)
        waiting.extend(child for child in state["_modules"].values() if child is not None)
    return tuple(key)


def key_of(leaf: Any, keep: Optional[list[Any]] = None) -> Any:
    """Equal for leaves that a function cannot tell apart. 1, 1.0 and True are three, and so are 0.0 and -0.0."""
    kind = type(leaf)
    if kind in _BY_VALUE:
        return kind, leaf
    if kind is float:
        return kind, leaf.hex()
    if kind is complex:
        return kind, leaf.real.hex(), leaf.imag.hex()
    if kind is slice:
        return _slices(leaf)
    if isinstance(leaf, enum.Enum):
        return Same(leaf)
    if isinstance(leaf, torch.nn.Module):
        kept: list[Any] = [] if keep is None else keep
        return Same(leaf), module_key(leaf, kept)
    if isinstance(leaf, torch.Tensor):
        raise Untraceable("an argument is a tensor subclass")
    if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)) or kind.__module__.partition(".")[0] == "numpy":
        raise Untraceable(f"an argument is a {kind.__module__}.{kind.__name__}")
    return Same(leaf)


class Call(NamedTuple):
    """A call's arguments, taken apart."""

    tensors: list[torch.Tensor]
    key: Any
    shape: Optional[tuple[list[Any], list[int], TreeSpec]]
    """The leaves without the tensors, where the tensors were, and the tree; None: the arguments are tensors, by position."""
    keep: list[Any]


def take_apart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Raises Untraceable."""
    if not kwargs and all(type(arg) in _PLAIN for arg in args):
        return Call(list(args), len(args), None, [])
    leaves, spec = tree_flatten((args, kwargs))
    keep: list[Any] = []
    tensors, places, keys = [], [], []
    for place, leaf in enumerate(leaves):
        if type(leaf) in _PLAIN:
            tensors.append(leaf)
            places.append(place)
            leaves[place] = None
        else:
            keys.append(key_of(leaf, keep))
    return Call(tensors, (spec, tuple(places), tuple(keys)), (leaves, places, spec), keep)


def tensors_in(call: Call, argnums: Sequence[int]) -> list[int]:
    """Numbers of the tensors in these arguments by position."""
    if call.shape is None:
        return [number for number in argnums if number < len(call.tensors)]
    _, places, spec = call.shape
    found: list[int] = []
    first = 0
    for number, arg in enumerate(spec.children()[0].children()):
        if number in argnums:
            found += [i for i, place in enumerate(places) if first <= place < first + arg.num_leaves]
        first += arg.num_leaves
    return found


def put_together(shape: tuple[list[Any], list[int], TreeSpec], tensors: Sequence[torch.Tensor]) -> Any:
    leaves, places, spec = shape
    leaves = list(leaves)
    for place, tensor in zip(places, tensors):
        leaves[place] = tensor
    return tree_unflatten(leaves, spec)


def modes_key() -> Any:
    """Of this thread. Raises Untraceable."""
    if mode_reason() is not None:
        raise Untraceable("the thread is in a dispatch mode, a transform of torch.func, or a trace")
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise Untraceable("hooks of saved tensors are on")
    if not torch._C._is_torch_function_mode_enabled():
        return None
    modes = _get_current_function_mode_stack()
    if not all(type(mode) is DeviceContext for mode in modes):
        raise Untraceable("the thread is in a mode of torch functions")
    return tuple(mode.device for mode in modes)
