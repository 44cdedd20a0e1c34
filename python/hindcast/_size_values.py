"""What is known of a value that the bytecode of a function computes: sizes that may be symbols, and what may contain them."""

import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Optional, Union

MOST_ITEMS = 256


class Noticed(Exception):
    """A symbol may go where it is noticed."""


class Int(NamedTuple):
    """An int, or a symbol for one."""

    may_be_symbol: bool
    least: Optional[int]  # 0 or 1: a lower bound; None: unknown


class Constant(NamedTuple):
    value: Any


class List(NamedTuple):
    """A list, tuple or torch.Size; `items` None: of ints, of unknown length."""

    items: Optional[tuple[Any, ...]]
    may_have_symbols: bool = True  # if there are no items
    is_mutable: bool = False


class Slice(NamedTuple):
    parts: tuple[Any, ...]


class Named(NamedTuple):
    """An attribute of an unknown object, or a function of torch's."""

    name: str
    is_torchs: bool
    of: Any = None  # the object, if that may be a tensor


class Known(NamedTuple):
    """A function or class known by identity."""

    name: str


class Function(NamedTuple):
    """A function in Python, at a path: for a method, the path of its object and the method's name."""

    code: types.CodeType
    path: tuple[str, ...]
    is_method: bool
    defaults: tuple[tuple[str, Any], ...]  # by parameter
    is_reviewed: bool  # it is correct with symbols, and returns no symbols


class Object(NamedTuple):
    """An object known only by its path: a variable's name, and attributes. An empty name: a global one follows."""

    path: tuple[str, ...]


class Variable(NamedTuple):
    """The value of a variable when the instruction at a place put it on the stack."""

    name: str
    place: int


class Computed(NamedTuple):
    """A tensor, if these variables are."""

    of: frozenset[Variable]


Value = Union[str, Int, Constant, List, Slice, Named, Known, Function, Object, Variable, Computed]
OTHER, TENSOR, TORCH, NULL = "other", "tensor", "torch", "null"
NOT_OF_INTS, NOT_A_TENSORS = Known("class of neither ints nor symbols"), Known("no tensor's method, and none in Python")
TRUTH = "truth"  # the result of a comparison
PERHAPS = "perhaps a symbol"
SIZE = Int(may_be_symbol=True, least=0)
# Sizes that other instructions read of a tensor. If these are symbols, they are followed from there.
ANOTHER, OTHERS = Int(may_be_symbol=False, least=0), List(None, may_have_symbols=False)


def has_symbol(value: Value) -> bool:
    if isinstance(value, Int):
        return value.may_be_symbol
    if isinstance(value, List):
        return value.may_have_symbols if value.items is None else any(map(has_symbol, value.items))
    return any(map(has_symbol, value.parts)) if isinstance(value, Slice) else value in (TRUTH, PERHAPS)


def least(number: int) -> Optional[int]:
    return min(number, 1) if number >= 0 else None


def int_of(value: Value) -> Optional[Int]:
    if isinstance(value, Constant) and type(value.value) is int:
        return Int(False, least(value.value))
    return value if isinstance(value, Int) else None


def items_of(value: Value) -> Optional[tuple[Value, ...]]:
    if isinstance(value, Constant) and type(value.value) is tuple:
        return tuple(map(Constant, value.value))
    return value.items if isinstance(value, List) else None


def joined(a: Value, b: Value) -> Value:
    if a == b and type(a) is type(b) and (not isinstance(a, Constant) or type(a.value) is type(b.value)):  # type: ignore[union-attr]
        return a
    one, other = int_of(a), int_of(b)
    if one and other:
        leasts = one.least, other.least
        return Int(one.may_be_symbol or other.may_be_symbol, None if None in leasts else min(leasts))  # type: ignore[type-var]
    if isinstance(a, Named) and isinstance(b, Named) and a[:2] == b[:2]:
        return a._replace(of=None)
    if isinstance(a, List) and isinstance(b, List) and a.is_mutable == b.is_mutable and a.items is not None and b.items is not None:
        if len(a.items) == len(b.items):
            return a._replace(items=tuple(map(joined, a.items, b.items)))
    return PERHAPS if has_symbol(a) or has_symbol(b) else OTHER


def tensor_of(values: Iterable[Value]) -> Optional[Value]:
    """What an operator of PyTorch's returns for these; one of them must be a tensor. None: what is no tensor may be among them."""
    variables: set[Variable] = set()
    has_tensor = False
    for value in values:
        if isinstance(value, (Computed, Variable)):
            variables.update(value.of if isinstance(value, Computed) else (value,))
        elif value == TENSOR:
            has_tensor = True
        elif not isinstance(value, (Int, Slice)) and not (isinstance(value, Constant) and not isinstance(value.value, tuple)):
            return None
    return Computed(frozenset(variables)) if variables else TENSOR if has_tensor else None


def are_ints(value: Value) -> bool:
    """Whether it is a list of ints and symbols, and nothing else."""
    items = items_of(value)
    return all(map(int_of, items)) if items is not None else isinstance(value, List)


def least_of(value: Value) -> tuple[bool, Optional[int]]:
    """For a list of ints: whether any may be a symbol, and a lower bound of all."""
    items = items_of(value)
    leasts = [0] if items is None else [int_of(each).least for each in items]  # type: ignore[union-attr]
    return has_symbol(value), None if None in leasts else min(leasts, default=None)  # type: ignore[type-var]


def may_be_argument(value: Value) -> bool:
    """Whether it may be an argument of a function of PyTorch's that takes sizes."""
    return value != TRUTH and not isinstance(value, Slice)


Stack = tuple[Value, ...]


class Read(NamedTuple):
    """An instruction that reads sizes, or calls a function that returned some."""

    offset: int
    is_symbol: tuple[bool, ...]  # by dimension
    function: Optional[types.CodeType] = None
    returned: Value = OTHER


NO_READ = Read(-1, ())


class Call(NamedTuple):
    """A call of a function in Python with symbols."""

    caller: types.CodeType
    offset: int
    function: types.CodeType
    parameters: frozenset[str]  # that get them


def without_paths(value: Value) -> Value:
    """The value as another function knows it."""
    if isinstance(value, List) and value.items is not None:
        return value._replace(items=tuple(map(without_paths, value.items)))
    return OTHER if isinstance(value, (Object, Function, Named, Variable, Computed)) else value


Variables = tuple[tuple[str, Value], ...]
Resolve = Callable[[tuple[str, ...]], Value]  # the value at the path of an Object


def nothing_is_known(_: tuple[str, ...]) -> Value:
    return OTHER
