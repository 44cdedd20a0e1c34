"""Gives symbols for sizes to the code of running functions, where that goes unnoticed (`_size_flow`), and numbers to all other code."""

import abc
import contextlib
import dis
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch.fx.experimental import sym_node
from torch.utils._device import DeviceContext

from . import _bytecode, _size_calls, _size_flow, _size_names, _size_values
from ._bytecode import call_at, can_be_followed, instructions_of, place_of
from ._size_flow import INDEXING, READS, VIEWS, Flow
from ._size_names import REVIEWED_FUNCTIONS, REVIEWED_METHODS, Frame
from ._size_values import MOST_ITEMS, Call, Noticed, Read, Value, has_symbol, without_paths

_MOST_FOUND, _MOST_OF_ATTRIBUTES, _MOST_RETURNS = 4096, 8, 8
_CALLS_OF_MODULES = frozenset((torch.nn.Module._wrapped_call_impl.__code__, torch.nn.Module._call_impl.__code__))
_PACKAGE = os.path.dirname(__file__) + os.sep


def _flow_before(code: types.CodeType, frame: Frame) -> Flow:
    """The flow from the start of the code: the same for all reads in it."""
    known = _before.setdefault((code, frame.kept_variables()), [])
    for asked, flow in known:
        if all(frame.look(path) == value for path, value in asked.items()):
            frame.asked.update(asked)
            return flow
    frame.asked = {}
    flow = Flow(code, 0, (), frame.kept_variables(), frame.resolve, None)
    flow.run()
    known[:] = [*known[-_MOST_OF_ATTRIBUTES + 1 :], (dict(frame.asked), flow)]
    return flow


class _Outcome(NamedTuple):
    """Of a flow in which symbols go unnoticed."""

    returned: Value
    calls: frozenset[Call]


def _follow(code: types.CodeType, place: int, read: Read, frame: Frame) -> Optional[_Outcome]:
    try:
        before = _flow_before(code, frame)
        now = frame.all_variables()
        flow = Flow(code, place, before.stack_at(place, now, frame.resolve), now, frame.resolve, read)
        flow.run()
    except (Noticed, IndexError, KeyError):
        return None
    return _Outcome(without_paths(flow.returned), frozenset(flow.calls))


# Results, with the attributes and globals that they depend on.
_Asked = dict[tuple[str, ...], Value]
_found: dict[Any, list[tuple[_Asked, Optional[_Outcome]]]] = {}
_before: dict[Any, list[tuple[_Asked, Flow]]] = {}


def _outcome_of(running: types.FrameType, place: int, read: Read) -> Optional[_Outcome]:
    if not can_be_followed(running.f_code):
        return None
    frame = Frame(running)
    try:
        return _known_outcome(running.f_code, place, read, frame)
    finally:
        frame.let_go()


def _known_outcome(code: types.CodeType, place: int, read: Read, frame: Frame) -> Optional[_Outcome]:
    if len(_found) >= _MOST_FOUND:
        _found.clear()
        _before.clear()
    known = _found.setdefault((code, read, frame.kept_variables(), frame.all_variables()), [])
    for asked, outcome in known:
        if all(frame.look(path) == value for path, value in asked.items()):
            return outcome
    frame.asked = {}
    outcome = _follow(code, place, read, frame)
    known[:] = [*known[-_MOST_OF_ATTRIBUTES + 1 :], (dict(frame.asked), outcome)]
    return outcome


def _goes_unnoticed(frame: types.FrameType, place: int, read: Read) -> bool:
    calls: set[Call] = set()
    for _ in range(_MOST_RETURNS):
        outcome = _outcome_of(frame, place, read)
        if outcome is None:
            return False
        calls |= outcome.calls
        if not has_symbol(outcome.returned):
            _approve(calls)
            return True
        caller = _caller_of(frame)
        at = None if caller is None else call_at(caller.f_code, caller.f_lasti)
        if caller is None or at is None or caller.f_code.co_filename.startswith(_PACKAGE):
            return False
        read = Read(instructions_of(caller.f_code)[at].offset, (), frame.f_code, outcome.returned)
        frame, place = caller, at
    return False


# Calls with symbols whose functions were followed, with the parameters that get them.
_approved: dict[tuple[types.CodeType, int, types.CodeType], frozenset[str]] = {}


def _approve(calls: set[Call]) -> None:
    if len(_approved) >= _MOST_FOUND:
        _approved.clear()
    for call in calls:
        _approved[call[:3]] = _approved.get(call[:3], frozenset()) | call.parameters


def _is_approved(frame: types.FrameType, parameters: frozenset[str]) -> bool:
    """Whether symbols go unnoticed in the function that starts."""
    caller = _caller_of(frame)
    at = None if caller is None else call_at(caller.f_code, caller.f_lasti)
    if caller is None or at is None:
        return False
    call = caller.f_code, instructions_of(caller.f_code)[at].offset, frame.f_code
    return parameters <= _approved.get(call, frozenset())


def _caller_of(frame: types.FrameType) -> Optional[types.FrameType]:
    """For forward(): who called its module."""
    caller = frame.f_back
    while caller is not None and caller.f_code in _CALLS_OF_MODULES:
        caller = caller.f_back
    return caller


def _is_call(instruction: dis.Instruction) -> bool:
    return instruction.opname in ("CALL", "CALL_KW")


NOWHERE, UNSTEADY, ALL = 0, 1, 2  # capture::TracingTensor::Symbols


def takes_symbols(frame: types.FrameType, is_symbol: Sequence[bool], is_steady: Sequence[bool]) -> tuple[int, bool]:
    """Which symbols go unnoticed at the instruction that `frame` is at, which reads a tensor's sizes. True: its code gets them, not only
    PyTorch's C++. `is_steady`: sizes that have never changed."""
    if sys.version_info < (3, 11):
        return NOWHERE, False
    while frame.f_code is _OF_DEFAULT_DEVICE and frame.f_back is not None:
        frame = frame.f_back
    code = frame.f_code
    instructions = instructions_of(code)
    place = place_of(code, frame.f_lasti)
    if place is None:
        return NOWHERE, False
    if instructions[place].opname in INDEXING or (instructions[place].opname == "LOAD_ATTR" and instructions[place].argval in VIEWS):
        return ALL, False
    if instructions[place].opname == "PRECALL":  # makes some calls by itself
        place += 1
    if instructions[place].argval not in READS and not _is_call(instructions[place]):
        return NOWHERE, False
    if code in _reviewed_codes:
        return ALL, True
    unsteady = [is_one and not never_changed for is_one, never_changed in zip(is_symbol, is_steady)]
    for which, symbols in (ALL, is_symbol), (UNSTEADY, unsteady):
        if any(symbols) and _goes_unnoticed(frame, place, Read(instructions[place].offset, tuple(symbols))):
            return which, True
    return (NOWHERE, False) if any(unsteady) else (UNSTEADY, False)


_OF_DEFAULT_DEVICE = DeviceContext.__torch_function__.__code__  # forwards each call of PyTorch's functions
_OF_TENSORS = torch.split, vars(torch.Tensor)["split"], vars(torch.Tensor)["unflatten"]
_WITH_SYMBOLS = (*REVIEWED_FUNCTIONS, *_OF_TENSORS, abc.ABCMeta.__instancecheck__)
_reviewed_codes = {_OF_DEFAULT_DEVICE, *REVIEWED_METHODS, *(each.__code__ for each in _WITH_SYMBOLS)}


def gets_symbols(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function of this package's that is called with symbols, and must get them."""
    _reviewed_codes.add(function.__code__)
    return function


# All functions in these files get symbols: PyTorch's implement them, and the package's look at the variables of running code.
_ANALYSIS = (each.__file__ for each in (_bytecode, _size_calls, _size_flow, _size_names, _size_values))
_OF_SYMBOLS = frozenset((sym_node.__file__, torch.__file__, __file__, *_ANALYSIS))


def _contains_symbol(value: Any) -> bool:
    kind = type(value)
    if kind is slice:
        return any(map(_contains_symbol, (value.start, value.stop, value.step)))
    if kind in (tuple, list, torch.Size) and len(value) <= MOST_ITEMS:
        return any(map(_contains_symbol, value))
    if kind is dict and len(value) <= MOST_ITEMS:
        return any(map(_contains_symbol, value.values()))
    return kind is torch.SymInt


def _with_numbers(value: Any) -> Any:
    kind = type(value)
    if not _contains_symbol(value):
        return value
    if kind is slice:
        return slice(*map(_with_numbers, (value.start, value.stop, value.step)))
    if kind is dict:
        return {name: _with_numbers(each) for name, each in value.items()}
    return int(value) if kind is torch.SymInt else kind(map(_with_numbers, value))


class NumbersForPython:
    """While alive, Python functions that are called with symbols get numbers: as a profiler it sees each before it runs."""

    def __init__(self) -> None:
        self._is_watching = False

    def watch(self) -> bool:
        """False: another profiler is active."""
        if not self._is_watching and sys.getprofile() is None:
            sys.setprofile(self._enters)
            self._is_watching = True
        return self._is_watching and sys.getprofile() == self._enters

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """For code of ours, which looks at symbols. Besides, Python 3.11 may crash where a profiler collects garbage in a generator."""
        is_watching = self._is_watching and sys.getprofile() == self._enters
        if is_watching:
            sys.setprofile(None)
        try:
            yield
        finally:
            if is_watching:
                sys.setprofile(self._enters)

    def end(self) -> None:
        if self._is_watching and sys.getprofile() == self._enters:
            sys.setprofile(None)
        self._is_watching = False

    @staticmethod
    def _enters(frame: types.FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename in _OF_SYMBOLS or code in _reviewed_codes or code in _CALLS_OF_MODULES:
            return
        if frame.f_back is not None and frame.f_back.f_code.co_filename in _OF_SYMBOLS:  # for example for its logs
            return
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x4) + bool(code.co_flags & 0x8)
        variables = frame.f_locals  # values written here become the function's on return
        changed = {}
        for name in code.co_varnames[:count]:
            value = variables.get(name)
            if _contains_symbol(value):
                changed[name] = value
        if changed and not _is_approved(frame, frozenset(changed)):
            variables.update((name, _with_numbers(value)) for name, value in changed.items())
