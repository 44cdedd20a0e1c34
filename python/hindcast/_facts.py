"""The facts of a call of a compiled function besides its tensors: two calls with equal facts may run the same program."""

import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._pytree import SUPPORTED_NODES, TreeSpec, tree_map, tree_unflatten

from ._backward import mode_reason
from ._flatten import flatten
from ._library import calls
from ._made_objects import Copied, MadeObject

if TYPE_CHECKING:
    from ._kept_arguments import SetAttribute

PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_BY_VALUE = frozenset(
    (bool, int, float, complex, str, bytes, type(None), type(...), range)
    + (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
)
_TENSOR = "a tensor"
_MOST_NESTED = 100
_top_saved_tensors_hooks = torch._C._autograd._top_saved_tensors_default_hooks
_is_function_mode_enabled = torch._C._is_torch_function_mode_enabled


class Untraceable(Exception):
    """Only the function itself is correct for this call. `of_function`: because of the function, which users should know."""

    def __init__(self, why: str, of_function: bool = False) -> None:
        super().__init__(why)
        self.of_function = of_function


class DoesNotPay(Untraceable):
    """A call like this one could be traced, but would not recur."""


if calls is not None:
    calls.know_values(_BY_VALUE - {range})


def is_by_value(leaf: Any) -> bool:
    return type(leaf) in _BY_VALUE


def key_of(leaf: Any) -> Any:
    """The key of a value of is_by_value(). Equal for leaves that a function cannot distinguish: 1, 1.0 and True are distinct, and so are
    0.0 and -0.0."""
    kind = type(leaf)
    if kind is float:
        return kind, leaf.hex()
    if kind is complex:
        return kind, leaf.real.hex(), leaf.imag.hex()
    if kind is range:  # equal ranges may end elsewhere
        return kind, leaf.start, leaf.stop, leaf.step
    return kind, leaf


class Call:
    """A call's arguments, flattened."""

    __slots__ = ("arguments", "arguments_after_error", "began", "classes", "clears_gradients", "containers", "depth", "draws", "firsts", "generators", "imports", "key", "kind", "makes_objects", "objects", "outer", "owner", "result", "seen", "stand_ins", "tensors", "was_run", "whole_key")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises Untraceable."""
        self.arguments = args, kwargs
        self.began = 0  # when the search for its state began, if that is a new one
        self.kind = 0  # by number, once it is known
        self.generators: Callable[[], list[Any]] = list  # random generators that the function sees
        self.seen: Any = None  # of hindcast._state: the state found
        self.whole_key: Any = None  # including the thread's modes
        self.outer: Any = None  # the enclosing call
        self.owner: Any = None  # the AotFunction being called
        self.draws = False  # whether it drew random numbers while it was traced
        self.clears_gradients = False
        self.classes: list[tuple[int, type]] = []  # those of result tensors that are of a subclass, by number
        self.makes_objects = False  # whether the result has objects that each call must make itself
        self.imports = False  # whether modules were imported while the function ran
        self.was_run = False  # whether the function ran in this call, traced or eagerly
        self.result: Any = None  # the result of an eager call
        self.arguments_after_error: Any = None  # the function's copies of them, to whose lists and dicts it may have written
        self.stand_ins: list[tuple[weakref.ref[torch.Tensor], torch.Tensor]] = []  # passed to the function, each with its tensor
        self.tensors: list[torch.Tensor] = []
        self.objects: list[Any] = []  # compared by identity and by their observable contents
        self.containers: set[int] = set()  # lists and dicts, by id
        self.depth = 0  # how many containers are around an argument
        self.firsts: Optional[tuple[int, ...]] = None  # per tensor, if some occur twice: the first position
        self.key: Any
        for arg in args:
            if type(arg) is not torch.Tensor:
                break
        else:
            if not kwargs:
                self.tensors.extend(args)
                self.key = len(args)
                self._find_shared()
                return
        key: list[Any] = [len(args)]
        for arg in args:
            self._take(arg, key)
        for name, arg in kwargs.items():
            key.append(name)
            self._take(arg, key)
        self.key = tuple(key)
        self._find_shared()

    def write_back(self) -> None:
        """Updates lists and dicts among the arguments with what the function wrote to its copies before it raised."""
        after, self.arguments_after_error = self.arguments_after_error, None
        if after is not None:
            given = {id(stand_in()): tensor for stand_in, tensor in self.stand_ins if stand_in() is not None}
            write_back(self.arguments, tree_map(lambda leaf: given.get(id(leaf), leaf), after))

    def _find_shared(self) -> None:
        """``f(x, x)`` sees one tensor, as in ``query is key``, and a write to it at both places."""
        firsts: dict[int, int] = {}
        for place, tensor in enumerate(self.tensors):
            firsts.setdefault(id(tensor), place)
        if len(firsts) != len(self.tensors):
            self.firsts = tuple(firsts[id(tensor)] for tensor in self.tensors)
            self.key = self.key, self.firsts

    def _take(self, value: Any, key: list[Any]) -> None:
        kind = type(value)
        if kind in PLAIN:
            self.tensors.append(value)
            key.append(_TENSOR if kind is torch.Tensor else kind)  # a function may ask for isinstance(x, Parameter)
        elif kind is tuple or kind is list:
            if kind is list:
                self._take_container(value)
            key.append((kind, len(value)))
            self._go_deeper()
            for each in value:
                self._take(each, key)
            self.depth -= 1
        elif kind is dict:
            self._take_container(value)
            key.append((kind, len(value)))
            self._go_deeper()
            for name, each in value.items():
                key.append(name if type(name) is str or not is_by_value(name) else key_of(name))
                self._take(each, key)
            self.depth -= 1
        elif is_by_value(value):
            key.append(key_of(value))
        elif isinstance(value, deque):  # what the function appends would be lost
            raise Untraceable("an argument is a deque")
        elif kind in SUPPORTED_NODES or isinstance(value, tuple):
            leaves, spec = flatten(value)
            if len(leaves) == 1 and leaves[0] is value:
                self._object(value, key)
            else:
                key.append(spec)
                for each in leaves:
                    self._take(each, key)
        else:
            self._object(value, key)

    def _go_deeper(self) -> None:
        self.depth += 1
        if self.depth > _MOST_NESTED:  # pytree and Python's stack would end
            raise Untraceable("its arguments are nested too deeply")

    def _take_container(self, value: Any) -> None:
        if id(value) in self.containers:
            raise Untraceable("a list or dict is at two places among the arguments")
        self.containers.add(id(value))

    def _object(self, value: Any, key: list[Any]) -> None:
        kind = type(value)
        if kind is slice:
            key.append(kind)
            for each in (value.start, value.stop, value.step):
                if isinstance(each, torch.Tensor):
                    raise Untraceable("an argument is a slice with tensors")
                self._take(each, key)
            return
        if isinstance(value, torch.Tensor):
            raise Untraceable("an argument is a tensor subclass")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) or kind.__module__.partition(".")[0] == "numpy":
            raise Untraceable(f"an argument is a {kind.__module__}.{kind.__name__}")
        key.append(id(value))
        self.objects.append(value)

    def shape(self) -> Optional["Shape"]:
        """The arguments without the tensors; None: they are tensors, by position."""
        if type(self.key) is int:
            return None
        leaves, spec = flatten(self.arguments)
        places = [place for place, leaf in enumerate(leaves) if type(leaf) in PLAIN]
        return Shape([weakly(leaf) if type(leaf) not in PLAIN else None for leaf in leaves], places, spec)

    def tensors_in(self, argnums: Sequence[int]) -> list[int]:
        """Indices of the tensors in these positional arguments."""
        found: list[int] = []
        first = 0
        for number, arg in enumerate(self.arguments[0]):
            count = sum(type(leaf) in PLAIN for leaf in flatten(arg)[0])
            if number in argnums:
                found += range(first, first + count)
            first += count
        return found


class _Weak(weakref.ref[Any]):
    """An object that belongs to the caller."""


class Argument:
    """A dict, list or tuple among the arguments, in a result."""

    def __init__(self, path: tuple[Any, ...]) -> None:
        self._path = path

    def of(self, arguments: Any) -> Any:
        for step in self._path:
            arguments = arguments[step]
        return arguments

    def __repr__(self) -> str:
        return f"argument {self._path}"


_DICTS = (dict, OrderedDict, defaultdict)  # those that are nodes of a pytree


def _containers_in(arguments: Any, path: tuple[Any, ...], found: dict[int, Argument]) -> dict[int, Argument]:
    kind = type(arguments)
    is_dict, is_tuple = kind in _DICTS, issubclass(kind, tuple)
    if is_dict or kind is list or is_tuple:
        if arguments or not is_tuple:  # all empty tuples are one object
            found[id(arguments)] = Argument(path)
        for step, each in arguments.items() if is_dict else enumerate(arguments):
            _containers_in(each, (*path, step), found)
    return found


def containers_in(arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> dict[int, Argument]:
    """The dicts, lists and tuples among the arguments, including nested ones, by id."""
    args, kwargs = arguments
    found: dict[int, Argument] = {}
    for number, arg in enumerate(args):
        _containers_in(arg, (0, number), found)
    for name, arg in kwargs.items():
        _containers_in(arg, (1, name), found)
    return found


def weakly(leaf: Any) -> Any:
    if is_by_value(leaf):
        return leaf
    try:
        return _Weak(leaf)
    except TypeError:
        return leaf


def _found(leaf: Any, arguments: Any) -> Any:
    if type(leaf) is Argument:
        return leaf.of(arguments)
    if type(leaf) is Copied:
        return leaf.of_call()
    if type(leaf) is not _Weak:
        return leaf
    found = leaf()
    if found is None:
        raise RuntimeError("hindcast: the function has to run once more, and an object that it was called with is gone")
    return found


class _NotDescribed(Exception):
    pass


class Shape(NamedTuple):
    """Arguments or results without tensors, which can be combined with others."""

    leaves: list[Any]
    places: list[int]
    spec: TreeSpec
    writes: bool = False  # the function wrote to its arguments: they follow its result
    sets: tuple["SetAttribute", ...] = ()  # attributes that each call sets

    def with_tensors(self, tensors: Sequence[torch.Tensor], arguments: Any = None) -> Any:
        spec = self.spec
        # Tensors without nesting need no recursion.
        if spec.type is tuple and spec.num_nodes == 1 + len(self.places) == 1 + len(self.leaves):
            return tuple(tensors)
        made: dict[int, Any] = {}
        leaves = [
            leaf.made_of(tensors, lambda other: _found(other, arguments), made) if type(leaf) is MadeObject else _found(leaf, arguments)
            for leaf in self.leaves
        ]
        for place, tensor in zip(self.places, tensors):
            leaves[place] = tensor
        return tree_unflatten(leaves, spec)


    def described(self) -> Any:
        """For hindcast._C (python/csrc/result_template.h). False: it contains more than tuples, lists and dicts of tensors and of values
        compared by value."""
        if self.writes or self.sets:
            return False
        tensors, leaves = frozenset(self.places), enumerate(self.leaves)

        def of(spec: TreeSpec) -> Any:
            if spec.is_leaf():
                place, leaf = next(leaves)
                if place in tensors:
                    return None
                if is_by_value(leaf):
                    return "value", leaf
                raise _NotDescribed
            children = spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs
            parts = [of(child) for child in children]
            if spec.type in (tuple, list):
                return spec.type.__name__, parts
            if spec.type is dict:
                return "dict", parts, list(spec.context)
            raise _NotDescribed

        try:
            return of(self.spec)
        except _NotDescribed:
            return False


def write_back(arguments: Any, after: Any) -> None:
    """Updates the containers among a call's arguments from the function's own copies."""

    def kept(old: Any, new: Any) -> Any:
        if not isinstance(new, (dict, list, tuple)) or type(new) is not type(old) or (isinstance(new, tuple) and len(new) != len(old)):
            return new
        write_back(old, new)
        return old

    if isinstance(arguments, dict):
        now = {name: kept(arguments.get(name), new) for name, new in after.items()}
        if list(arguments) != list(now):  # other names, or another order of them
            arguments.clear()
        arguments.update(now)
    elif isinstance(arguments, list):
        arguments[:] = [kept(*pair) for pair in zip(arguments, after)] + after[len(arguments) :]
    else:
        for pair in zip(arguments, after):
            kept(*pair)


def modes_key() -> Any:
    """The facts of this thread. Raises Untraceable."""
    if mode_reason() is not None:
        raise Untraceable("the thread is in a dispatch mode, a transform of torch.func, or a trace")
    if _top_saved_tensors_hooks(True) is not None:
        raise Untraceable("hooks of saved tensors are on")
    if not _is_function_mode_enabled():
        return None
    modes = _get_current_function_mode_stack()
    if not all(type(mode) is DeviceContext for mode in modes):
        raise Untraceable("the thread is in a mode of torch functions")
    return tuple(mode.device for mode in modes)
