"""Where a size that a function reads goes: whether a symbol of PyTorch's (``torch.SymInt``) can replace it unnoticed.

A symbol is no int: ``isinstance(n, int)``, ``hash(n)`` and numpy see the difference. So code gets symbols only where its bytecode says
that they go nowhere but into arithmetic with each other and with constants, comparisons that a branch takes at once, bounds of slices,
arguments of PyTorch's functions that take symbols, and arguments of functions and modules in Python that handle them likewise. All other
code gets plain numbers, and so does a function in Python that was not followed (`_symbols_for_code.NumbersForPython`).
"""

import dis
import functools
import heapq
import sys
import types
from collections.abc import Iterator
from typing import NamedTuple, Optional

from ._bytecode import can_be_followed, names_of, prepared, stored_by
from ._size_calls import FUNCTIONS_WITH_SYMBOLS, METHODS_WITH_SYMBOLS, METHODS_OF_ONE_TENSOR, TENSOR_OPERATORS, bound, result_of
from ._size_values import (  # fmt: skip
    ANOTHER, NO_READ, NOT_A_TENSORS, NULL, OTHER, OTHERS, PERHAPS, SIZE, TENSOR, TORCH, TRUTH, Call, Computed, Constant, Function, Int,
    Known, List, Named, Noticed, Object, Read, Resolve, Slice, Stack, Value, Variable, Variables, are_ints, has_symbol, int_of, items_of,
    joined, may_be_argument, nothing_is_known, tensor_of,
)

READS = frozenset(("nelement", "numel", "shape", "size"))
VIEWS = frozenset(("H", "T", "mH", "mT"))  # attributes that are operators
# Instructions implemented by C++ code that supports symbols.
INDEXING = frozenset(("BINARY_SUBSCR", "STORE_SUBSCR", "BINARY_SLICE", "STORE_SLICE"))
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_GOES_ON_THERE = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
_MOST_DEPTH, _MOST_FOR_SIZES = 6, 100


def _is_none(value: Value) -> Optional[bool]:
    """None: it is not known."""
    if isinstance(value, Constant):
        return value.value is None
    return False if value == TENSOR or isinstance(value, (Int, List, Slice)) else None


def _jumps(instruction: dis.Instruction, stack: Stack) -> Optional[bool]:
    """Whether a jump is taken. None: it depends on what is not known."""
    name = instruction.opname
    if name.endswith(("IF_NONE", "IF_NOT_NONE")):
        is_none = _is_none(stack[-1])
        return is_none if is_none is None or name.endswith("IF_NONE") else not is_none
    is_known = name.endswith(("IF_TRUE", "IF_FALSE")) and isinstance(stack[-1], Constant) and type(stack[-1].value) in (bool, type(None))
    return bool(stack[-1].value) is name.endswith("IF_TRUE") if is_known else None  # type: ignore[union-attr]


class _State(NamedTuple):
    """What is known before an instruction."""

    stack: Stack
    variables: dict[str, Value]

    def joined_with(self, other: "_State") -> "_State":
        """The same object, if nothing is new."""
        stack = tuple(map(joined, self.stack, other.stack))
        variables = self.variables
        if variables is not other.variables:
            new = {name: joined(variables.get(name, value), value) for name, value in other.variables.items()}
            if any(variables.get(name, _UNBOUND) != value for name, value in new.items()):
                variables = {**variables, **new}
        return self if stack == self.stack and variables is self.variables else _State(stack, variables)


_UNBOUND = object()


class Flow:
    """Follows all values from one place of the code on, until nothing new is found, and into functions in Python that get symbols."""

    def __init__(
        self, code: types.CodeType, place: int, stack: Stack, variables: Variables, resolve: Resolve, read: Optional[Read],
        within: Optional["Flow"] = None, function_at: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.returned: Value = OTHER  # joined from all returns
        self.calls: set[Call] = set() if within is None else within.calls
        self._depth: int = 0 if within is None else within._depth + 1
        self._returns = False
        self._globals_at = (*function_at, "__globals__") if function_at else ("",)
        self._cells_at = (*function_at, "__closure__") if function_at else ()
        self._code = code
        self._read = read
        self._resolve = resolve
        self._prepared = prepared(code)
        self._instructions, self._places = self._prepared.instructions, self._prepared.places
        self._methods = _methods(code)
        self._states: dict[int, _State] = {place: _State(stack, dict(variables))}
        self._variables: dict[str, Value] = {}  # at the present place; never written, so that states share it
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
            stack, self._variables = self._states[place]
            for following, stack in self._step(place, stack):
                self._reach(following, _State(stack, self._variables))
        self._resolve = nothing_is_known  # this may be cached, and must not keep the variables' values alive

    def stack_at(self, place: int, variables: Variables, resolve: Resolve) -> Stack:
        """`variables`: as they are at `place`."""
        now = dict(variables)
        return tuple(self._now(value, place, now, resolve) for value in self._states[place].stack)

    def _now(self, value: Value, place: int, variables: dict[str, Value], resolve: Resolve) -> Value:
        if isinstance(value, Variable):
            between = self._instructions[value.place + 1 : place]
            is_the_same = value.place < place and not any(value.name in stored_by(each) for each in between)
            return variables.get(value.name, OTHER) if is_the_same else OTHER
        if isinstance(value, Computed):
            return TENSOR if all(self._now(each, place, variables, resolve) == TENSOR for each in value.of) else OTHER
        if isinstance(value, Named) and value.of is not None:
            of = self._now(value.of, place, variables, resolve)
            is_foreign = isinstance(of, Object) and resolve((*of.path, value.name + "()")) == NOT_A_TENSORS
            return OTHER if is_foreign else value._replace(of=of if of == TENSOR else None)
        return value

    def _reach(self, place: int, state: "_State") -> None:
        known = self._states.get(place)
        if known is not None and len(known.stack) != len(state.stack):
            raise Noticed("the depth of the stack")
        both = state if known is None else known.joined_with(state)
        if both is not known:
            self._states[place] = both
            heapq.heappush(self._pending, place)

    def _enter_handlers(self, place: int) -> None:
        stack, variables = self._states[place]
        for entry in self._prepared.handlers[place]:
            if any(map(has_symbol, stack[: entry.depth])):
                raise Noticed("an exception's handler")
            self._reach(self._places[entry.target], _State((OTHER,) * (entry.depth + entry.lasti + 1), variables))

    def _step(self, place: int, stack: Stack) -> Iterator[tuple[int, Stack]]:
        instruction = self._instructions[place]
        method = self._methods[place]
        after = None if method is None else getattr(self, method)(instruction, stack)
        is_jump = instruction.opcode in _JUMPS
        if instruction.opname == "FOR_ITER" and after is not None:
            yield place + 1, after
            at_end = len(stack) + self._effect(instruction, jump=True)
            yield self._places[instruction.argval], (*stack[:-1], OTHER, OTHER)[:at_end]
            return
        if after is not None and not is_jump:
            self._check(instruction, len(after) - len(stack))
        jumps = _jumps(instruction, stack) if is_jump else False
        if instruction.opname not in _ENDS and instruction.opname not in _GOES_ON_THERE and jumps is not True:
            yield place + 1, self._unknown(instruction, stack, jump=False) if after is None else after
        elif after is None and instruction.opname in _ENDS:
            self._unknown(instruction, stack, jump=False)
        if is_jump and jumps is not False:
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
        self._variables = {**self._variables, name: made}
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
        value = self._found(Object((*self._globals_at, instruction.argval)))
        if not instruction.arg & 1:
            return (*stack, value)
        return (*stack, value, NULL) if sys.version_info >= (3, 13) else (*stack, NULL, value)

    def _load_deref(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        if instruction.argval not in self._code.co_freevars or instruction.argval in names_of(self._code).stored_in_cells:
            return (*stack, OTHER)
        return (*stack, self._found(Object((*self._cells_at, instruction.argval))))

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
        if name == "shape":  # of any object: ints, or what computes with symbols as with ints
            return OTHERS
        if of == TORCH and name in ("_C", "_nn"):
            return TORCH
        if isinstance(of, Object):
            found = self._found(Object((*of.path, name)))
            if not isinstance(found, Object) or (name not in METHODS_WITH_SYMBOLS and name not in READS):
                return found
            if self._resolve((*of.path, name + "()")) == NOT_A_TENSORS:
                return OTHER
        return Named(name, of == TORCH, of if of == TENSOR or isinstance(of, (Computed, Variable)) else None)

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
        return (*stack[: first - 2], self._result(instruction, stack[first - 2 : first], stack[first:], self._names(instruction)))

    def _call_kw(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        names = stack[-1].value if isinstance(stack[-1], Constant) else None
        first = len(stack) - 1 - instruction.arg
        if names is None:
            return None
        return (*stack[: first - 2], self._result(instruction, stack[first - 2 : first], stack[first:-1], names))

    def _call_function_ex(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        assert instruction.arg is not None
        keywords = stack[-1:] if instruction.arg & 1 else ()
        before = stack[: len(stack) - len(keywords)]
        if any(map(has_symbol, keywords)):
            return None
        items = items_of(before[-1])
        if items is not None and not keywords:
            return (*before[:-3], self._result(instruction, before[-3:-1], items, ()))
        return (*before[:-3], self._result(instruction, before[-3:-1], before[-1:], None))

    def _names(self, instruction: dis.Instruction) -> tuple[str, ...]:
        """Those of the arguments that are passed by name. In 3.11 and 3.12 an instruction before the call has them."""
        place = self._places[instruction.offset] - 1
        while place >= 0 and self._instructions[place].opname == "PRECALL":
            place -= 1
        names = self._instructions[place]
        return self._code.co_consts[names.arg] if place >= 0 and names.opname == "KW_NAMES" and names.arg is not None else ()

    def _result(self, instruction: dis.Instruction, callee: Stack, arguments: Stack, names: Optional[tuple[str, ...]]) -> Value:
        """`names`: of the last arguments. None: the arguments are a list, and perhaps a mapping."""
        named = [each for each in callee if isinstance(each, Named)]
        function = named[0] if len(named) == 1 else None
        if any(map(has_symbol, callee)):
            raise Noticed(instruction.opname)
        if self._is_read(instruction):
            return self._size(function, arguments) if self._read.function is None else self._returned(callee)  # type: ignore[union-attr]
        keywords = 0 if names is None else len(names)
        known = next((each for each in callee if isinstance(each, Known)), None)
        result = None if known is None else result_of(known.name, arguments, keywords)
        if result is None and names is not None:
            result = self._result_in_python(instruction, callee, arguments, names)
        if result is not None:
            return result
        if not any(map(has_symbol, arguments)):
            if function is not None and function.name in TENSOR_OPERATORS and (function.is_torchs or function.of is not None):
                return tensor_of(arguments if function.is_torchs else (function.of, *arguments)) or OTHER
            if function is not None and function.name in METHODS_OF_ONE_TENSOR and function.of is not None:
                return tensor_of((function.of,)) or OTHER
            if function is None or function.name not in ("nelement", "numel", "size") or keywords:
                return OTHER
            return OTHERS if function.name == "size" and not arguments else ANOTHER
        takes = function is not None and function.name in (FUNCTIONS_WITH_SYMBOLS if function.is_torchs else METHODS_WITH_SYMBOLS)
        by_place = arguments[: len(arguments) - keywords]
        if not takes or not all(map(may_be_argument, by_place)) or any(map(has_symbol, arguments[len(by_place) :])):
            raise Noticed(instruction.opname)
        is_tensor = function is not None and function.of is not None and function.name in METHODS_OF_ONE_TENSOR
        return tensor_of((function.of,)) or OTHER if is_tensor else OTHER  # type: ignore[union-attr]

    def _function(self, callee: Stack) -> Optional[Function]:
        found = [each for each in callee if isinstance(each, Object)]
        function = self._resolve((*found[0].path, "()")) if len(found) == 1 else None
        return function if isinstance(function, Function) else None

    def _returned(self, callee: Stack) -> Value:
        """The result of the call that reads: of a function in Python that has just run."""
        function = self._function(callee)
        if self._read is None or function is None or function.code is not self._read.function:
            raise Noticed("a call")
        return self._read.returned

    def _result_in_python(
        self, instruction: dis.Instruction, callee: Stack, arguments: Stack, names: tuple[str, ...]
    ) -> Optional[Value]:  # fmt: skip
        """Follows the function. None: it is unknown."""
        is_given = any(map(has_symbol, arguments))
        function = self._function(callee)
        if function is None or not self._can_follow(function.code, is_given):
            return None
        variables = bound(function, arguments, names)
        if variables is None:
            return None
        if function.is_reviewed:
            return OTHER
        within = Flow(function.code, 0, (), variables, self._resolve, NO_READ, self, function.path)
        try:
            within.run()
        except (Noticed, IndexError, KeyError):
            if is_given:
                raise
            return None
        if is_given:
            with_symbols = frozenset(name for name, value in variables if has_symbol(value))
            self.calls.add(Call(self._code, instruction.offset, function.code, with_symbols))
        return within.returned

    def _can_follow(self, code: types.CodeType, is_given: bool) -> bool:
        """A function that is given no symbols may return sizes; only short ones are followed for that."""
        if is_given:
            return self._depth < _MOST_DEPTH and can_be_followed(code) and not names_of(code).attributes
        return self._depth < 2 and len(prepared(code).instructions) <= _MOST_FOR_SIZES and can_be_followed(code)

    def _return_value(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        if stack[-1] == TRUTH or isinstance(stack[-1], Slice) or any(map(has_symbol, stack[:-1])):
            return None
        self.returned = joined(self.returned, stack[-1]) if self._returns else stack[-1]
        self._returns = True
        return stack[:-1]

    def _size(self, function: Optional[Named], arguments: Stack) -> Value:
        """The result of the call that reads."""
        sizes = self._sizes()
        if function is None or function.name not in READS or any(map(has_symbol, arguments)):
            raise Noticed("a call")
        if function.name in ("nelement", "numel"):
            return SIZE
        if not arguments:
            return List(sizes)
        place = arguments[0].value if isinstance(arguments[0], Constant) else None
        return sizes[place] if type(place) is int and -len(sizes) <= place < len(sizes) else SIZE

    # ---- text of an error

    def _raises(self, place: int) -> bool:
        """Whether the code from there on does nothing but raise an exception."""
        for each in self._instructions[place:]:
            if each.opname == "RAISE_VARARGS":
                return True
            if each.opcode in _JUMPS or each.opname.startswith(("STORE", "DELETE")) or each.opname in _ENDS:
                return False
        return False

    def _format_value(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        """A symbol's text is its number's, and reads it: every number would have a program of its own, except if the text is an error's."""
        has_format = sys.version_info < (3, 13) and bool(instruction.arg and instruction.arg & 4)
        items = items_of(stack[-1])
        if has_format or int_of(items[0] if items else stack[-1]) is None or not self._raises(self._places[instruction.offset]):
            return None
        return (*stack[:-1], OTHER) if items is None or all(map(int_of, items)) else None

    _format_simple = _convert_value = _format_value

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
        if isinstance(of, Object) and isinstance(index, Constant):
            return self._found(Object((*of.path, f"[{index.value!r}]")))
        if of == TENSOR or isinstance(of, (Computed, Variable)):
            tensor = tensor_of((of, *(items_of(index) or (index,))))
            if tensor is not None and (not has_symbol(index) or self._is_slicing(index)):
                return tensor
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

    # ---- elements of containers

    def _get_iter(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        if has_symbol(stack[-1]):
            return None
        return (*stack[:-1], Object((*stack[-1].path, "[*]")) if isinstance(stack[-1], Object) else OTHER)

    def _for_iter(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return (*stack, stack[-1])

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
            operators = "+ *" if has_symbol(left) else "+ - * /" if has_symbol(right) else "+ - * / ** @"  # else PyTorch's code is Python
            return tensor_of((left, right)) if operator in operators.split() else None
        is_symbol = one.may_be_symbol or other.may_be_symbol
        if operator == "-":
            return Int(is_symbol, None)
        if operator in ("+", "*"):
            if one.least is None or other.least is None:
                return Int(is_symbol, None)
            return Int(is_symbol, max(one.least, other.least) if operator == "+" else min(one.least, other.least))
        # C++ rounds toward zero, Python down.
        is_same = one.least is not None and (other.least == 1 or (other.least == 0 and other.may_be_symbol))  # a plain 0 is an error
        return Int(is_symbol, 0) if operator in ("//", "%") and is_same else None

    def _unary_negative(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        tensor = None if isinstance(stack[-1], Int) else tensor_of(stack[-1:])
        if tensor is not None:
            return (*stack[:-1], tensor)
        return (*stack[:-1], Int(stack[-1].may_be_symbol, None)) if isinstance(stack[-1], Int) else None

    def _compare_op(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        left, right = stack[-2:]
        if not has_symbol(left) and not has_symbol(right):
            return (*stack[:-2], OTHER)
        if int_of(left) and int_of(right):
            return (*stack[:-2], TRUTH)
        # Python compares lists item by item, and takes the truth value of each.
        return (*stack[:-2], OTHER) if are_ints(left) and are_ints(right) else None

    def _is_op(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        if Constant(None) not in stack[-2:]:
            return None
        is_none = _is_none(stack[-2] if stack[-1] == Constant(None) else stack[-1])
        return (*stack[:-2], OTHER if is_none is None else Constant(is_none is not bool(instruction.arg)))

    def _branch(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return stack[:-1] if stack[-1] == TRUTH or isinstance(stack[-1], Int) or not has_symbol(stack[-1]) else None

    def _branch_by_none(self, _: dis.Instruction, stack: Stack) -> Optional[Stack]:
        return stack[:-1]

    _pop_jump_if_none = _pop_jump_if_not_none = _pop_jump_forward_if_none = _pop_jump_forward_if_not_none = _branch_by_none
    _pop_jump_backward_if_none = _pop_jump_backward_if_not_none = _branch_by_none
    _pop_jump_if_true = _pop_jump_if_false = _branch
    _pop_jump_forward_if_true = _pop_jump_forward_if_false = _pop_jump_backward_if_true = _pop_jump_backward_if_false = _branch

    def _to_bool(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        after = self._branch(instruction, stack)
        return None if after is None else (*after, OTHER)

    def _unary_not(self, instruction: dis.Instruction, stack: Stack) -> Optional[Stack]:
        value = stack[-1]
        is_known = isinstance(value, Constant) and type(value.value) in (bool, type(None))
        return (*stack[:-1], Constant(not value.value)) if is_known else self._to_bool(instruction, stack)  # type: ignore[union-attr]


@functools.lru_cache(maxsize=1024)
def _methods(code: types.CodeType) -> list[Optional[str]]:
    """By place: that of Flow for the instruction."""
    names = ["_" + each.opname.lower() for each in prepared(code).instructions]
    return [name if hasattr(Flow, name) else None for name in names]
