"""Where a size that a function reads goes: whether a symbol of PyTorch's (``torch.SymInt``) can replace it unnoticed.

A symbol is no int: ``isinstance(n, int)``, ``hash(n)``, f-strings and numpy see the difference. So code gets symbols only where its bytecode
says that they go nowhere but into arithmetic with each other and with constants, comparisons that a branch takes at once, bounds of slices,
and arguments of PyTorch's functions that take symbols. All else of the code gets plain numbers. A function in Python that has the name of
such a one, as ``view`` of a class of the user's, gets numbers too (`NumbersForPython`).
"""

import dis
import functools
import heapq
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Optional, Union

import torch
from torch.fx.experimental import sym_node
from torch.utils._device import DeviceContext

METHODS_WITH_SYMBOLS = frozenset(("broadcast_to", "expand", "narrow", "new_empty", "new_ones", "new_zeros", "repeat", "reshape", "tile", "view"))
FUNCTIONS_WITH_SYMBOLS = frozenset(("arange", "broadcast_to", "empty", "narrow", "ones", "rand", "randn", "reshape", "tile", "zeros"))
FUNCTIONS_WITH_SYMBOLS |= frozenset(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"))
# Python functions that are correct with symbols: their code was reviewed.
_TRUSTED = tuple(
    vars(torch.nn.functional)[name] for name in ("_verify_batch_size", "_list_with_default") if name in vars(torch.nn.functional)
)
_READS = frozenset(("numel", "shape", "size"))
# Instructions implemented by C++ code that supports symbols.
_INDEXING = frozenset(("BINARY_SUBSCR", "STORE_SUBSCR", "BINARY_SLICE", "STORE_SLICE"))
# With these, code reads variables of its own or of its callers other than by name.
_LOOKS_AT_VARIABLES = frozenset(("_getframe", "breakpoint", "currentframe", "dir", "eval", "exec", "locals", "stack", "vars"))
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_GOES_ON_THERE = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
_MOST_INSTRUCTIONS = 4000
_MOST_ITEMS = 256
_MOST_FOUND, _MOST_OF_ATTRIBUTES = 4096, 8


class _Noticed(Exception):
    """A symbol may go where it is noticed."""


class _Int(NamedTuple):
    """An int, or a symbol for one."""

    may_be_symbol: bool
    least: Optional[int]  # 0 or 1: a lower bound; None: unknown


class _Constant(NamedTuple):
    value: Any


class _List(NamedTuple):
    """A list, tuple or torch.Size; `items` None: of ints, of unknown length."""

    items: Optional[tuple[Any, ...]]
    may_have_symbols: bool = True  # if there are no items
    is_mutable: bool = False


class _Slice(NamedTuple):
    parts: tuple[Any, ...]


class _Named(NamedTuple):
    """An attribute of an unknown object, or a function of torch's."""

    name: str
    is_torchs: bool
    is_of_tensor: bool = False


class _Object(NamedTuple):
    """An object known only by its path: a variable's name, and attributes. An empty name: a global one follows."""

    path: tuple[str, ...]


class _Variable(NamedTuple):
    """The value of a variable when the instruction at a place put it on the stack."""

    name: str
    place: int


_Value = Union[str, _Int, _Constant, _List, _Slice, _Named, _Object, _Variable]
_OTHER, _TENSOR, _TORCH, _NULL, _TRUSTED_ONE = "other", "tensor", "torch", "null", "trusted"
_TRUTH = "truth"  # the result of a comparison
_PERHAPS = "perhaps a symbol"
_SIZE = _Int(may_be_symbol=True, least=0)
# Sizes that other instructions read of a tensor. If these are symbols, they are followed from there.
_ANOTHER, _OTHERS = _Int(may_be_symbol=False, least=0), _List(None, may_have_symbols=False)


def _has_symbol(value: _Value) -> bool:
    if isinstance(value, _Int):
        return value.may_be_symbol
    if isinstance(value, _List):
        return value.may_have_symbols if value.items is None else any(map(_has_symbol, value.items))
    return any(map(_has_symbol, value.parts)) if isinstance(value, _Slice) else value in (_TRUTH, _PERHAPS)


def _least(number: int) -> Optional[int]:
    return min(number, 1) if number >= 0 else None


def _int_of(value: _Value) -> Optional[_Int]:
    if isinstance(value, _Constant) and type(value.value) is int:
        return _Int(False, _least(value.value))
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
        leasts = one.least, other.least
        return _Int(one.may_be_symbol or other.may_be_symbol, None if None in leasts else min(leasts))  # type: ignore[type-var]
    if isinstance(a, _Named) and isinstance(b, _Named) and a[:2] == b[:2]:
        return a._replace(is_of_tensor=a.is_of_tensor and b.is_of_tensor)
    return _PERHAPS if _has_symbol(a) or _has_symbol(b) else _OTHER


def _may_be_argument(value: _Value) -> bool:
    """Whether it may be an argument of a function of PyTorch's that takes sizes."""
    return value != _TRUTH and not isinstance(value, _Slice)


Stack = tuple[_Value, ...]


class _Read(NamedTuple):
    """Which sizes are symbols."""

    offset: int
    is_symbol: tuple[bool, ...]  # by dimension


Variables = tuple[tuple[str, _Value], ...]
Resolve = Callable[[tuple[str, ...]], _Value]  # the value at the path of an _Object


def _nothing_is_known(_: tuple[str, ...]) -> _Value:
    return _OTHER



class _Prepared(NamedTuple):
    """The parts of a code's analysis that do not depend on values."""

    instructions: list[dis.Instruction]
    places: dict[int, int]  # by offset
    handlers: list[list[Any]]  # of exceptions, by place
    loads: dict[str, list[int]]  # places, by the variable that they read
    methods: list[Optional[str]]  # of _Flow, by place


@functools.lru_cache(maxsize=1024)
def _prepared(code: types.CodeType) -> _Prepared:
    instructions = list(dis.get_instructions(code))
    entries = list(getattr(dis.Bytecode(code), "exception_entries", ()))
    loads: dict[str, list[int]] = {}
    for place, each in enumerate(instructions):
        if "LOAD_FAST" in each.opname:
            for name in each.argval if isinstance(each.argval, tuple) else (each.argval,):
                loads.setdefault(name, []).append(place)
    names = ["_" + each.opname.lower() for each in instructions]
    return _Prepared(
        instructions,
        {each.offset: place for place, each in enumerate(instructions)},
        [[entry for entry in entries if entry.start <= each.offset < entry.end] for each in instructions],
        loads,
        [name if hasattr(_Flow, name) else None for name in names],
    )


class _Flow:
    """Follows all values from one place of the code on, until nothing new is found. Variables have their possible values from there on."""

    def __init__(self, code: types.CodeType, place: int, stack: Stack, variables: Variables, resolve: Resolve, read: Optional[_Read]) -> None:
        self._code = code
        self._read = read
        self._resolve = resolve
        self._prepared = _prepared(code)
        self._instructions, self._places = self._prepared.instructions, self._prepared.places
        self._stacks: dict[int, Stack] = {place: stack}
        self._variables: dict[str, _Value] = dict(variables)
        self._pending = [place]  # a heap: in the order of the code

    def run(self) -> None:
        """Raises _Noticed."""
        done = -1
        while self._pending:
            place = heapq.heappop(self._pending)
            if place == done and self._pending and self._pending[0] == place:
                continue
            done = place
            self._enter_handlers(place)
            for following, stack in self._step(place, self._stacks[place]):
                self._reach(following, stack)
        self._resolve = _nothing_is_known  # this may be cached, and must not keep the variables' values alive

    def stack_at(self, place: int, variables: Variables) -> Stack:
        """`variables`: as they are at `place`."""
        now = dict(variables)

        def known(value: _Value) -> _Value:
            if not isinstance(value, _Variable):
                return value
            between = self._instructions[value.place + 1 : place]
            is_the_same = value.place < place and not any(value.name in _stored_by(each) for each in between)
            return now.get(value.name, _OTHER) if is_the_same else _OTHER

        return tuple(map(known, self._stacks[place]))

    def _reach(self, place: int, stack: Stack) -> None:
        known = self._stacks.get(place)
        if known is not None and len(known) != len(stack):
            raise _Noticed("the depth of the stack")
        joined = stack if known is None or known == stack else tuple(map(_joined, known, stack))
        if joined != known:
            self._stacks[place] = joined
            heapq.heappush(self._pending, place)

    def _enter_handlers(self, place: int) -> None:
        for entry in self._prepared.handlers[place]:
            if any(map(_has_symbol, self._stacks[place][: entry.depth])):
                raise _Noticed("an exception's handler")
            self._reach(self._places[entry.target], (_OTHER,) * (entry.depth + entry.lasti + 1))

    def _step(self, place: int, stack: Stack) -> Iterator[tuple[int, Stack]]:
        instruction = self._instructions[place]
        method = self._prepared.methods[place]
        after = None if method is None else getattr(self, method)(instruction, stack)
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
        """Checks that Python counts as we do. 3.11 has two instructions for a call, and counts the arguments for the first."""
        if sys.version_info < (3, 12) and instruction.opname in ("PRECALL", "CALL"):
            return
        if effect != self._effect(instruction, jump=False):
            raise _Noticed(instruction.opname)

    def _unknown(self, instruction: dis.Instruction, stack: Stack, jump: bool) -> Stack:
        """An instruction that symbols must not reach."""
        if any(map(_has_symbol, stack)):
            raise _Noticed(instruction.opname)
        depth = len(stack) + self._effect(instruction, jump)
        if depth < 0:
            raise _Noticed(instruction.opname)
        return (_OTHER,) * depth

    def _is_read(self, instruction: dis.Instruction) -> bool:
        return self._read is not None and instruction.offset == self._read.offset

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
        copied = stack[-instruction.arg]
        return None if isinstance(copied, _List) and copied.is_mutable else (*stack, copied)

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
        if self._read is None:
            return stack[:-1]
        made = stack[-1]
        if isinstance(made, _List) and made.is_mutable:  # its contents may change later
            made = _PERHAPS if _has_symbol(made) else _OTHER
        value = _joined(self._variables.get(name, made), made)
        if value != self._variables.get(name):
            self._variables[name] = value
            for place in self._prepared.loads.get(name, ()):
                if place in self._stacks:
                    heapq.heappush(self._pending, place)
        return stack[:-1]

    def _load_fast(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        if self._read is None and instruction.argval not in self._variables:
            return (*stack, _Variable(instruction.argval, self._places[instruction.offset]))
        return self._load(instruction.argval, stack)

    _load_fast_check = _load_fast_borrow = _load_fast

    def _store_fast(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return self._store(instruction.argval, stack)

    # From Python 3.13, two in one.
    def _load_fast_load_fast(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return self._load(instruction.argval[1], self._load(instruction.argval[0], stack))

    def _store_fast_store_fast(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return self._store(instruction.argval[1], self._store(instruction.argval[0], stack))

    def _store_fast_load_fast(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return self._load(instruction.argval[1], self._store(instruction.argval[0], stack))

    def _load_global(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        value = self._found(_Object(("", instruction.argval)))
        if not instruction.arg & 1:
            return (*stack, value)
        return (*stack, value, _NULL) if sys.version_info >= (3, 13) else (*stack, _NULL, value)

    # ---- attributes and calls

    def _found(self, value: _Object) -> _Value:
        found = self._resolve(value.path)
        return value if found == _OTHER else found

    def _sizes(self) -> tuple[_Int, ...]:
        assert self._read is not None
        return tuple(_Int(each, least=0) for each in self._read.is_symbol)

    def _attribute(self, instruction: dis.Instruction, of: _Value) -> Optional[_Value]:
        if _has_symbol(of):
            return None
        name = instruction.argval
        if self._is_read(instruction):
            return _List(self._sizes()) if name == "shape" else None
        if name == "shape" and of == _TENSOR:
            return _OTHERS
        if of == _TORCH and name in ("_C", "_nn"):
            return _TORCH
        if isinstance(of, _Object) and name not in METHODS_WITH_SYMBOLS and name not in _READS:
            return self._found(_Object((*of.path, name)))
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
        """How many arguments are passed by name. In 3.11 and 3.12 an instruction before the call has their names."""
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
        if _TRUSTED_ONE in callee and not keywords:
            return _PERHAPS
        if not any(map(_has_symbol, arguments)):
            if function is None or not function.is_of_tensor or function.name not in ("numel", "size") or keywords:
                return _OTHER
            return _OTHERS if function.name == "size" and not arguments else _ANOTHER
        known = function is not None and function.name in (FUNCTIONS_WITH_SYMBOLS if function.is_torchs else METHODS_WITH_SYMBOLS)
        by_place = arguments[: len(arguments) - keywords]
        if not known or not all(map(_may_be_argument, by_place)) or any(map(_has_symbol, arguments[len(by_place) :])):
            raise _Noticed(instruction.opname)
        return _OTHER

    def _size(self, function: Optional[_Named], arguments: Stack) -> _Value:
        """The result of the call that reads."""
        sizes = self._sizes()
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

    def _build_list(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        made = self._build_tuple(instruction, stack)
        return None if made is None else (*made[:-1], made[-1]._replace(is_mutable=True))  # type: ignore[union-attr]

    def _list_extend(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        if instruction.arg != 1:
            return None
        items, more = _items_of(stack[-2]), _items_of(stack[-1])
        if items is not None and more is not None:
            return (*stack[:-2], _List(items + more, is_mutable=True))
        return (*stack[:-2], _PERHAPS if any(map(_has_symbol, stack[-2:])) else _OTHER)

    def _list_append(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        if instruction.arg != 1 or stack[-1] == _TRUTH:
            return None
        items = _items_of(stack[-2])
        if items is not None:
            return (*stack[:-2], _List((*items, stack[-1]), is_mutable=True))
        return (*stack[:-2], _PERHAPS if any(map(_has_symbol, stack[-2:])) else _OTHER)

    def _list_to_tuple(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        made = stack[-1]
        return (*stack[:-1], made._replace(is_mutable=False) if isinstance(made, _List) else made)

    def _call_intrinsic_1(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return self._list_to_tuple(instruction, stack) if "LIST_TO_TUPLE" in (instruction.argrepr or "") else None

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
        if of == _PERHAPS and isinstance(index, _Constant):
            return _PERHAPS
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
        """Whether symbols are only in slices: an object other than a tensor takes them as numbers."""
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
        if stack[-1] == _PERHAPS:
            items = (_PERHAPS,) * instruction.arg
        return None if items is None or len(items) != instruction.arg else (*stack[:-1], *items[::-1])

    def _unpack_ex(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        items, before, behind = _items_of(stack[-1]), instruction.arg & 0xFF, instruction.arg >> 8
        if items is None or len(items) < before + behind:
            return None
        end = len(items) - behind
        return (*stack[:-1], *items[end:][::-1], _List(items[before:end], is_mutable=True), *items[:before][::-1])

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
        if operator == "-":
            return _Int(is_symbol, None)
        if operator in ("+", "*"):
            if one.least is None or other.least is None:
                return _Int(is_symbol, None)
            return _Int(is_symbol, max(one.least, other.least) if operator == "+" else min(one.least, other.least))
        # C++ rounds toward zero, Python down.
        is_same = one.least is not None and other.least == 1 and not other.may_be_symbol
        return _Int(is_symbol, 0) if operator in ("//", "%") and is_same else None

    def _unary_negative(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return (*stack[:-1], _Int(stack[-1].may_be_symbol, None)) if isinstance(stack[-1], _Int) else None

    def _compare_op(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        left, right = stack[-2:]
        if not _has_symbol(left) and not _has_symbol(right):
            return (*stack[:-2], _OTHER)
        if _int_of(left) and _int_of(right):
            return (*stack[:-2], _TRUTH)
        items, more = _items_of(left), _items_of(right)  # Python compares lists item by item, and takes the truth value of each
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


def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    return _prepared(code).instructions


@functools.lru_cache(maxsize=1024)
def _can_be_followed(code: types.CodeType) -> bool:
    flags = 0x20 | 0x80 | 0x100 | 0x200  # generators, coroutines, and iterable and asynchronous ones
    if code.co_flags & flags or not code.co_flags & 0x1 or _LOOKS_AT_VARIABLES.intersection(code.co_names):
        return False
    return len(_instructions(code)) <= _MOST_INSTRUCTIONS


class _Code(NamedTuple):
    variables: frozenset[str]  # not shared with other functions
    stored: frozenset[str]
    attributes: frozenset[str]  # that it stores


def _stored_by(instruction: dis.Instruction) -> tuple[str, ...]:
    """The variables that it stores."""
    name = instruction.opname
    if not name.startswith(("STORE_FAST", "DELETE_FAST")) and "AND_CLEAR" not in name:
        return ()
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
    return names[:1] if name == "STORE_FAST_LOAD_FAST" else names


@functools.lru_cache(maxsize=1024)
def _names_of(code: types.CodeType) -> _Code:
    stored: set[str] = set()
    attributes: set[str] = set()
    for each in _instructions(code):
        if each.opname in ("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL"):
            attributes.add(each.argval)
        stored.update(_stored_by(each))
    return _Code(frozenset(code.co_varnames) - frozenset(code.co_cellvars), frozenset(stored), frozenset(attributes))


def _is_int(value: Any) -> bool:
    return type(value) in (int, torch.SymInt)


def _kind_of(value: Any) -> _Value:
    if type(value) is int:
        return _Int(False, _least(value))
    if type(value) is torch.SymInt:
        return _Int(False, None)  # from another read, which has been followed
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return _TENSOR
    if type(value) in (tuple, torch.Size) and len(value) <= _MOST_ITEMS and all(map(_is_int, value)):
        return _List(tuple(map(_kind_of, value)))
    if value is torch:
        return _TORCH
    return _TRUSTED_ONE if any(value is each for each in _TRUSTED) else _OTHER


_NOTHING = object()


def _attribute_of(value: Any, name: str) -> Any:
    """The attribute as Python finds it, except if that runs code."""
    kind = type(value)
    if kind is types.ModuleType:
        return vars(value).get(name, _NOTHING)
    if kind.__getattribute__ is not object.__getattribute__:
        return _NOTHING
    of_class = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), _NOTHING)
    if hasattr(type(of_class), "__get__") or hasattr(type(of_class), "__set__"):
        return _NOTHING
    own = getattr(value, "__dict__", None)
    if type(own) is dict and name in own:
        return own[name]
    if of_class is _NOTHING and isinstance(value, torch.nn.Module) and kind.__getattr__ is torch.nn.Module.__getattr__:
        return value._modules.get(name, _NOTHING)
    return of_class


class _Frame:
    """Resolves the names of a running function."""

    def __init__(self, frame: types.FrameType) -> None:
        self._names = _names_of(frame.f_code)
        self._locals = frame.f_locals
        self._globals = frame.f_globals
        self.asked: dict[tuple[str, ...], _Value] = {}  # since it was last emptied

    def variables(self, names: frozenset[str]) -> Variables:
        bound = sorted(name for name in names if name in self._locals)
        return tuple((name, self._variable(name)) for name in bound)

    def _variable(self, name: str) -> _Value:
        kind = _kind_of(self._locals[name])
        return _Object((name,)) if kind == _OTHER else kind

    def kept_variables(self) -> Variables:
        """Variables that have not changed since the start."""
        arguments = self._names.variables - self._names.stored
        return self.variables(arguments)

    def all_variables(self) -> Variables:
        return self.variables(self._names.variables)

    def look(self, path: tuple[str, ...]) -> _Value:
        first, *attributes = path[1:] if path[0] == "" else path
        value = (self._globals if path[0] == "" else self._locals).get(first, _NOTHING)
        if path[0] == "" and first in self._names.attributes:
            return _OTHER
        for name in attributes:
            value = _NOTHING if name in self._names.attributes else _attribute_of(value, name)
            if value is _NOTHING:
                return _OTHER
        kind = _kind_of(value)
        return kind if isinstance(kind, _Int) or kind in (_TORCH, _TRUSTED_ONE) else _OTHER

    def resolve(self, path: tuple[str, ...]) -> _Value:
        if path not in self.asked:
            self.asked[path] = self.look(path)
        return self.asked[path]


def _flow_before(code: types.CodeType, frame: _Frame) -> _Flow:
    """The flow from the start of the code: the same for all reads in it."""
    known = _before.setdefault((code, frame.kept_variables()), [])
    for asked, flow in known:
        if all(frame.look(path) == value for path, value in asked.items()):
            frame.asked.update(asked)
            return flow
    frame.asked = {}
    flow = _Flow(code, 0, (), frame.kept_variables(), frame.resolve, None)
    flow.run()
    known[:] = [*known[-_MOST_OF_ATTRIBUTES + 1 :], (dict(frame.asked), flow)]
    return flow


def _follow(code: types.CodeType, place: int, read: _Read, frame: _Frame) -> bool:
    try:
        before = _flow_before(code, frame)
        now = frame.all_variables()
        _Flow(code, place, before.stack_at(place, now), now, frame.resolve, read).run()
    except (_Noticed, IndexError, KeyError):
        return False
    return True


# Results, with the attributes and globals that they depend on.
_Asked = dict[tuple[str, ...], _Value]
_found: dict[Any, list[tuple[_Asked, bool]]] = {}
_before: dict[Any, list[tuple[_Asked, _Flow]]] = {}


def _goes_unnoticed(code: types.CodeType, place: int, read: _Read, frame: _Frame) -> bool:
    if not _can_be_followed(code):
        return False
    if len(_found) >= _MOST_FOUND:
        _found.clear()
        _before.clear()
    known = _found.setdefault((code, read, frame.kept_variables(), frame.all_variables()), [])
    for asked, result in known:
        if all(frame.look(path) == value for path, value in asked.items()):
            return result
    frame.asked = {}
    result = _follow(code, place, read, frame)
    known[:] = [*known[-_MOST_OF_ATTRIBUTES + 1 :], (dict(frame.asked), result)]
    return result


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
    instructions = _instructions(code)
    place = _prepared(code).places.get(frame.f_lasti)
    if place is None:
        return NOWHERE, False
    if instructions[place].opname in _INDEXING:
        return ALL, False
    if instructions[place].opname == "PRECALL":  # makes some calls by itself
        place += 1
    if instructions[place].argval not in _READS and not _is_call(instructions[place]):
        return NOWHERE, False
    names = _Frame(frame)
    unsteady = [is_one and not never_changed for is_one, never_changed in zip(is_symbol, is_steady)]
    for which, symbols in (ALL, is_symbol), (UNSTEADY, unsteady):
        if any(symbols) and _goes_unnoticed(code, place, _Read(instructions[place].offset, tuple(symbols)), names):
            return which, True
    return (NOWHERE, False) if any(unsteady) else (UNSTEADY, False)


_OF_DEFAULT_DEVICE = DeviceContext.__torch_function__.__code__  # forwards each call of PyTorch's functions
_TRUSTED_CODES = frozenset((_OF_DEFAULT_DEVICE, *(each.__code__ for each in _TRUSTED)))
_OF_SYMBOLS = frozenset((sym_node.__file__, torch.__file__))



def _with_numbers(value: Any) -> Any:
    """The same object, if it contains no symbols."""
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
    """While alive, Python functions that are called with symbols get numbers: as a profiler it sees each before it runs."""

    def __init__(self) -> None:
        self._is_watching = False

    def watch(self) -> bool:
        """False: another profiler is active."""
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
        if event != "call" or code.co_filename in _OF_SYMBOLS or code in _TRUSTED_CODES:
            return
        if frame.f_back is not None and frame.f_back.f_code.co_filename in _OF_SYMBOLS:  # for example for its logs
            return
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x4) + bool(code.co_flags & 0x8)
        variables = frame.f_locals  # values written here become the function's on return
        for name in code.co_varnames[:count]:
            value = variables.get(name)
            plain = _with_numbers(value)
            if plain is not value:
                variables[name] = plain


__all__ = ["NOWHERE", "NumbersForPython", "takes_symbols"]
