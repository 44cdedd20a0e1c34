"""Where a size goes that a function reads: whether a symbol of PyTorch's (``torch.SymInt``) can stand for it, and nobody notices.

A symbol is no int: ``isinstance(n, int)``, ``hash(n)``, f-strings and numpy see the difference. So code gets symbols only where its bytecode
says that they go nowhere but into arithmetic with each other and with constants, comparisons that a branch takes at once, bounds of slices,
and arguments of PyTorch's functions that take symbols. All else of the code gets plain numbers. A function in Python that has the name of
such a one, as ``view`` of a class of the user's, gets numbers too (`NumbersForPython`).
"""

import dis
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Optional, Union

import torch
from torch.fx.experimental import sym_node

_METHODS = frozenset(("broadcast_to", "expand", "narrow", "new_empty", "new_ones", "new_zeros", "repeat", "reshape", "tile", "view"))
_FUNCTIONS = frozenset(("arange", "broadcast_to", "empty", "narrow", "ones", "rand", "randn", "reshape", "tile", "zeros"))
_READS = frozenset(("numel", "shape", "size"))
# By C++ that knows symbols.
_INDEXING = frozenset(("BINARY_SUBSCR", "STORE_SUBSCR", "BINARY_SLICE", "STORE_SLICE"))
# With these, code looks at variables of its own or of its callers by other ways than by their names.
_LOOKS_AT_VARIABLES = frozenset(("_getframe", "breakpoint", "currentframe", "dir", "eval", "exec", "locals", "stack", "vars"))
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_GOES_ON_THERE = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
_MOST_INSTRUCTIONS = 4000


class _Noticed(Exception):
    """A symbol may go where it is noticed."""


class _Int(NamedTuple):
    """An int, or a symbol for one."""

    may_be_symbol: bool
    may_be_negative: bool


class _Constant(NamedTuple):
    value: Any


class _List(NamedTuple):
    """A list, tuple or torch.Size; `items` None: of ints, nobody knows how many."""

    items: Optional[tuple[Any, ...]]
    may_have_symbols: bool = True  # where there are no items


class _Slice(NamedTuple):
    parts: tuple[Any, ...]


class _Named(NamedTuple):
    """An attribute of an unknown object, or a function of torch's."""

    name: str
    is_torchs: bool
    is_of_tensor: bool = False


_Value = Union[str, _Int, _Constant, _List, _Slice, _Named]
_OTHER, _TENSOR, _TORCH, _NULL = "other", "tensor", "torch", "null"
_TRUTH = "truth"  # of a comparison
_PERHAPS = "perhaps a symbol"
_SIZE = _Int(may_be_symbol=True, may_be_negative=False)
# What other instructions read of a tensor. Where these are symbols, they are followed from there.
_ANOTHER, _OTHERS = _Int(may_be_symbol=False, may_be_negative=False), _List(None, may_have_symbols=False)


def _has_symbol(value: _Value) -> bool:
    if isinstance(value, _Int):
        return value.may_be_symbol
    if isinstance(value, _List):
        return value.may_have_symbols if value.items is None else any(map(_has_symbol, value.items))
    return any(map(_has_symbol, value.parts)) if isinstance(value, _Slice) else value in (_TRUTH, _PERHAPS)


def _int_of(value: _Value) -> Optional[_Int]:
    if isinstance(value, _Constant) and type(value.value) is int:
        return _Int(False, value.value < 0)
    return value if isinstance(value, _Int) else None


def _items_of(value: _Value) -> Optional[tuple[_Value, ...]]:
    if isinstance(value, _Constant) and type(value.value) is tuple:
        return tuple(map(_Constant, value.value))
    return value.items if isinstance(value, _List) else None


def _joined(a: _Value, b: _Value) -> _Value:
    if a == b and type(a) is type(b) and (not isinstance(a, _Constant) or type(a.value) is type(b.value)):  # type: ignore[union-attr]
        return a
    one, other = _int_of(a), _int_of(b)
    if one and other:
        return _Int(one.may_be_symbol or other.may_be_symbol, one.may_be_negative or other.may_be_negative)
    if isinstance(a, _Named) and isinstance(b, _Named) and a[:2] == b[:2]:
        return a._replace(is_of_tensor=a.is_of_tensor and b.is_of_tensor)
    return _PERHAPS if _has_symbol(a) or _has_symbol(b) else _OTHER


def _may_be_argument(value: _Value) -> bool:
    """Of a function of PyTorch's that takes sizes."""
    return value != _TRUTH and not isinstance(value, _Slice)


Stack = tuple[_Value, ...]


class _Read(NamedTuple):
    """Which sizes are symbols, and what is known besides."""

    offset: int
    is_symbol: tuple[bool, ...]  # by dimension
    tensors: frozenset[str]  # variables that hold a tensor all the time
    torchs: frozenset[str]  # global names of the module


class _Flow:
    """Follows all values through the code, until nothing new is found. Variables are what they may ever be."""

    def __init__(self, code: types.CodeType, read: _Read) -> None:
        self._code = code
        self._read = read
        self._instructions = _instructions(code)
        self._places = {each.offset: place for place, each in enumerate(self._instructions)}
        self._stacks: dict[int, Stack] = {0: ()}
        self._variables: dict[str, _Value] = dict.fromkeys(read.tensors, _TENSOR)
        self._handlers = list(getattr(dis.Bytecode(code), "exception_entries", ()))
        self._changed = True

    def run(self) -> None:
        """Raises _Noticed."""
        while self._changed:
            self._changed = False
            for place in sorted(self._stacks):
                self._enter_handlers(place)
                for following, stack in self._step(place, self._stacks[place]):
                    self._reach(following, stack)

    def _reach(self, place: int, stack: Stack) -> None:
        known = self._stacks.get(place)
        if known is not None and len(known) != len(stack):
            raise _Noticed("the depth of the stack")
        joined = stack if known is None else tuple(map(_joined, known, stack))
        if joined != known:
            self._stacks[place] = joined
            self._changed = True

    def _enter_handlers(self, place: int) -> None:
        offset, stack = self._instructions[place].offset, self._stacks[place]
        for entry in self._handlers:
            if entry.start <= offset < entry.end:
                if any(map(_has_symbol, stack[: entry.depth])):
                    raise _Noticed("an exception's handler")
                self._reach(self._places[entry.target], (_OTHER,) * (entry.depth + entry.lasti + 1))

    def _step(self, place: int, stack: Stack) -> Iterator[tuple[int, Stack]]:
        instruction = self._instructions[place]
        known = getattr(self, "_" + instruction.opname.lower(), None)
        after = None if known is None else known(instruction, stack)
        is_jump = instruction.opcode in _JUMPS
        if after is not None and not is_jump:
            self._check(instruction, len(after) - len(stack))
        if instruction.opname not in _ENDS and instruction.opname not in _GOES_ON_THERE:
            yield place + 1, self._unknown(instruction, stack, jump=False) if after is None else after
        elif after is None and instruction.opname in _ENDS:
            self._unknown(instruction, stack, jump=False)
        if is_jump:
            yield self._places[instruction.argval], self._unknown(instruction, stack, jump=True) if after is None else after

    @staticmethod
    def _effect(instruction: dis.Instruction, jump: bool) -> int:
        return dis.stack_effect(instruction.opcode, instruction.arg if instruction.opcode >= dis.HAVE_ARGUMENT else None, jump=jump)

    def _check(self, instruction: dis.Instruction, effect: int) -> None:
        """Python counts as we do. 3.11 has two instructions for a call, and counts the arguments for the first."""
        if sys.version_info < (3, 12) and instruction.opname in ("PRECALL", "CALL"):
            return
        if effect != self._effect(instruction, jump=False):
            raise _Noticed(instruction.opname)

    def _unknown(self, instruction: dis.Instruction, stack: Stack, jump: bool) -> Stack:
        """An instruction that no symbol may meet."""
        if any(map(_has_symbol, stack)):
            raise _Noticed(instruction.opname)
        depth = len(stack) + self._effect(instruction, jump)
        if depth < 0:
            raise _Noticed(instruction.opname)
        return (_OTHER,) * depth

    def _is_read(self, instruction: dis.Instruction) -> bool:
        return instruction.offset == self._read.offset

    # ---- variables and the stack. None: the instruction is unknown.

    def _nop(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return stack

    _resume = _cache = _extended_arg = _kw_names = _precall = _jump_forward = _jump_backward = _jump_backward_no_interrupt = _nop

    def _pop_top(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return stack[:-1]

    def _push_null(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return (*stack, _NULL)

    def _copy(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        return (*stack, stack[-instruction.arg])

    def _swap(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        swapped = list(stack)
        swapped[-1], swapped[-instruction.arg] = swapped[-instruction.arg], swapped[-1]
        return tuple(swapped)

    def _load_const(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return (*stack, _Constant(instruction.argval))

    def _load(self, name: str, stack: Stack) -> Stack:
        return (*stack, self._variables.get(name, _OTHER))

    def _store(self, name: str, stack: Stack) -> Stack:
        value = _joined(self._variables.get(name, stack[-1]), stack[-1])
        if value != self._variables.get(name):
            self._variables[name] = value
            self._changed = True
        return stack[:-1]

    def _load_fast(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return self._load(instruction.argval, stack)

    _load_fast_check = _load_fast_borrow = _load_fast

    def _store_fast(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return self._store(instruction.argval, stack)

    # Of Python 3.13, two in one.
    def _load_fast_load_fast(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return self._load(instruction.argval[1], self._load(instruction.argval[0], stack))

    def _store_fast_store_fast(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return self._store(instruction.argval[1], self._store(instruction.argval[0], stack))

    def _store_fast_load_fast(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return self._load(instruction.argval[1], self._store(instruction.argval[0], stack))

    def _load_global(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        value = _TORCH if instruction.argval in self._read.torchs else _OTHER
        if not instruction.arg & 1:
            return (*stack, value)
        return (*stack, value, _NULL) if sys.version_info >= (3, 13) else (*stack, _NULL, value)

    # ---- attributes and calls

    def _attribute(self, instruction: dis.Instruction, of: _Value) -> Optional[_Value]:
        if _has_symbol(of):
            return None
        name = instruction.argval
        if self._is_read(instruction):
            return _List(tuple(_Int(each, False) for each in self._read.is_symbol)) if name == "shape" else None
        if name == "shape":
            return _OTHERS if of == _TENSOR else _OTHER
        return _Named(name, is_torchs=of == _TORCH, is_of_tensor=of == _TENSOR)

    def _load_attr(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        value = self._attribute(instruction, stack[-1])
        if value is None:
            return None
        is_method = sys.version_info >= (3, 12) and instruction.arg is not None and instruction.arg & 1
        return (*stack[:-1], value, _NULL) if is_method else (*stack[:-1], value)

    def _load_method(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        value = self._attribute(instruction, stack[-1])
        return None if value is None else (*stack[:-1], value, _OTHER)

    def _call(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        first = len(stack) - instruction.arg
        return (*stack[: first - 2], self._result(instruction, stack[first - 2 : first], stack[first:], self._keywords(instruction)))

    def _call_kw(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        names = _items_of(stack[-1])
        first = len(stack) - 1 - instruction.arg
        if names is None:
            return None
        return (*stack[: first - 2], self._result(instruction, stack[first - 2 : first], stack[first:-1], len(names)))

    def _call_function_ex(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        keywords = stack[-1:] if instruction.arg & 1 else ()
        before = stack[: len(stack) - len(keywords)]
        if any(map(_has_symbol, keywords)):
            return None
        return (*before[:-3], self._result(instruction, before[-3:-1], before[-1:], 0))

    def _keywords(self, instruction: dis.Instruction) -> int:
        """How many arguments are given by name. 3.11 and 3.12 have their names in an instruction before the call."""
        place = self._places[instruction.offset] - 1
        while place >= 0 and self._instructions[place].opname == "PRECALL":
            place -= 1
        names = self._instructions[place]
        return len(self._code.co_consts[names.arg]) if place >= 0 and names.opname == "KW_NAMES" and names.arg is not None else 0

    def _result(self, instruction: dis.Instruction, callee: Stack, arguments: Stack, keywords: int) -> _Value:
        named = [each for each in callee if isinstance(each, _Named)]
        function = named[0] if len(named) == 1 else None
        if any(map(_has_symbol, callee)):
            raise _Noticed(instruction.opname)
        if self._is_read(instruction):
            return self._size(function, arguments)
        if not any(map(_has_symbol, arguments)):
            if function is None or not function.is_of_tensor or function.name not in ("numel", "size") or keywords:
                return _OTHER
            return _OTHERS if function.name == "size" and not arguments else _ANOTHER
        known = function is not None and function.name in (_FUNCTIONS if function.is_torchs else _METHODS)
        by_place = arguments[: len(arguments) - keywords]
        if not known or not all(map(_may_be_argument, by_place)) or any(map(_has_symbol, arguments[len(by_place) :])):
            raise _Noticed(instruction.opname)
        return _OTHER

    def _size(self, function: Optional[_Named], arguments: Stack) -> _Value:
        """Of the call that reads."""
        sizes = tuple(_Int(each, False) for each in self._read.is_symbol)
        if function is None or function.name not in _READS or any(map(_has_symbol, arguments)):
            raise _Noticed("a call")
        if function.name == "numel":
            return _SIZE
        if not arguments:
            return _List(sizes)
        place = arguments[0].value if isinstance(arguments[0], _Constant) else None
        return sizes[place] if type(place) is int and -len(sizes) <= place < len(sizes) else _SIZE

    # ---- lists and slices

    def _build_tuple(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        first = len(stack) - instruction.arg
        return None if _TRUTH in stack[first:] else (*stack[:first], _List(stack[first:]))

    _build_list = _build_tuple

    def _list_extend(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        if instruction.arg != 1:
            return None
        items, more = _items_of(stack[-2]), _items_of(stack[-1])
        if items is not None and more is not None:
            return (*stack[:-2], _List(items + more))
        return (*stack[:-2], _PERHAPS if any(map(_has_symbol, stack[-2:])) else _OTHER)

    def _list_append(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        if instruction.arg != 1 or stack[-1] == _TRUTH:
            return None
        items = _items_of(stack[-2])
        if items is not None:
            return (*stack[:-2], _List((*items, stack[-1])))
        return (*stack[:-2], _PERHAPS if any(map(_has_symbol, stack[-2:])) else _OTHER)

    def _list_to_tuple(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return stack

    def _call_intrinsic_1(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return stack if "LIST_TO_TUPLE" in (instruction.argrepr or "") else None

    def _build_slice(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        first = len(stack) - instruction.arg
        return self._with_slice(stack[:first], stack[first:])

    @staticmethod
    def _with_slice(stack: Stack, parts: Stack) -> Optional[Stack]:
        if any(_has_symbol(each) and _int_of(each) is None for each in parts):
            return None
        return (*stack, _Slice(parts))

    def _binary_subscr(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        value = self._subscript(stack[-2], stack[-1])
        return None if value is None else (*stack[:-2], value)

    def _binary_slice(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        parts = self._with_slice((), stack[-2:])
        value = None if parts is None else self._subscript(stack[-3], parts[0])
        return None if value is None else (*stack[:-3], value)

    def _subscript(self, of: _Value, index: _Value) -> Optional[_Value]:
        if not _has_symbol(of) and not isinstance(of, _List):
            return _OTHER if not _has_symbol(index) or self._is_slicing(index) else None
        if not isinstance(of, _List) or _has_symbol(index):
            return None
        if isinstance(index, _Slice) and all(isinstance(each, _Constant) for each in index.parts):
            return of if of.items is None else _List(of.items[slice(*(each.value for each in index.parts))])  # type: ignore[union-attr]
        place = index.value if isinstance(index, _Constant) else None
        if type(place) is not int:
            return _PERHAPS if _has_symbol(of) else _OTHER  # one size, or some
        if of.items is None:
            return _SIZE if of.may_have_symbols else _ANOTHER
        return of.items[place] if -len(of.items) <= place < len(of.items) else None

    @staticmethod
    def _is_slicing(index: _Value) -> bool:
        """With symbols in slices alone: an object that is no tensor takes them as numbers."""
        parts = [index] if isinstance(index, _Slice) else _items_of(index) or [index]
        return all(isinstance(each, _Slice) or not _has_symbol(each) for each in parts)

    def _store_subscr(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        value, of, index = stack[-3:]
        return None if _has_symbol(value) or _has_symbol(of) or not self._is_slicing(index) else stack[:-3]

    def _store_slice(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        parts = self._with_slice((), stack[-2:])
        return None if parts is None or any(map(_has_symbol, stack[-4:-2])) else stack[:-4]

    def _unpack_sequence(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        items = _items_of(stack[-1])
        if isinstance(stack[-1], _List) and items is None:
            items = (_SIZE if stack[-1].may_have_symbols else _ANOTHER,) * instruction.arg
        return None if items is None or len(items) != instruction.arg else (*stack[:-1], *items[::-1])

    def _unpack_ex(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        items, before, behind = _items_of(stack[-1]), instruction.arg & 0xFF, instruction.arg >> 8
        if items is None or len(items) < before + behind:
            return None
        end = len(items) - behind
        return (*stack[:-1], *items[end:][::-1], _List(items[before:end]), *items[:before][::-1])

    # ---- arithmetic and comparisons

    def _binary_op(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        left, right = stack[-2:]
        value = self._computed(instruction.argrepr.rstrip("="), left, right)
        if value is None and not _has_symbol(left) and not _has_symbol(right):
            value = _OTHER
        return None if value is None else (*stack[:-2], value)

    def _computed(self, operator: str, left: _Value, right: _Value) -> Optional[_Value]:
        items, more = _items_of(left), _items_of(right)
        if operator == "+" and items is not None and more is not None:
            return _List(items + more)
        if operator == "+" and isinstance(left, _List) and isinstance(right, _List):
            return _PERHAPS if _has_symbol(left) or _has_symbol(right) else _OTHER
        one, other = _int_of(left), _int_of(right)
        if one is None or other is None:
            return None
        is_symbol = one.may_be_symbol or other.may_be_symbol
        if operator in ("+", "*"):
            return _Int(is_symbol, one.may_be_negative or other.may_be_negative)
        if operator == "-":
            return _Int(is_symbol, True)
        # C++ rounds toward zero, Python down.
        is_positive = isinstance(right, _Constant) and right.value > 0 and not one.may_be_negative
        return _Int(is_symbol, False) if operator in ("//", "%") and is_positive else None

    def _unary_negative(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return (*stack[:-1], _Int(stack[-1].may_be_symbol, True)) if isinstance(stack[-1], _Int) else None

    def _compare_op(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        left, right = stack[-2:]
        if not _has_symbol(left) and not _has_symbol(right):
            return (*stack[:-2], _OTHER)
        if _int_of(left) and _int_of(right):
            return (*stack[:-2], _TRUTH)
        items, more = _items_of(left), _items_of(right)  # of lists Python compares item by item, and asks each for its truth
        lists = [items is None or all(map(_int_of, items)), more is None or all(map(_int_of, more))]
        are_lists = isinstance(left, (_List, _Constant)) and isinstance(right, (_List, _Constant))
        return (*stack[:-2], _OTHER) if are_lists and all(lists) and (items is not None or more is not None) else None

    def _is_op(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return (*stack[:-2], _OTHER) if _Constant(None) in stack[-2:] else None

    def _branch(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return stack[:-1] if stack[-1] == _TRUTH or isinstance(stack[-1], _Int) or not _has_symbol(stack[-1]) else None

    _pop_jump_if_true = _pop_jump_if_false = _branch
    _pop_jump_forward_if_true = _pop_jump_forward_if_false = _pop_jump_backward_if_true = _pop_jump_backward_if_false = _branch

    def _to_bool(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        after = self._branch(instruction, stack)
        return None if after is None else (*after, _OTHER)

    _unary_not = _to_bool


@functools.lru_cache(maxsize=1024)
def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    return list(dis.get_instructions(code))


@functools.lru_cache(maxsize=4096)
def _goes_unnoticed(code: types.CodeType, read: _Read) -> bool:
    flags = 0x20 | 0x80 | 0x100 | 0x200  # generators, coroutines, and iterable and asynchronous ones
    if code.co_flags & flags or not code.co_flags & 0x1 or _LOOKS_AT_VARIABLES.intersection(code.co_names):
        return False
    if len(_instructions(code)) > _MOST_INSTRUCTIONS:
        return False
    try:
        _Flow(code, read).run()
    except (_Noticed, IndexError, KeyError):
        return False
    return True


def _stored(code: types.CodeType) -> set[Any]:
    names: set[Any] = set()
    for each in _instructions(code):
        if each.opname.startswith(("STORE_FAST", "DELETE_FAST")) or "AND_CLEAR" in each.opname:
            stored = each.argval if isinstance(each.argval, tuple) else (each.argval,)
            names.update(stored[:1] if each.opname == "STORE_FAST_LOAD_FAST" else stored)
    return names


def _is_call(instruction: dis.Instruction) -> bool:
    return instruction.opname in ("CALL", "CALL_KW")


def takes_symbols(frame: types.FrameType, is_symbol: Iterable[bool]) -> Optional[bool]:
    """Of the instruction that `frame` is at, which asks a tensor for its sizes; None: it is PyTorch's C++ that gets them, and it takes symbols."""
    if sys.version_info < (3, 11):
        return False
    code = frame.f_code
    instructions = _instructions(code)
    place = next((place for place, each in enumerate(instructions) if each.offset == frame.f_lasti), None)
    if place is None:
        return False
    if instructions[place].opname in _INDEXING:
        return None
    if instructions[place].opname == "PRECALL":  # makes some calls by itself
        place += 1
    if instructions[place].argval not in _READS and not _is_call(instructions[place]):
        return False
    arguments = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) - _stored(code) - set(code.co_cellvars)
    variables = frame.f_locals
    tensors = frozenset(name for name in arguments if type(variables.get(name)) in (torch.Tensor, torch.nn.Parameter))
    torchs = frozenset(name for name in code.co_names if frame.f_globals.get(name) is torch)
    return _goes_unnoticed(code, _Read(instructions[place].offset, tuple(is_symbol), tensors, torchs))


_OF_SYMBOLS = frozenset((sym_node.__file__, torch.__file__))
_MOST_ITEMS = 256


def _with_numbers(value: Any) -> Any:
    """The same object, if there are no symbols in it."""
    kind = type(value)
    if kind is torch.SymInt:
        return int(value)
    if kind is slice:
        parts = (value.start, value.stop, value.step)
        plain = tuple(map(_with_numbers, parts))
        return value if all(map(_is, parts, plain)) else slice(*plain)
    if kind in (tuple, list, torch.Size) and len(value) <= _MOST_ITEMS:
        items = list(map(_with_numbers, value))
        return value if all(map(_is, value, items)) else kind(items)
    return value


def _is(a: Any, b: Any) -> bool:
    return a is b


class NumbersForPython:
    """While alive, functions in Python get numbers where they were called with symbols: as a profiler it sees each before it runs."""

    def __init__(self) -> None:
        self._is_watching = False

    def watch(self) -> bool:
        """False: another profiler is at work."""
        if not self._is_watching and sys.getprofile() is None:
            sys.setprofile(self._enters)
            self._is_watching = True
        return self._is_watching and sys.getprofile() == self._enters

    def end(self) -> None:
        if self._is_watching and sys.getprofile() == self._enters:
            sys.setprofile(None)
        self._is_watching = False

    @staticmethod
    def _enters(frame: types.FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename in _OF_SYMBOLS:
            return
        if frame.f_back is not None and frame.f_back.f_code.co_filename in _OF_SYMBOLS:  # as for its logs
            return
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x4) + bool(code.co_flags & 0x8)
        variables = frame.f_locals  # what is written here is the function's when this returns
        for name in code.co_varnames[:count]:
            value = variables.get(name)
            plain = _with_numbers(value)
            if plain is not value:
                variables[name] = plain


__all__ = ["NumbersForPython", "takes_symbols"]
