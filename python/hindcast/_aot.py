"""Functions and modules compiled ahead of time: forward and backward are traced together, and run as programs from then on."""

import contextlib
import copy
import functools
import itertools
import operator
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Optional, Union

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from . import partition as partitions
from ._backward import install as install_engine
from ._cpp_warnings import warn_of_kept, warn_of_kept_beside_an_error
from ._facts import Argument, Call, DoesNotPay, Shape, Untraceable, containers_in, is_by_value, modes_key, weakly, write_back
from ._flatten import flatten, is_size
from ._kept_arguments import SetAttribute, mark_as, replace_stand_ins, set_attributes_of_modules
from ._library import call, calls, ops
from ._made_objects import TakenApart, is_new_in_each_call
from ._new_tensor import known_of_stand_ins
from ._programs import Program, Programs, programs_of
from ._random_state import random_states
from ._size_flow import NOWHERE, NumbersForPython, takes_symbols
from ._state import State, States

Compiler = Union[str, Callable[[Program, Sequence[Optional[torch.Tensor]]], Optional[Callable[..., Any]]], None]

_NAMED_COMPILERS = ("fused", "eager", "fused_through_aten")
_MOST_KINDS = 256  # kinds of calls of one function that C++ keeps

# ---- objects that C++ knows by number

_kept: dict[int, Any] = {}
_numbers = itertools.count(1)
_EAGER, _FUNCTIONS = -1, -2  # instead of a number: the function ran; it has to run


def _keep(what: Any) -> int:
    number = next(_numbers)
    _kept[number] = what
    return number


class _Thread(threading.local):
    error: Optional[BaseException] = None  # of a callback, on its way through C++
    call: Optional[Call] = None  # the innermost one
    numbers: Optional[NumbersForPython] = None  # while a function is traced


_thread = _Thread()


def _raised(error: BaseException) -> str:
    _thread.error = error
    try:
        return f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
    except Exception:  # of the program's own __str__
        return type(error).__name__


class _Kind:
    """Everything needed to run the function for one kind of call."""

    def __init__(self, owner: "AotFunction", taken: Call) -> None:
        self._owner = weakref.ref(owner)
        self.shape = taken.shape()
        self._firsts = taken.firsts

    @property
    def owner(self) -> "AotFunction":
        owner = self._owner()
        assert owner is not None  # its __call__ is running
        return owner

    @property
    def function(self) -> Callable[..., Any]:
        return self.owner._function

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, bool]:
        """Runs the function on these tensors. True: it wrote to containers among the arguments, which follow its result."""
        if self._firsts is not None:
            tensors = [tensors[first] for first in self._firsts]
        if self.shape is None:
            return self.function(*tensors), False
        arguments = self.shape.with_tensors(tensors)
        before, _ = flatten(arguments)
        own = containers_in(arguments)
        result = self.function(*arguments[0], **arguments[1])
        after, spec = flatten(arguments)
        if own and type(result) is not torch.Tensor:
            leaves, spec_of_result = tree_flatten(result, is_leaf=lambda value: id(value) in own or is_size(value))
            result = tree_unflatten([own.get(id(leaf), leaf) for leaf in leaves], spec_of_result)
        if spec == self.shape.spec and all(map(operator.is_, before, after)):
            return result, False
        return (result, arguments), True


def _text_of(leaf: Any) -> str:
    return f"{type(leaf).__name__} {leaf!r}" if is_by_value(leaf) or type(leaf) is Argument else f"at {id(leaf)}"


def _run_function(
    number: int, tensors: Sequence[torch.Tensor], keeps_errors: bool
) -> tuple[list[torch.Tensor], int, str, int, Optional[str]]:
    # The error of a trace that C++ has given up: its frames would keep their objects alive, such as guards of a dispatch state.
    _thread.error = None
    try:
        call = _thread.call if _thread.call is not None and _thread.call.kind == number else None
        if call is not None:
            call.was_run = True
            if call.tensors and len(tensors) == len(call.tensors) and all(map(operator.is_, tensors, call.tensors)):
                # No trace: the function gets its caller's arguments, and the caller its result.
                args, kwargs = call.arguments
                call.result = call.owner.run_itself(args, kwargs)
                return [], _EAGER, "", 0, None
        # A reset() on another thread may have dropped the kind since the call began.
        kind = _kept[number] if call is None else _kept.get(number) or _Kind(call.owner, call)
        before = None if call is None else random_states(call.generators())
        if call is not None:
            for stand_in, given in zip(tensors, call.tensors):
                call.stand_ins.append((weakref.ref(stand_in), given))
                mark_as(given, stand_in)
        start = _clock()
        sets: list[SetAttribute] = []
        try:
            owner = kind.owner
            with _numbers_for_python(), known_of_stand_ins(), _notices_gradients():
                result, writes = kind.run(tensors)
        finally:
            if call is not None:
                sets = set_attributes_of_modules(kind.owner.objects_of(call.seen.state), tensors, call.tensors)
        kind.owner.own_ns = _clock() - start
        if call is not None and before != random_states(call.generators()):
            call.draws = True
        if type(result) is torch.Tensor and not sets:
            return [result], 0, "", 0, None
        last = result[-owner.owned_results :] if owner.owned_results and not writes else ()
        owned = sum(isinstance(leaf, torch.Tensor) for leaf in last)
        objects = set() if call is None else set(map(id, call.objects))
        apart = TakenApart(result, lambda leaf: id(leaf) in objects or type(leaf) is Argument)
        if call is not None and any(map(is_new_in_each_call, apart.leaves)):
            known = objects.union(call.seen.state.names)
            if any(is_new_in_each_call(leaf) and id(leaf) not in known for leaf in apart.leaves):
                call.makes_objects = True
        del result, last
        apart.take_tensors(lambda leaf: weakly(leaf) if id(leaf) in objects else leaf)
        shape = Shape(apart.leaves, apart.places, apart.spec, writes, tuple(sets))
        text = "; ".join([apart.text(_text_of), *(one.text() for one in sets)])
        return apart.tensors, _keep(shape), text, owned, None
    except BaseException as error:
        if not keeps_errors:
            raise
        return [], 0, "", 0, _raised(error)


def _run_compiler(number: int, graph: int, examples: Sequence[Optional[torch.Tensor]]) -> tuple[int, Optional[str]]:
    try:
        made = _kept[number](Program(graph), examples)
        if made is None:
            return 0, None
        if not callable(made):
            raise TypeError(f"the compiler returned {made!r}, expected a callable or None")
        return _keep(made), None
    except Exception as error:
        return 0, f"{type(error).__name__}: {error}"


def _run_program(number: int, tensors: Sequence[Optional[torch.Tensor]], keeps_errors: bool) -> tuple[list[Any], Optional[str]]:
    try:
        return list(_kept[number](list(tensors))), None
    except BaseException as error:
        if not keeps_errors:
            raise
        return [], _raised(error)


_NOT_USERS = tuple(os.path.dirname(module.__file__) + os.sep for module in (torch, sys.modules[__package__]) if module.__file__)


def _line() -> str:
    """The position in the innermost traced function; an empty text: none is traced."""
    found = ""
    frame = sys._getframe(1) if _thread.call is not None else None
    while frame is not None and frame.f_code is not _run_function.__code__:
        code = frame.f_code
        if not found and not code.co_filename.startswith(_NOT_USERS):
            found = f"{code.co_filename}:{frame.f_lineno}, in {code.co_name}"
        frame = frame.f_back
    return found if frame is not None else ""


# While functions are traced, torch.Tensor has a special `grad`, which notices assignments and checks for an existing gradient:
# `parameter.grad = None` changes nothing in a call that finds None, and would be lost in the next. So would the effect of `zero_grad()`.
_grad = torch._C.TensorBase.grad  # type: ignore[attr-defined]
_traces = 0
_tracing = threading.Lock()


class _NoticingGrad:
    def __get__(self, tensor: Optional[torch.Tensor], owner: Any = None) -> Any:
        if tensor is None:  # Dynamo, which a traced function may import, reads the attributes of torch.Tensor
            return _grad
        value = _grad.__get__(tensor)
        call = _thread.call
        if call is not None and (value is None or id(tensor) in call.seen.state.names) and tensor.is_leaf and tensor.requires_grad:
            call.clears_gradients = True
        return value

    def __set__(self, tensor: torch.Tensor, value: Optional[torch.Tensor]) -> None:
        _grad.__set__(tensor, value)
        if _thread.call is not None:
            _thread.call.clears_gradients = True

    def __delete__(self, tensor: torch.Tensor) -> None:
        _grad.__delete__(tensor)


_noticing_grad = _NoticingGrad()


def _stop_noticing() -> None:
    if vars(torch.Tensor).get("grad") is _noticing_grad:
        del torch.Tensor.grad


@contextlib.contextmanager
def _notices_gradients() -> Iterator[None]:
    global _traces
    with _tracing:
        _traces += 1
        torch.Tensor.grad = _noticing_grad  # type: ignore[assignment,attr-defined]
    try:
        yield
    finally:
        with _tracing:
            _traces = max(_traces - 1, 0)
            if _traces == 0:
                _stop_noticing()


def _start_anew_in_child() -> None:
    """The lock may be held, and traces counted, by threads that the child does not have."""
    global _traces, _tracing
    _traces, _tracing = 0, threading.Lock()
    _stop_noticing()


os.register_at_fork(after_in_child=_start_anew_in_child)


@contextlib.contextmanager
def _numbers_for_python() -> Iterator[None]:
    outer = _thread.numbers
    numbers = _thread.numbers = outer or NumbersForPython()
    try:
        yield
    finally:
        _thread.numbers = outer
        if outer is None:
            numbers.end()


def _tell_stand_ins_from_fake_tensors() -> None:
    """From 2.15 on, there are FakeTensors in C++, with the dispatch key of stand-ins: ``print(x)`` would show no numbers for either."""
    is_fake = getattr(torch._C, "_is_fake_tensor", None)
    if is_fake is None:
        return

    def is_fake_tensor(tensor: torch.Tensor) -> bool:
        return bool(is_fake(tensor)) and not (_thread.numbers is not None and _is_traced())

    torch._C._is_fake_tensor = is_fake_tensor  # type: ignore[attr-defined]


_tell_stand_ins_from_fake_tensors()


def _takes_symbols(is_symbol: Sequence[bool], is_steady: Sequence[bool]) -> int:
    numbers = _thread.numbers
    if numbers is None:
        return NOWHERE
    which, are_given_to_code = takes_symbols(sys._getframe(1), is_symbol, is_steady)
    return which if not are_given_to_code or numbers.watch() else NOWHERE


def _size_in_place_of(number: torch.Tensor) -> int:
    return int(getattr(number, "_wrapped_number", number))


_kernels = torch.library.Library("hindcast", "FRAGMENT")  # keeps the kernels registered
_kernels.impl("aot_python_function", _run_function, "CPU")
_kernels.impl("aot_python_line", _line, "CPU")
_kernels.impl("aot_python_takes_symbols", _takes_symbols, "CPU")
_kernels.impl("aot_python_size_in_place_of", _size_in_place_of, "CPU")
_kernels.impl("aot_python_compiler", _run_compiler, "CPU")
_kernels.impl("aot_python_program", _run_program, "CPU")

_clock = time.thread_time_ns
_is_traced = ops.train_is_traced.default._op
_is_traced_by_dynamo = torch.compiler.is_dynamo_compiling
_aot_call = ops.aot_call.default._op
_ENABLED, _SUBCLASSES_DISABLED = 0, 1  # at::impl::TorchFunctionDisabledState

# ---- functions


def _check_compiler(name: str, compiler: Compiler) -> tuple[str, int]:
    if compiler is None:
        return "", 0
    if isinstance(compiler, str):
        if compiler not in _NAMED_COMPILERS:
            expected = ", ".join(map(repr, _NAMED_COMPILERS))
            raise ValueError(f"hindcast.aot_function: {name} is {compiler!r}; expected {expected} or a callable")
        return compiler, 0
    if not callable(compiler):
        raise TypeError(f"hindcast.aot_function: {name} is {compiler!r} of type {type(compiler).__name__}; expected a name or a callable")
    return "", _keep(compiler)


def _check_count(name: str, value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"hindcast.aot_function: {name} is {value!r} of type {type(value).__name__}; expected an int")
    if value < least:
        raise ValueError(f"hindcast.aot_function: {name} is {value}; expected at least {least}")
    return value


def _check_argnums(argnums: Union[int, Sequence[int], None]) -> tuple[int, ...]:
    if argnums is None:
        return ()
    return tuple(_check_count("static_argnums", number, 0) for number in ((argnums,) if isinstance(argnums, int) else argnums))


def _module_of(function: Callable[..., Any]) -> Optional[torch.nn.Module]:
    if isinstance(function, torch.nn.Module):
        return function
    owner = getattr(function, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else None


_NOT_KNOWN = object()  # to hindcast._C


def _nothing(*_: Any) -> None:
    pass


_CHANGES = "it changes what it sees besides its arguments, asks for gradients that are not there, or draws numbers of Python's or NumPy's generators"
_Kinds = dict[int, tuple[dict[Any, int], Any]]  # by number: its position among the kinds of a state


def _forget_kinds(function: int, forget_in_c: Callable[[int], None], known: _Kinds, numbers: Iterable[int]) -> None:
    for number in numbers:
        forget_in_c(number)
        if known.pop(number, None) is not None:
            call("aot_forget", function, number)


class AotFunction:
    """The result of :func:`aot_function`: called like the function."""

    __qualname__: str  # the function's, where it has one

    def __init__(
        self,
        function: Callable[..., Any],
        fw_compiler: Compiler,
        bw_compiler: Compiler,
        partition_fn: partitions.Partition,
        static_argnums: Union[int, Sequence[int], None],
        dynamic: str,
        memory_budget: float,
        layouts: str,
        check_every: int,
        fallback: bool,
        fallback_random: bool,
        limit: int,
        async_: bool,
        back_off: bool,
    ) -> None:
        self._options = {name: value for name, value in locals().items() if name not in ("self", "function")}
        if not callable(function):
            raise TypeError(f"hindcast.aot_function: {function!r} of type {type(function).__name__} is not callable")
        if not isinstance(partition_fn, partitions.Partition):
            raise TypeError(f"hindcast.aot_function: partition_fn is {partition_fn!r}; expected one of hindcast.partition")
        if dynamic not in ("automatic", "never", "inferred"):
            raise ValueError(f"hindcast.aot_function: dynamic is {dynamic!r}; expected 'automatic', 'never' or 'inferred'")
        if layouts not in ("measured", "as_given"):
            raise ValueError(f"hindcast.aot_function: layouts is {layouts!r}; expected 'measured' or 'as_given'")
        install_engine()  # tells a trace of gradients that the function takes
        self._function = function
        self._module = _module_of(function)
        self._fixed = _check_argnums(static_argnums)
        self.owned_results = 0  # its result is a tuple, and the caller will write to this many tensors at its end
        self._fallback = bool(fallback)
        self._root: tuple[Any, ...] = (function,)
        self._kinds: _Kinds = {}
        self._left_to_python = 0
        # From C++, which sees what calls gain (include/hindcast/detail/leaving.h): this many coming calls are left to the function; -1: the
        # next is timed.
        self._next = self._granted = 0
        self._is_timed, self.own_ns = False, 0  # the running call, and the function's share of its time
        self._told: set[str] = set()  # why calls were left to Python
        self._number: int = call(
            "aot_make",
            *_check_compiler("fw_compiler", fw_compiler),
            *_check_compiler("bw_compiler", bw_compiler),
            partition_fn.name,
            dynamic,
            float(memory_budget),
            layouts == "measured",
            self._fallback,
            bool(fallback_random),
            _check_count("check_every", check_every, 0),
            _check_count("limit", limit, 1),
            bool(async_),
            bool(back_off),
        )
        dead: deque[int] = deque()
        self._call_in_c: Optional[Callable[..., Any]] = None
        self._remember, forget_in_c, hits = _nothing, _nothing, int
        if calls is not None:
            self._call_in_c, self._remember, forget_in_c, hits = calls.function(self._number, dead)
        self._forget = functools.partial(_forget_kinds, self._number, forget_in_c, self._kinds)
        self._states = States(function, self._forget, dead, hits)
        weakref.finalize(self, call, "aot_drop", self._number).atexit = False
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _is_traced_by_dynamo():
            return self._function(*args, **kwargs)
        left = self._next
        if left != 0:
            if left < 0:
                return self._timed_call(args, kwargs)
            self._next = left - 1
            return self._function(*args, **kwargs)
        if self._call_in_c is not None:
            result = self._call_in_c(self, args, kwargs, _NOT_KNOWN, self._is_timed)
            if result is not _NOT_KNOWN:
                return result
        try:
            modes = modes_key()
            if modes is None:
                return self._call(args, kwargs, None, None)
            state = _ENABLED if torch._C._is_torch_function_enabled() else _SUBCLASSES_DISABLED
            with torch._C.DisableTorchFunction():
                return self._call(args, kwargs, modes, state)
        except Untraceable as why:
            if not self._fallback and not isinstance(why, DoesNotPay) and not torch.compiler.is_compiling():  # as in torch.export
                raise RuntimeError(f"hindcast.aot_function: the function cannot be traced: {why}") from None
            self._tell(why)
        self._left_to_python += 1
        self._are_next(call("aot_ran_eagerly", self._number))
        return self.run_itself(args, kwargs)

    def _are_next(self, calls: int) -> None:
        self._granted += max(calls, 0) - max(self._next, 0)
        self._next = calls

    def _timed_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._are_next(0)
        self.own_ns, self._is_timed = 0, True
        try:
            start = _clock()
            result = self(*args, **kwargs)
            took = _clock() - start
        finally:
            self._is_timed = False
        self._are_next(call("aot_took", self._number, took, self.own_ns))
        return result

    def run_in_its_turn(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs instead of a program, with which it alternates: a timed call."""
        result = self.run_itself(args, kwargs)
        call("aot_time_backward", self._number, [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)])
        return result

    def run_itself(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._is_timed:
            return self._function(*args, **kwargs)
        start = _clock()
        result = self._function(*args, **kwargs)
        self.own_ns = _clock() - start
        return result

    def _tell(self, why: Untraceable) -> None:
        text = str(why)
        if text not in self._told:
            self._told.add(text)
            call("aot_tell", f"a function runs eagerly: {text}", why.of_function)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], modes: Any, torch_functions: Optional[int]) -> Any:
        taken = Call(args, kwargs)
        seen = self._states.of((*self._root, *taken.objects) if taken.objects else self._root)
        key = taken.key if modes is None else (taken.key, modes)
        kinds = seen.state.kinds
        facts = kinds.get(key)
        if facts is None:
            facts = kinds[key] = self._new_kind(taken, seen.state, key)
        elif facts == _EAGER:
            raise Untraceable(_CHANGES, of_function=True)
        taken.owner, taken.kind, taken.seen, taken.whole_key = self, facts, seen, key
        taken.generators = seen.generators
        fixed = taken.tensors_in(self._fixed) if self._fixed else []
        outer, _thread.call = _thread.call, taken
        try:
            outcome = _aot_call(self._number, taken.tensors, facts, fixed, torch_functions, self._is_timed and modes is None)
        except BaseException:
            warn_of_kept_beside_an_error()
            raise
        finally:
            _thread.call = outer
        shape = _kept.get(outcome[1])
        # A function that writes to containers among its arguments has changed them: C would take the next call for this one.
        writes = type(shape) is Shape and shape.writes
        result = self._finish(taken, *outcome)
        if not taken.was_run and not writes and seen.is_known_by_words:
            self._remember(args, kwargs, seen, facts, fixed, taken.objects)
        return result

    def _finish(
        self, taken: Call, tensors: list[torch.Tensor], shape: int, raised: bool, warned: bool, released: list[int], calls_to_come: int
    ) -> Any:
        must_run_again = taken.draws or taken.clears_gradients or taken.makes_objects
        if taken.was_run and (must_run_again or not taken.seen.holds()):
            self._forget((taken.kind,))
            taken.seen.state.kinds[taken.whole_key] = _EAGER
        if taken.was_run:
            replace_stand_ins(self.objects_of(taken.seen.state), taken.stand_ins)
        for number in released:
            _kept.pop(number, None)
        if raised:
            _raise_kept()
        if _thread.error is not None:
            _thread.error = None
        if warned:
            warn_of_kept(stacklevel=5)
        if calls_to_come != 0:
            self._are_next(calls_to_come)
        if shape == 0:
            return tensors[0]
        if shape == _EAGER:
            return taken.result
        args, kwargs = taken.arguments
        if shape == _FUNCTIONS:
            return self.run_in_its_turn(args, kwargs)
        return self._put_together_for_c(shape, tensors, args, kwargs)

    # ---- what hindcast._C calls, of a call that it recognised

    def _begin_for_c(self, args: tuple[Any, ...], kwargs: Optional[dict[str, Any]], facts: int, seen: Any) -> Call:
        """Called before the function runs."""
        taken = Call(args, kwargs or {})
        taken.owner, taken.kind, taken.seen, taken.whole_key = self, facts, seen, taken.key
        taken.generators = seen.generators
        taken.outer, _thread.call = _thread.call, taken
        return taken

    def _finish_for_c(self, taken: Optional[Call], *outcome: Any) -> Any:
        """Called after the function ran, or the call raised."""
        if taken is None:  # a compiler's program raised
            return self._finish(Call((), {}), *outcome)
        _thread.call = taken.outer
        return self._finish(taken, *outcome)

    def _fail_for_c(self, taken: Optional[Call]) -> None:
        if taken is not None:
            _thread.call = taken.outer
        warn_of_kept_beside_an_error()

    def _tell_for_c(self, released: list[int], warned: bool, calls_to_come: int) -> None:
        for number in released:
            _kept.pop(number, None)
        if warned:
            warn_of_kept()
        if calls_to_come != 0:
            self._are_next(calls_to_come)

    def _describe_for_c(self, shape: int) -> Any:
        return _kept[shape].described()

    def _put_together_for_c(self, shape: int, tensors: list[torch.Tensor], args: tuple[Any, ...], kwargs: Optional[dict[str, Any]]) -> Any:
        arguments = args, kwargs or {}
        made = _kept[shape].with_tensors(tensors, arguments)
        if _kept[shape].sets:
            given = Call(args, kwargs or {}).tensors
            for one in _kept[shape].sets:
                one.run(given)
        if not _kept[shape].writes:
            return made
        result, after = made
        write_back(arguments, after)
        return result

    def _new_kind(self, taken: Call, state: State, key: Any) -> int:
        while len(self._kinds) >= _MOST_KINDS:
            oldest, (others, its_key) = list(self._kinds.items())[0]
            others.pop(its_key, None)
            self._forget((oldest,))
        number = _keep(_Kind(self, taken))
        self._kinds[number] = state.kinds, key
        self._name_tensors(self._states.tensors_of(state))
        return number

    def _name_tensors(self, tensors: list[torch.Tensor]) -> None:
        names: dict[int, str] = {}
        if self._module is not None:
            for name, tensor in itertools.chain(self._module.named_parameters(), self._module.named_buffers()):
                names[id(tensor)] = name
        call("aot_name_tensors", self._number, tensors, [names.get(id(tensor), "") for tensor in tensors])

    def objects_of(self, state: State) -> list[Any]:
        """The objects other than tensors that it sees."""
        return self._states.objects_of(state)

    def _aot_sees(self) -> tuple[Any, ...]:
        return (self._function,)

    def see_arguments_alone(self) -> None:
        """Compares only arguments: the caller has checked everything else that the function reads, like Dynamo's guards."""
        self._root = ()

    def stats(self) -> dict[str, int]:
        """Counts: ``calls``; ``hits``, which ran a program; ``traces``; ``eager``, which ran the function eagerly; ``left``, those of them
        that were not checked, since calls like them gained nothing; ``backwards`` that ran a program; ``numbers_differed``, calls in which
        no program fit the value of ``item()``, or of a size that depends on data."""
        names = ("calls", "hits", "traces", "eager", "backwards", "numbers_differed")
        counts = dict(zip(names, call("aot_stats", self._number)))
        counts["left"] = self._granted - max(self._next, 0)
        counts["calls"] += self._left_to_python + counts["left"]
        counts["eager"] += self._left_to_python + counts["left"]
        return counts

    def programs(self) -> list[Programs]:
        """The current programs, one entry per kind of call, the newest first."""
        return programs_of(self._number)

    def reset(self) -> None:
        """Forgets everything compiled."""
        self._states.clear()
        self._are_next(0)
        call("aot_reset", self._number)

    def _is_global(self) -> bool:
        """Whether this is the object found under its own name: then copies and pickles refer to it by name."""
        found: Any = sys.modules.get(getattr(self, "__module__", ""))
        for name in getattr(self, "__qualname__", "").split("."):
            found = getattr(found, name, None)
        return found is self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__qualname__ if self._is_global() else (_compile_again, (AotFunction, self._function, self._options))

    def __copy__(self) -> "AotFunction":
        return self if self._is_global() else AotFunction(self._function, **self._options)

    def __deepcopy__(self, memo: dict[int, Any]) -> "AotFunction":
        return self if self._is_global() else AotFunction(copy.deepcopy(self._function, memo), **self._options)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: the instance is the first argument, compared by identity."""
        return self if instance is None else _Method(self, instance)


class _Method:
    def __init__(self, function: AotFunction, instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    def _aot_sees(self) -> tuple[Any, ...]:
        return self.__func__, self.__self__

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _Method, (self.__func__, self.__self__)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Method":
        return _Method(copy.deepcopy(self.__func__, memo), copy.deepcopy(self.__self__, memo))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)


def _raise_kept() -> None:
    error, _thread.error = _thread.error, None
    assert error is not None
    try:
        raise error
    finally:
        del error  # else it would keep its own frame alive


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: Compiler = None,
    bw_compiler: Compiler = None,
    partition_fn: partitions.Partition = partitions.standard,
    *,
    static_argnums: Union[int, Sequence[int], None] = None,
    dynamic: Literal["automatic", "inferred", "never"] = "automatic",
    memory_budget: float = 1.0,
    layouts: Literal["measured", "as_given"] = "measured",
    check_every: int = 0,
    fallback: bool = True,
    fallback_random: bool = False,
    limit: int = 8,
    async_: bool = True,
    back_off: bool = True,
) -> AotFunction:
    """Compiles a function of tensors, its backward included.

    The first call traces the function by running it: it returns the true results, with their true history. Its first backward
    compiles the programs, and later calls run these; kernels for them are compiled in the background. Arguments and results
    may be nested in tuples, lists, dicts and everything else that ``torch.utils._pytree`` knows.

    Tensors that the function reads from outside are inputs by identity: parameters, buffers and constants. Everything else it sees,
    such as numbers in closures and globals, modules and their attributes, is compared in each call. docs/python.md lists the exceptions;
    `check_every` detects them.

    Example::

        >>> f = hindcast.aot_function(lambda a, b: (a + b).cos().cos())
        >>> f(x, y).sum().backward()

    Args:
        fn: the function, or a module, or a method of one.
        fw_compiler: one of :mod:`hindcast.compilers`, or a callable: ``compiler(program, examples)`` gets a program and tensors like
            those of later calls, and returns a callable from a list of tensors to a list of tensors.
        bw_compiler: the same for backwards.
        partition_fn: ``hindcast.partition.standard`` or ``hindcast.partition.min_cut``: what is saved for the backward.
        static_argnums: arguments by position whose sizes never become dynamic. Numbers never do.
        dynamic: ``"automatic"``; ``"inferred"``: no branch of the function depends on a size, so that properties common to two sizes hold
            for sizes between them; or ``"never"``: programs for every combination of sizes.
        memory_budget: for ``min_cut``: 1 recomputes what is nearly free to recompute; 0, everything that can be recomputed.
        layouts: of convolutions: ``"measured"``, channels-last if that was measured to be faster on this machine; ``"as_given"``: the
            layout of their operands. Results have the function's layout in any case.
        check_every: n: also run the function itself in every n-th call, and compare; raises if they differ.
        fallback: what cannot be traced falls back to eager, which :meth:`AotFunction.stats` counts; ``False``: it raises.
        fallback_random: random numbers are ATen's bits; ``False``: kernels draw the masks of dropouts themselves.
        limit: programs kept for one structure of the arguments.
        async_: compile kernels on a background thread; ``False``: before the call returns.
        back_off: calls that gain nothing run the function, after a single check: many calls in a row that run it eagerly, or whose
            programs were slower than the function in the same process. Tried again after 255 calls, or 10 ms of them.

    Raises:
        TypeError, ValueError: for a bad option, naming it, what was given and what is expected.
    """
    return AotFunction(
        fn,
        fw_compiler,
        bw_compiler,
        partition_fn,
        static_argnums,
        dynamic,
        memory_budget,
        layouts,
        check_every,
        fallback,
        fallback_random,
        limit,
        async_,
        back_off,
    )


# ---- modules




_OF_THE_ORIGINAL = ("training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_state_dict_hooks",
                    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")  # fmt: skip
# Methods by which a module is saved, loaded, moved and searched: its class may override any of them, and a parent calls some of its
# children's.
_CONVERSIONS = ("_apply", "cuda", "ipu", "xpu", "mtia", "cpu", "type", "float", "double", "half", "bfloat16", "to", "to_empty")
_CALLED_ON_THE_ORIGINAL = (*_CONVERSIONS, "state_dict", "load_state_dict", "_save_to_state_dict", "_load_from_state_dict",
                           "get_extra_state", "set_extra_state", "register_parameter", "register_buffer", "add_module", "register_module",
                           "set_submodule", "get_submodule", "get_parameter", "get_buffer", "apply", "train", "eval", "requires_grad_",
                           "zero_grad", "share_memory", "parameters", "named_parameters", "buffers", "named_buffers", "children",
                           "named_children")  # fmt: skip


def _of_the_original(name: str) -> Any:
    def put(self: "AotModule", value: Any) -> None:
        if "_aot_call" in self.__dict__:  # else nn.Module's __init__ sets one for this object
            setattr(self._aot_original, name, value)

    # Looked up each time: the module may replace its own.
    return property(lambda self: getattr(self._aot_original, name), put)


def _called_on_the_original(name: str) -> Any:
    def method(self: "AotModule", *args: Any, **kwargs: Any) -> Any:
        original = self.__dict__["_aot_original"]
        if name in _CONVERSIONS and torch.__future__.get_swap_module_params_on_conversion():
            self.__dict__["_aot_call"].reset()  # torch does not swap tensors that have weak references
        result = getattr(original, name)(*args, **kwargs)
        return self if result is original else result

    method.__name__ = method.__qualname__ = name
    method.__doc__ = getattr(getattr(torch.nn.Module, name, None), "__doc__", None)
    return method


def _acts_as_the_original(cls: type["AotModule"]) -> type["AotModule"]:
    for name in _OF_THE_ORIGINAL:
        setattr(cls, name, _of_the_original(name))
    for name in _CALLED_ON_THE_ORIGINAL:
        setattr(cls, name, _called_on_the_original(name))
    return cls


@_acts_as_the_original
class AotModule(torch.nn.Module):
    """The result of :func:`aot_module`: the module, with its forward compiled. Parameters, buffers, submodules and all other attributes are
    the module's own. Hooks that are registered here are called around the compiled forward."""

    def __init__(self, module: torch.nn.Module, **options: Any) -> None:
        # Bypasses nn.Module's __setattr__: as a submodule, its name would be in every key of state_dict().
        self.__dict__["_aot_original"] = module
        super().__init__()
        self.__dict__["_aot_call"] = aot_function(module, **options)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["_aot_call"](*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
            return super().__call__(*args, **kwargs)
        return own["_aot_call"](*args, **kwargs)  # global module hooks are called for the module itself

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_aot_original"], name)

    # Python looks these up only in classes.
    def __bool__(self) -> bool:
        return bool(self._aot_original)

    def __iter__(self) -> Any:
        return iter(self._aot_original)

    def __len__(self) -> int:
        return len(self._aot_original)

    def __contains__(self, item: Any) -> bool:
        return item in self._aot_original

    def __getitem__(self, key: Any) -> Any:
        return self._aot_original[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._aot_original[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._aot_original[key]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or name in _OF_THE_ORIGINAL or "_aot_call" not in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self._aot_original, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._aot_original, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _compile_again, (AotModule, self._aot_original, self.__dict__["_aot_call"]._options), self._own_state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)  # nn.Module's adds hooks that it misses here: they are the original's

    def __copy__(self) -> "AotModule":
        return self._copy_of(self._aot_original, self._own_state())

    def __deepcopy__(self, memo: dict[int, Any]) -> "AotModule":
        made = self._copy_of(copy.deepcopy(self._aot_original, memo), {})
        memo[id(self)] = made
        made.__setstate__(copy.deepcopy(self._own_state(), memo))
        return made

    def _copy_of(self, original: torch.nn.Module, own: dict[str, Any]) -> "AotModule":
        made = AotModule(original, **self.__dict__["_aot_call"]._options)
        made.__setstate__(own)
        return made

    def _own_state(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_aot_original", "_aot_call", "_compiled_call_impl")}

    def aot_stats(self) -> dict[str, int]:
        """:meth:`AotFunction.stats` of its forward."""
        return self.__dict__["_aot_call"].stats()  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"aot of {type(self._aot_original).__name__}"


def _compile_again(make: Callable[..., Any], of: Any, options: dict[str, Any]) -> Any:
    return make(of, **options)


def aot_module(module: torch.nn.Module, *args: Any, **options: Any) -> AotModule:
    """Compiles a module, with the arguments of :func:`aot_function` after `module`.

    A new module with the parameters, buffers and submodules of `module`: it trains, saves and loads like it, and
    ``train()`` and ``eval()`` are the module's. Each mode has its own programs; any change in a module is noticed.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"hindcast.aot_module: {module!r} of type {type(module).__name__} is not a torch.nn.Module")
    names = ("fw_compiler", "bw_compiler", "partition_fn")
    return AotModule(module, **dict(zip(names, args)), **options)


def memory_efficient_fusion(
    fn: Union[Callable[..., Any], torch.nn.Module], static_argnums: Union[int, Sequence[int], None] = None
) -> Union[AotFunction, AotModule]:
    """:func:`aot_function`, or :func:`aot_module`, with ``partition.min_cut`` and fused kernels."""
    make = aot_module if isinstance(fn, torch.nn.Module) else aot_function
    return make(fn, "fused", "fused", partitions.min_cut, static_argnums=static_argnums)


# ---- compiled programs


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
