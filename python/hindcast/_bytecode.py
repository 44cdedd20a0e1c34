"""The instructions of code, and the names in it."""

import dis
import functools
import types
from typing import Any, NamedTuple, Optional

# With these, code reads variables of its own or of its callers other than by name.
_LOOKS_AT_VARIABLES = frozenset(("_getframe", "breakpoint", "currentframe", "dir", "eval", "exec", "locals", "stack", "vars"))
_MOST_INSTRUCTIONS = 4000


class Prepared(NamedTuple):
    """A code's instructions."""

    instructions: list[dis.Instruction]
    places: dict[int, int]  # by offset
    handlers: list[list[Any]]  # of exceptions, by place


@functools.lru_cache(maxsize=1024)
def prepared(code: types.CodeType) -> Prepared:
    instructions = list(dis.get_instructions(code))
    entries = list(getattr(dis.Bytecode(code), "exception_entries", ()))
    return Prepared(
        instructions,
        {each.offset: place for place, each in enumerate(instructions)},
        [[entry for entry in entries if entry.start <= each.offset < entry.end] for each in instructions],
    )


def instructions_of(code: types.CodeType) -> list[dis.Instruction]:
    return prepared(code).instructions


def place_of(code: types.CodeType, offset: int) -> Optional[int]:
    """The place of the instruction at the offset."""
    return prepared(code).places.get(offset)


def call_at(code: types.CodeType, offset: int) -> Optional[int]:
    """The place of the call that runs at the offset, where a frame is while a function in Python runs that it called."""
    known = prepared(code)
    while offset >= 0 and offset not in known.places:  # the instruction's caches
        offset -= 2
    place = known.places.get(offset, len(known.instructions))
    while place < len(known.instructions) and known.instructions[place].opname == "PRECALL":
        place += 1
    is_call = place < len(known.instructions) and known.instructions[place].opname in ("CALL", "CALL_FUNCTION_EX", "CALL_KW")
    return place if is_call else None


@functools.lru_cache(maxsize=1024)
def can_be_followed(code: types.CodeType) -> bool:
    flags = 0x20 | 0x80 | 0x100 | 0x200  # generators, coroutines, and iterable and asynchronous ones
    if code.co_flags & flags or not code.co_flags & 0x1 or _LOOKS_AT_VARIABLES.intersection(code.co_names):
        return False
    return len(instructions_of(code)) <= _MOST_INSTRUCTIONS


class _Code(NamedTuple):
    variables: frozenset[str]  # not shared with other functions
    stored: frozenset[str]
    stored_in_cells: frozenset[str]
    attributes: frozenset[str]  # that it stores


def stored_by(instruction: dis.Instruction) -> tuple[str, ...]:
    """The variables that it stores."""
    name = instruction.opname
    if not name.startswith(("STORE_FAST", "DELETE_FAST")) and "AND_CLEAR" not in name:
        return ()
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
    return names[:1] if name == "STORE_FAST_LOAD_FAST" else names


@functools.lru_cache(maxsize=1024)
def names_of(code: types.CodeType) -> _Code:
    stored: set[str] = set()
    in_cells: set[str] = set()
    attributes: set[str] = set()
    for each in instructions_of(code):
        if each.opname in ("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL"):
            attributes.add(each.argval)
        if each.opname in ("STORE_DEREF", "DELETE_DEREF"):
            in_cells.add(each.argval)
        stored.update(stored_by(each))
    return _Code(frozenset(code.co_varnames) - frozenset(code.co_cellvars), frozenset(stored), frozenset(in_cells), frozenset(attributes))
