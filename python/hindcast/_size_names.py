"""What the names in code are bound to when it reads a size: objects by their paths, and the functions in Python that calls of them run."""

import functools
import math
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from ._bytecode import names_of
from ._size_calls import FUNCTIONALS, REVIEWED
from ._size_values import (  # fmt: skip
    MOST_ITEMS, NOT_A_TENSORS, NOT_OF_INTS, OTHER, TENSOR, TORCH, Constant, Function, Int, Known, List, Object, Value, Variables, least,
)

REVIEWED_FUNCTIONS = [
    vars(torch.nn.functional)[name]
    for name in (*REVIEWED, "_list_with_default", "_is_integer", "_pair", "_single", "_triple")
    if name in vars(torch.nn.functional)
]
REVIEWED_METHODS = frozenset((torch.nn.RNNBase.check_hidden_size.__code__,))
_BUILTINS = (isinstance, len, list, tuple, min, max, sum, math.prod)
_CLASSES = (torch.Tensor, torch.nn.Parameter, str, float, dict, type(None))
_FUNCTIONALS = [vars(torch.nn.functional)[name] for name in FUNCTIONALS if name in vars(torch.nn.functional)]  # alive: known by id
_KNOWN = {id(each): Known(each.__name__) for each in (*REVIEWED_FUNCTIONS, *_FUNCTIONALS, *_BUILTINS)}
_KNOWN |= {id(each): NOT_OF_INTS for each in _CLASSES}


_UPSAMPLES = (Known("interpolate"), Known("upsample"))


@functools.cache
def _has_symbolic_upsampling() -> bool:
    """Asked while a function is traced. False if another library has the dispatch key of `capture/recorder/symbolic_composites.h`."""
    return torch._C._dispatch_has_kernel_for_dispatch_key("aten::upsample_nearest2d.vec", "TESTING_ONLY_GenericMode")


def _is_int(value: Any) -> bool:
    return type(value) in (int, torch.SymInt)


def _is_never_negative(value: torch.SymInt) -> bool:
    """Whether that is known without a guard."""
    node = value.node
    answer = node.ge(node.wrap_int(0)) if type(node) is torch._C._SymNode else None
    return answer is not None and answer.is_constant() and answer.guard_bool(__file__, 0)


def _kind_of(value: Any) -> Value:
    if type(value) is int:
        return Int(False, least(value))
    if type(value) is torch.SymInt:
        # From another read, which has been followed. If it is 0 at other sizes, and divides there, the program is not for them.
        return Int(False, min(int(str(value.node)), 1) if _is_never_negative(value) else None)
    if value is None or type(value) is bool:
        return Constant(value)
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return TENSOR
    if type(value) in (tuple, torch.Size) and len(value) <= MOST_ITEMS and all(map(_is_int, value)):
        return List(tuple(map(_kind_of, value)))
    if value is torch:
        return TORCH
    known = _KNOWN.get(id(value), OTHER)
    return known if known not in _UPSAMPLES or _has_symbolic_upsampling() else OTHER


_NOTHING = object()


class _Method(NamedTuple):
    """A function of a class, found by an object of it."""

    function: types.FunctionType
    of: Any


class _Names:
    """Values by name, of the first mapping that has it."""

    def __init__(self, *mappings: Mapping[str, Any]) -> None:
        self._mappings = mappings

    def get(self, name: str) -> Any:
        return next((each[name] for each in self._mappings if name in each), _NOTHING)


def _attribute_of(value: Any, name: str) -> Any:
    """The attribute as Python finds it, except if that runs code."""
    kind = type(value)
    if kind is types.ModuleType:
        return vars(value).get(name, _NOTHING)
    if kind.__getattribute__ is not object.__getattribute__:
        return _NOTHING
    of_class = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), _NOTHING)
    own = getattr(value, "__dict__", None)
    if type(of_class) is types.FunctionType and not (type(own) is dict and name in own):
        return _Method(of_class, value)
    if type(of_class) is not types.FunctionType and (hasattr(type(of_class), "__get__") or hasattr(type(of_class), "__set__")):
        return _NOTHING
    if type(own) is dict and name in own:
        return own[name]
    if of_class is _NOTHING and isinstance(value, torch.nn.Module) and kind.__getattr__ is torch.nn.Module.__getattr__:
        return value._modules.get(name, _NOTHING)
    return of_class


def _elements_of(value: Any) -> dict[str, Any]:
    """By how they are written, of containers whose subscripts and iterators run no code of a user's."""
    if type(value) in (torch.nn.ModuleList, torch.nn.Sequential):
        value = list(value._modules.values())
    if type(value) is torch.nn.ModuleDict:
        return {f"[{name!r}]": each for name, each in value._modules.items()}
    return {f"[{place}]": each for place, each in enumerate(value)} if type(value) in (list, tuple) else {}


def _part_of(value: Any, name: str) -> list[Any]:
    """An attribute, an element, all elements, the names of a function."""
    function = value.function if type(value) is _Method else value
    if name in ("__globals__", "__closure__") and type(function) is types.FunctionType:
        if name == "__globals__":
            return [_Names(function.__globals__, function.__builtins__)]  # type: ignore[attr-defined]
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        return [_Names({name: cell.cell_contents for name, cell in cells.items() if _is_filled(cell)})]
    if type(value) is _Names:
        return [value.get(name)]
    if name == "[*]":
        return list(_elements_of(value).values()) or [_NOTHING]
    return [_elements_of(value).get(name, _NOTHING) if name.startswith("[") else _attribute_of(value, name)]


def _is_foreign(value: Any, method: str) -> bool:
    """Whether the method is known to be neither a tensor's nor a function in Python, which gets numbers where it is not followed."""
    if value is _NOTHING or isinstance(value, torch.Tensor):
        return False
    if type(value) is types.ModuleType or type(value).__getattribute__ is not object.__getattribute__:
        return type(value) is types.ModuleType and type(vars(value).get(method)) is not types.FunctionType
    return type(_attribute_of(value, method)) not in (_Method, types.FunctionType)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not _NOTHING
    except ValueError:
        return False


def _common(kinds: Iterable[Value]) -> Value:
    """The kind of all."""
    different = set(kinds)
    return different.pop() if len(different) == 1 else OTHER


def _calls_forward(module: torch.nn.Module) -> bool:
    """Whether a call of the module does nothing but call its class's forward()."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    is_plain = type(module).__call__ is torch.nn.Module.__call__ and module._compiled_call_impl is None
    return is_plain and "forward" not in vars(module) and not any(hooks) and not torch.nn.modules.module._has_any_global_hook()


def _function_at(path: tuple[str, ...], value: Any) -> Value:
    """What a call of the value runs, if that is a function in Python."""
    if isinstance(value, torch.nn.Module) and _calls_forward(value):
        path, value = (*path, "forward"), _attribute_of(value, "forward")
    function = value.function if type(value) is _Method else value
    if type(function) is not types.FunctionType:
        return OTHER
    code = function.__code__
    defaults = function.__defaults__ or ()
    by_name = dict(zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults))
    by_name.update(function.__kwdefaults__ or {})
    kinds = tuple((name, _kind_of(default)) for name, default in by_name.items())
    return Function(code, path, type(value) is _Method, kinds, code in REVIEWED_METHODS)


class Frame:
    """Resolves the names of a running function."""

    def __init__(self, frame: types.FrameType) -> None:
        self._names = names_of(frame.f_code)
        self._locals = frame.f_locals
        self._globals = frame.f_globals
        self._builtins = frame.f_builtins
        self.asked: dict[tuple[str, ...], Value] = {}  # since it was last emptied

    def let_go(self) -> None:
        """Until Python 3.12, the frame keeps the mapping, which keeps the values alive. It is left alone if other code has it, too."""
        own_references = 3  # the frame's, this object's, and the argument of getrefcount()
        if sys.version_info < (3, 13) and sys.getrefcount(self._locals) <= own_references:
            self._locals.clear()  # type: ignore[attr-defined]

    def variables(self, names: frozenset[str]) -> Variables:
        bound = sorted(name for name in names if name in self._locals)
        return tuple((name, self._variable(name)) for name in bound)

    def _variable(self, name: str) -> Value:
        kind = _kind_of(self._locals[name])
        return Object((name,)) if kind == OTHER else kind

    def kept_variables(self) -> Variables:
        """Variables that have not changed since the start."""
        arguments = self._names.variables - self._names.stored
        return self.variables(arguments)

    def all_variables(self) -> Variables:
        return self.variables(self._names.variables)

    def look(self, path: tuple[str, ...]) -> Value:
        first, *attributes = path[1:] if path[0] == "" else path
        names = _Names(self._globals, self._builtins) if path[0] == "" else _Names(self._locals)
        if path[0] == "" and first in self._names.attributes:
            return OTHER
        found = [names.get(first)]
        for name in attributes:
            if name == "()":
                return _common(_function_at(path[:-1], value) for value in found)
            if name.endswith("()"):
                return NOT_A_TENSORS if any(_is_foreign(value, name[:-2]) for value in found) else OTHER
            if name in self._names.attributes:
                return OTHER
            found = [each for value in found for each in _part_of(value, name)]
        kind = _common(map(_kind_of, found))
        return kind if isinstance(kind, (Int, Known)) or kind == TORCH else OTHER

    def resolve(self, path: tuple[str, ...]) -> Value:
        if path not in self.asked:
            self.asked[path] = self.look(path)
        return self.asked[path]
