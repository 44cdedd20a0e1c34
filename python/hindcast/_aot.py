"""Functions compiled ahead of time: forward and backward are traced together, and run as programs from then on."""

import copy
import functools
import itertools
import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Optional, Union

import torch
from torch.utils._pytree import tree_leaves

from . import partition as partitions
from ._backward import install as install_engine
from ._callbacks import Kind
from ._cpp_warnings import warn_of_kept, warn_of_kept_beside_an_error
from ._facts import Call, DoesNotPay, Shape, Untraceable, modes_key, write_back
from ._kept_arguments import replace_stand_ins
from ._library import call, calls, ops
from ._programs import Program, Programs, programs_of
from ._state import State, States
from ._trace_state import EAGER, FUNCTIONS, keep, kept, raise_kept, thread

Compiler = Union[str, Callable[[Program, Sequence[Optional[torch.Tensor]]], Optional[Callable[..., Any]]], None]

_NAMED_COMPILERS = ("fused", "eager", "fused_through_aten")
_MOST_KINDS = 256  # kinds of calls of one function that C++ keeps

_clock = time.thread_time_ns
_is_traced_by_dynamo = torch.compiler.is_dynamo_compiling
_aot_call = ops.aot_call.default._op
_ENABLED, _SUBCLASSES_DISABLED = 0, 1  # at::impl::TorchFunctionDisabledState


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
    return "", keep(compiler)


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


def _why_it_must_run(call: Call) -> Optional[str]:
    """Why each call with such arguments must run the function; None: a program can repeat what it did in this one."""
    if call.draws:
        return "it draws numbers of Python's or NumPy's generators"
    if call.clears_gradients:
        return "it sets .grad of a tensor, or asks for one that is not there"
    if call.makes_objects:
        return "it returns new objects, or tensors of a subclass"
    if not call.seen.holds():
        return "it changes what it sees besides its arguments: an attribute, a global variable or a variable of a closure"
    return None


_COSTLY_NS = 1_000_000  # of a search for what the function sees: if it was in vain, it is compared with the function's own time
_MOST_LEFT = 1023  # calls at a time, behind such searches
_has_names: Callable[[torch.Tensor], bool] = getattr(torch.Tensor, "has_names", lambda tensor: False)  # LibTorch 2.13 has none
_Kinds = dict[int, tuple[dict[Any, int], Any]]  # by number: its position among the kinds of a state


def _forget_kinds(function: int, forget_in_c: Callable[[int], None], known: _Kinds, numbers: Iterable[int]) -> None:
    for number in numbers:
        forget_in_c(number)
        if known.pop(number, None) is not None:
            call("aot_forget", function, number)


def compile_again(make: Callable[..., Any], of: Any, options: dict[str, Any]) -> Any:
    return make(of, **options)


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
        self.draws_only_torchs = False  # no random numbers of Python's or NumPy's
        self.owned_results = 0  # its result is a tuple, and the caller will write to this many tensors at its end
        self._fallback = bool(fallback)
        self._root: tuple[Any, ...] = (function,)
        self._kinds: _Kinds = {}
        self._left_to_python = 0
        # From C++, which sees what calls gain (include/hindcast/detail/leaving.h): this many coming calls are left to the function; -1: the
        # next is timed.
        self._next = self._granted = 0
        self._backs_off = bool(back_off) and os.environ.get("HINDCAST_BACK_OFF") != "0"
        self._costly_looks = 0
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
            return self._function(*args, **kwargs) if kwargs else self._function(*args)
        if self._call_in_c is not None:
            result = self._call_in_c(self, args, kwargs, _NOT_KNOWN, self._is_timed)
            if result is not _NOT_KNOWN:
                return result
        began = time.perf_counter_ns()
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
        looked = time.perf_counter_ns() - began
        if looked < _COSTLY_NS or not self._backs_off:
            return self.run_itself(args, kwargs)
        began = time.perf_counter_ns()
        result = self.run_itself(args, kwargs)
        self._leave_some(looked // (time.perf_counter_ns() - began + 1))
        return result

    def _leave_some(self, times: int) -> None:
        """Behind a call in which looking at what the function sees took that many times as long as the function, and was in vain."""
        if times > 0 and self._next == 0:
            self._costly_looks += 1
            self._are_next(min(_MOST_LEFT, times << min(self._costly_looks, 8)))

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
            call("record_eager_function", text)
            call("aot_tell", f"a function runs eagerly: {text}", why.of_function)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], modes: Any, torch_functions: Optional[int]) -> Any:
        taken = Call(args, kwargs)
        seen = self._states.of((*self._root, *taken.objects) if taken.objects else self._root)
        taken.began = self._states.began
        key = taken.key if modes is None else (taken.key, modes)
        kinds = seen.state.kinds
        facts = kinds.get(key)
        if facts is None:
            why = seen.state.eager.get(key)
            if why is not None:
                self._states.found_in_vain()
                raise Untraceable(why, of_function=True)
            facts = kinds[key] = self._new_kind(taken, seen.state, key)
            if seen.is_costly:
                call("aot_lookup_is_costly", self._number)
        taken.owner, taken.kind, taken.seen, taken.whole_key = self, facts, seen, key
        taken.generators = seen.generators
        fixed = taken.tensors_in(self._fixed) if self._fixed else []
        outer, thread.call = thread.call, taken
        try:
            outcome = _aot_call(self._number, taken.tensors, facts, fixed, torch_functions, self._is_timed and modes is None)
        except BaseException:
            warn_of_kept_beside_an_error()
            if not taken.was_run and any(map(_has_names, taken.tensors)):  # operators take no named tensors from Python
                raise Untraceable("an argument is a named tensor") from None
            raise
        finally:
            thread.call = outer
        shape = kept.get(outcome[1])
        # A function that writes to containers among its arguments has changed them: C would take the next call for this one.
        writes = type(shape) is Shape and shape.writes
        result = self._finish(taken, *outcome)
        if not taken.was_run and not writes and seen.is_known_by_words:
            self._remember(args, kwargs, seen, facts, fixed, taken.objects)
        return result

    def _finish(
        self, taken: Call, tensors: list[torch.Tensor], shape: int, raised: bool, warned: bool, released: list[int], calls_to_come: int
    ) -> Any:
        if taken.was_run:
            why = _why_it_must_run(taken)
            if why is not None:
                self._forget((taken.kind,))
                state = taken.seen.state
                state.kinds.pop(taken.whole_key, None)
                if not taken.imports:  # else a module's own code may have drawn, which runs once
                    state.leave(taken.whole_key, why)
            replace_stand_ins(self.objects_of(taken.seen.state), taken.stand_ins)
            if taken.began != 0:
                self._states.spent_ns += time.perf_counter_ns() - taken.began
        for number in released:
            kept.pop(number, None)
        if raised:
            self._are_next(call("aot_threw", self._number))
            taken.write_back()
            raise_kept()
        if thread.error is not None:
            thread.error = None
        if warned:
            warn_of_kept(stacklevel=5)
        if calls_to_come != 0:
            self._are_next(calls_to_come)
        if shape == 0:
            return tensors[0]
        if shape == EAGER:
            if taken.began == 0:
                self._states.found_in_vain()
            return taken.result
        args, kwargs = taken.arguments
        if shape == FUNCTIONS:
            return self.run_in_its_turn(args, kwargs)
        for number, kind in taken.classes:
            tensors[number].__class__ = kind
        return self._put_together_for_c(shape, tensors, args, kwargs)

    # ---- what hindcast._C calls, of a call that it recognised

    def _begin_for_c(self, args: tuple[Any, ...], kwargs: Optional[dict[str, Any]], facts: int, seen: Any) -> Call:
        """Called before the function runs."""
        try:
            taken = Call(args, kwargs or {})
        except Untraceable:
            raise RuntimeError("hindcast: the arguments of a call have changed while it ran") from None
        taken.owner, taken.kind, taken.seen, taken.whole_key = self, facts, seen, taken.key
        taken.generators = seen.generators
        taken.outer, thread.call = thread.call, taken
        return taken

    def _finish_for_c(self, taken: Optional[Call], *outcome: Any) -> Any:
        """Called after the function ran, or the call raised."""
        if taken is None:  # a compiler's program raised
            return self._finish(Call((), {}), *outcome)
        thread.call = taken.outer
        return self._finish(taken, *outcome)

    def _fail_for_c(self, taken: Optional[Call]) -> None:
        if taken is not None:
            thread.call = taken.outer
        warn_of_kept_beside_an_error()

    def _tell_for_c(self, released: list[int], warned: bool, calls_to_come: int) -> None:
        for number in released:
            kept.pop(number, None)
        if warned:
            warn_of_kept()
        if calls_to_come != 0:
            self._are_next(calls_to_come)

    def _describe_for_c(self, shape: int) -> Any:
        return kept[shape].described()

    def _put_together_for_c(self, shape: int, tensors: list[torch.Tensor], args: tuple[Any, ...], kwargs: Optional[dict[str, Any]]) -> Any:
        arguments = args, kwargs or {}
        made = kept[shape].with_tensors(tensors, arguments)
        if kept[shape].sets:
            given = Call(args, kwargs or {}).tensors
            for one in kept[shape].sets:
                one.run(given)
        if not kept[shape].writes:
            return made
        result, after = made
        write_back(arguments, after)
        return result

    def _new_kind(self, taken: Call, state: State, key: Any) -> int:
        while len(self._kinds) >= _MOST_KINDS:
            oldest, (others, its_key) = list(self._kinds.items())[0]
            others.pop(its_key, None)
            self._forget((oldest,))
        number = keep(Kind(self, taken))
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
        return self.__qualname__ if self._is_global() else (compile_again, (AotFunction, self._function, self._options))

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
            programs were slower than the function in the same process. Tried again after 1,023 calls, or 10 ms of them.

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
