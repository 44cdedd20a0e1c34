"""Where a size that a function reads goes: whether a symbol of PyTorch's (``torch.SymInt``) can replace it unnoticed.

A symbol is no int: ``isinstance(n, int)``, ``hash(n)``, f-strings and numpy see the difference. So code gets symbols only where its bytecode
says that they go nowhere but into arithmetic with each other and with constants, comparisons that a branch takes at once, bounds of slices,
and arguments of PyTorch's functions that take symbols. All else of the code gets plain numbers. A function in Python that has the name of
such a one, as ``view`` of a class of the user's, gets numbers too (`_symbols_for_code.NumbersForPython`).
"""

import dis
import functools
import heapq
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

from ._size_values import (  # fmt: skip
    ANOTHER, NULL, OTHER, OTHERS, PERHAPS, SIZE, TENSOR, TORCH, TRUSTED_ONE, TRUTH, Constant, Int, List, Named, Noticed, Object, Read,
    Resolve, Slice, Stack, Value, Variable, Variables, has_symbol, int_of, items_of, joined, may_be_argument, nothing_is_known,
)

METHODS_WITH_SYMBOLS = frozenset(
    ("broadcast_to", "expand", "narrow", "new_empty", "new_ones", "new_zeros", "repeat", "reshape", "tile", "view")
)
FUNCTIONS_WITH_SYMBOLS = frozenset(("arange", "broadcast_to", "empty", "narrow", "ones", "rand", "randn", "reshape", "tile", "zeros"))
FUNCTIONS_WITH_SYMBOLS |= frozenset(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"))
READS = frozenset(("numel", "shape", "size"))
VIEWS = frozenset(("H", "T", "mH", "mT"))  # attributes that are operators
# Instructions implemented by C++ code that supports symbols.
INDEXING = frozenset(("BINARY_SUBSCR", "STORE_SUBSCR", "BINARY_SLICE", "STORE_SLICE"))
# With these, code reads variables of its own or of its callers other than by name.
_LOOKS_AT_VARIABLES = frozenset(("_getframe", "breakpoint", "currentframe", "dir", "eval", "exec", "locals", "stack", "vars"))
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_GOES_ON_THERE = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
_MOST_INSTRUCTIONS = 4000


class _Prepared(NamedTuple):
    """The parts of a code's analysis that do not depend on values."""

    instructions: list[dis.Instruction]
    places: dict[int, int]  # by offset
    handlers: list[list[Any]]  # of exceptions, by place
    loads: dict[str, list[int]]  # places, by the variable that they read
    methods: list[Optional[str]]  # of Flow, by place


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
        [name if hasattr(Flow, name) else None for name in names],
    )


class Flow:
    """Follows all values from one place of the code on, until nothing new is found. Variables have their possible values from there on."""

    def __init__(
        self, code: types.CodeType, place: int, stack: Stack, variables: Variables, resolve: Resolve, read: Optional[Read]
    ) -> None:
        self._code = code
        self._read = read
        self._resolve = resolve
        self._prepared = _prepared(code)
        self._instructions, self._places = self._prepared.instructions, self._prepared.places
        self._stacks: dict[int, Stack] = {place: stack}
        self._variables: dict[str, Value] = dict(variables)
        self._pending = [place]  # a heap: in the order of the code

    def run(self) -> None:
        """Raises Noticed."""
        done = -1
        while self._pending:
            place = heapq.heappop(self._pending)
            if place == done and self._pending and self._pending[0] == place:
                continue
            done = place
            self._enter_handlers(place)
            for following, stack in self._step(place, self._stacks[place]):
                self._reach(following, stack)
        self._resolve = nothing_is_known  # this may be cached, and must not keep the variables' values alive

    def stack_at(self, place: int, variables: Variables) -> Stack:
        """`variables`: as they are at `place`."""
        now = dict(variables)

        def known(value: Value) -> Value:
            if not isinstance(value, Variable):
                return value
            between = self._instructions[value.place + 1 : place]
            is_the_same = value.place < place and not any(value.name in _stored_by(each) for each in between)
            return now.get(value.name, OTHER) if is_the_same else OTHER

        return tuple(map(known, self._stacks[place]))

    def _reach(self, place: int, stack: Stack) -> None:
        known = self._stacks.get(place)
        if known is not None and len(known) != len(stack):
            raise Noticed("the depth of the stack")
        both = stack if known is None or known == stack else tuple(map(joined, known, stack))
        if both != known:
            self._stacks[place] = both
            heapq.heappush(self._pending, place)

    def _enter_handlers(self, place: int) -> None:
        for entry in self._prepared.handlers[place]:
            if any(map(has_symbol, self._stacks[place][: entry.depth])):
                raise Noticed("an exception's handler")
            self._reach(self._places[entry.target], (OTHER,) * (entry.depth + entry.lasti + 1))

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
            raise Noticed(instruction.opname)

    def _unknown(self, instruction: dis.Instruction, stack: Stack, jump: bool) -> Stack:
        """An instruction that symbols must not reach."""
        if any(map(has_symbol, stack)):
            raise Noticed(instruction.opname)
        depth = len(stack) + self._effect(instruction, jump)
        if depth < 0:
            raise Noticed(instruction.opname)
        return (OTHER,) * depth

    def _is_read(self, instruction: dis.Instruction) -> bool:
        return self._read is not None and instruction.offset == self._read.offset

    # ---- variables and the stack. None: the instruction is unknown.

    def _nop(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return stack

    _resume = _cache = _extended_arg = _kw_names = _precall = _jump_forward = _jump_backward = _jump_backward_no_interrupt = _nop

    def _pop_top(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return stack[:-1]

    def _push_null(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return (*stack, NULL)

    def _copy(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        copied = stack[-instruction.arg]
        return None if isinstance(copied, List) and copied.is_mutable else (*stack, copied)

    def _swap(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        swapped = list(stack)
        swapped[-1], swapped[-instruction.arg] = swapped[-instruction.arg], swapped[-1]
        return tuple(swapped)

    def _load_const(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return (*stack, Constant(instruction.argval))

    def _load(self, name: str, stack: Stack) -> Stack:
        return (*stack, self._variables.get(name, OTHER))

    def _store(self, name: str, stack: Stack) -> Stack:
        if self._read is None:
            return stack[:-1]
        made = stack[-1]
        if isinstance(made, List) and made.is_mutable:  # its contents may change later
            made = PERHAPS if has_symbol(made) else OTHER
        value = joined(self._variables.get(name, made), made)
        if value != self._variables.get(name):
            self._variables[name] = value
            for place in self._prepared.loads.get(name, ()):
                if place in self._stacks:
                    heapq.heappush(self._pending, place)
        return stack[:-1]

    def _load_fast(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        if self._read is None and instruction.argval not in self._variables:
            return (*stack, Variable(instruction.argval, self._places[instruction.offset]))
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
        value = self._found(Object(("", instruction.argval)))
        if not instruction.arg & 1:
            return (*stack, value)
        return (*stack, value, NULL) if sys.version_info >= (3, 13) else (*stack, NULL, value)

    # ---- attributes and calls

    def _found(self, value: Object) -> Value:
        found = self._resolve(value.path)
        return value if found == OTHER else found

    def _sizes(self) -> tuple[Int, ...]:
        assert self._read is not None
        return tuple(Int(each, least=0) for each in self._read.is_symbol)

    def _attribute(self, instruction: dis.Instruction, of: Value) -> Optional[Value]:
        if has_symbol(of):
            return None
        name = instruction.argval
        if self._is_read(instruction):
            return List(self._sizes()) if name == "shape" else None
        if name == "shape" and of == TENSOR:
            return OTHERS
        if of == TORCH and name in ("_C", "_nn"):
            return TORCH
        if isinstance(of, Object) and name not in METHODS_WITH_SYMBOLS and name not in READS:
            return self._found(Object((*of.path, name)))
        return Named(name, is_torchs=of == TORCH, is_of_tensor=of == TENSOR)

    def _load_attr(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        value = self._attribute(instruction, stack[-1])
        if value is None:
            return None
        is_method = sys.version_info >= (3, 12) and instruction.arg is not None and instruction.arg & 1
        return (*stack[:-1], value, NULL) if is_method else (*stack[:-1], value)

    def _load_method(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        value = self._attribute(instruction, stack[-1])
        return None if value is None else (*stack[:-1], value, OTHER)

    def _call(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        first = len(stack) - instruction.arg
        return (*stack[: first - 2], self._result(instruction, stack[first - 2 : first], stack[first:], self._keywords(instruction)))

    def _call_kw(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        names = items_of(stack[-1])
        first = len(stack) - 1 - instruction.arg
        if names is None:
            return None
        return (*stack[: first - 2], self._result(instruction, stack[first - 2 : first], stack[first:-1], len(names)))

    def _call_function_ex(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        keywords = stack[-1:] if instruction.arg & 1 else ()
        before = stack[: len(stack) - len(keywords)]
        if any(map(has_symbol, keywords)):
            return None
        return (*before[:-3], self._result(instruction, before[-3:-1], before[-1:], 0))

    def _keywords(self, instruction: dis.Instruction) -> int:
        """How many arguments are passed by name. In 3.11 and 3.12 an instruction before the call has their names."""
        place = self._places[instruction.offset] - 1
        while place >= 0 and self._instructions[place].opname == "PRECALL":
            place -= 1
        names = self._instructions[place]
        return len(self._code.co_consts[names.arg]) if place >= 0 and names.opname == "KW_NAMES" and names.arg is not None else 0

    def _result(self, instruction: dis.Instruction, callee: Stack, arguments: Stack, keywords: int) -> Value:
        named = [each for each in callee if isinstance(each, Named)]
        function = named[0] if len(named) == 1 else None
        if any(map(has_symbol, callee)):
            raise Noticed(instruction.opname)
        if self._is_read(instruction):
            return self._size(function, arguments)
        if TRUSTED_ONE in callee and not keywords:
            return PERHAPS
        if not any(map(has_symbol, arguments)):
            if function is None or not function.is_of_tensor or function.name not in ("numel", "size") or keywords:
                return OTHER
            return OTHERS if function.name == "size" and not arguments else ANOTHER
        known = function is not None and function.name in (FUNCTIONS_WITH_SYMBOLS if function.is_torchs else METHODS_WITH_SYMBOLS)
        by_place = arguments[: len(arguments) - keywords]
        if not known or not all(map(may_be_argument, by_place)) or any(map(has_symbol, arguments[len(by_place) :])):
            raise Noticed(instruction.opname)
        return OTHER

    def _size(self, function: Optional[Named], arguments: Stack) -> Value:
        """The result of the call that reads."""
        sizes = self._sizes()
        if function is None or function.name not in READS or any(map(has_symbol, arguments)):
            raise Noticed("a call")
        if function.name == "numel":
            return SIZE
        if not arguments:
            return List(sizes)
        place = arguments[0].value if isinstance(arguments[0], Constant) else None
        return sizes[place] if type(place) is int and -len(sizes) <= place < len(sizes) else SIZE

    # ---- lists and slices

    def _build_tuple(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        first = len(stack) - instruction.arg
        return None if TRUTH in stack[first:] else (*stack[:first], List(stack[first:]))

    def _build_list(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        made = self._build_tuple(instruction, stack)
        return None if made is None else (*made[:-1], made[-1]._replace(is_mutable=True))  # type: ignore[union-attr]

    def _list_extend(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        if instruction.arg != 1:
            return None
        items, more = items_of(stack[-2]), items_of(stack[-1])
        if items is not None and more is not None:
            return (*stack[:-2], List(items + more, is_mutable=True))
        return (*stack[:-2], PERHAPS if any(map(has_symbol, stack[-2:])) else OTHER)

    def _list_append(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        if instruction.arg != 1 or stack[-1] == TRUTH:
            return None
        items = items_of(stack[-2])
        if items is not None:
            return (*stack[:-2], List((*items, stack[-1]), is_mutable=True))
        return (*stack[:-2], PERHAPS if any(map(has_symbol, stack[-2:])) else OTHER)

    def _list_to_tuple(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        made = stack[-1]
        return (*stack[:-1], made._replace(is_mutable=False) if isinstance(made, List) else made)

    def _call_intrinsic_1(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return self._list_to_tuple(instruction, stack) if "LIST_TO_TUPLE" in (instruction.argrepr or "") else None

    def _build_slice(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        first = len(stack) - instruction.arg
        return self._with_slice(stack[:first], stack[first:])

    @staticmethod
    def _with_slice(stack: Stack, parts: Stack) -> Optional[Stack]:
        if any(has_symbol(each) and int_of(each) is None for each in parts):
            return None
        return (*stack, Slice(parts))

    def _binary_subscr(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        value = self._subscript(stack[-2], stack[-1])
        return None if value is None else (*stack[:-2], value)

    def _binary_slice(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        parts = self._with_slice((), stack[-2:])
        value = None if parts is None else self._subscript(stack[-3], parts[0])
        return None if value is None else (*stack[:-3], value)

    def _subscript(self, of: Value, index: Value) -> Optional[Value]:
        if not has_symbol(of) and not isinstance(of, List):
            return OTHER if not has_symbol(index) or self._is_slicing(index) else None
        if of == PERHAPS and isinstance(index, Constant):
            return PERHAPS
        if not isinstance(of, List) or has_symbol(index):
            return None
        if isinstance(index, Slice) and all(isinstance(each, Constant) for each in index.parts):
            return of if of.items is None else List(of.items[slice(*(each.value for each in index.parts))])  # type: ignore[union-attr]
        place = index.value if isinstance(index, Constant) else None
        if type(place) is not int:
            return PERHAPS if has_symbol(of) else OTHER  # one size, or some
        if of.items is None:
            return SIZE if of.may_have_symbols else ANOTHER
        return of.items[place] if -len(of.items) <= place < len(of.items) else None

    @staticmethod
    def _is_slicing(index: Value) -> bool:
        """Whether symbols are only in slices: an object other than a tensor takes them as numbers."""
        parts = [index] if isinstance(index, Slice) else items_of(index) or [index]
        return all(isinstance(each, Slice) or not has_symbol(each) for each in parts)

    def _store_subscr(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        value, of, index = stack[-3:]
        return None if has_symbol(value) or has_symbol(of) or not self._is_slicing(index) else stack[:-3]

    def _store_slice(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        parts = self._with_slice((), stack[-2:])
        return None if parts is None or any(map(has_symbol, stack[-4:-2])) else stack[:-4]

    def _unpack_sequence(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        items = items_of(stack[-1])
        if isinstance(stack[-1], List) and items is None:
            items = (SIZE if stack[-1].may_have_symbols else ANOTHER,) * instruction.arg
        if stack[-1] == PERHAPS:
            items = (PERHAPS,) * instruction.arg
        return None if items is None or len(items) != instruction.arg else (*stack[:-1], *items[::-1])

    def _unpack_ex(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        items, before, behind = items_of(stack[-1]), instruction.arg & 0xFF, instruction.arg >> 8
        if items is None or len(items) < before + behind:
            return None
        end = len(items) - behind
        return (*stack[:-1], *items[end:][::-1], List(items[before:end], is_mutable=True), *items[:before][::-1])

    # ---- arithmetic and comparisons

    def _binary_op(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        left, right = stack[-2:]
        value = self._computed(instruction.argrepr.rstrip("="), left, right)
        if value is None and not has_symbol(left) and not has_symbol(right):
            value = OTHER
        return None if value is None else (*stack[:-2], value)

    def _computed(self, operator: str, left: Value, right: Value) -> Optional[Value]:
        items, more = items_of(left), items_of(right)
        if operator == "+" and items is not None and more is not None:
            return List(items + more)
        if operator == "+" and isinstance(left, List) and isinstance(right, List):
            return PERHAPS if has_symbol(left) or has_symbol(right) else OTHER
        one, other = int_of(left), int_of(right)
        if one is None or other is None:
            return None
        is_symbol = one.may_be_symbol or other.may_be_symbol
        if operator == "-":
            return Int(is_symbol, None)
        if operator in ("+", "*"):
            if one.least is None or other.least is None:
                return Int(is_symbol, None)
            return Int(is_symbol, max(one.least, other.least) if operator == "+" else min(one.least, other.least))
        # C++ rounds toward zero, Python down.
        is_same = one.least is not None and other.least == 1 and not other.may_be_symbol
        return Int(is_symbol, 0) if operator in ("//", "%") and is_same else None

    def _unary_negative(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return (*stack[:-1], Int(stack[-1].may_be_symbol, None)) if isinstance(stack[-1], Int) else None

    def _compare_op(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        left, right = stack[-2:]
        if not has_symbol(left) and not has_symbol(right):
            return (*stack[:-2], OTHER)
        if int_of(left) and int_of(right):
            return (*stack[:-2], TRUTH)
        items, more = items_of(left), items_of(right)  # Python compares lists item by item, and takes the truth value of each
        lists = [items is None or all(map(int_of, items)), more is None or all(map(int_of, more))]
        are_lists = isinstance(left, (List, Constant)) and isinstance(right, (List, Constant))
        return (*stack[:-2], OTHER) if are_lists and all(lists) and (items is not None or more is not None) else None

    def _is_op(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return (*stack[:-2], OTHER) if Constant(None) in stack[-2:] else None

    def _branch(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return stack[:-1] if stack[-1] == TRUTH or isinstance(stack[-1], Int) or not has_symbol(stack[-1]) else None

    _pop_jump_if_true = _pop_jump_if_false = _branch
    _pop_jump_forward_if_true = _pop_jump_forward_if_false = _pop_jump_backward_if_true = _pop_jump_backward_if_false = _branch

    def _to_bool(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        after = self._branch(instruction, stack)
        return None if after is None else (*after, OTHER)

    _unary_not = _to_bool


def instructions_of(code: types.CodeType) -> list[dis.Instruction]:
    return _prepared(code).instructions


def place_of(code: types.CodeType, offset: int) -> Optional[int]:
    """The place of the instruction at the offset."""
    return _prepared(code).places.get(offset)


@functools.lru_cache(maxsize=1024)
def can_be_followed(code: types.CodeType) -> bool:
    flags = 0x20 | 0x80 | 0x100 | 0x200  # generators, coroutines, and iterable and asynchronous ones
    if code.co_flags & flags or not code.co_flags & 0x1 or _LOOKS_AT_VARIABLES.intersection(code.co_names):
        return False
    return len(instructions_of(code)) <= _MOST_INSTRUCTIONS


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
def names_of(code: types.CodeType) -> _Code:
    stored: set[str] = set()
    attributes: set[str] = set()
    for each in instructions_of(code):
        if each.opname in ("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL"):
            attributes.add(each.argval)
        stored.update(_stored_by(each))
    return _Code(frozenset(code.co_varnames) - frozenset(code.co_cellvars), frozenset(stored), frozenset(attributes))
