"""The names that a function's code mentions: what it can read without its arguments."""

import dis
import functools
import types
from typing import NamedTuple


class MentionedNames(NamedTuple):
    globals: tuple[str, ...]
    modules: tuple[str, ...]  # that it imports
    attributes: frozenset[str]
    written: frozenset[str]  # attributes, which may be created


@functools.lru_cache(maxsize=4096)
def mentioned(code: types.CodeType) -> MentionedNames:
    """The names that a function reads, including inner functions."""
    read: dict[str, None] = {}
    modules: dict[str, None] = {}
    attributes, written = set(), set()
    waiting = [code]
    while waiting:
        each = waiting.pop()
        for instruction in dis.get_instructions(each):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                read[instruction.argval] = None
            elif instruction.opname == "IMPORT_NAME":
                modules[instruction.argval] = None
            elif isinstance(instruction.argval, str):  # also as in getattr(x, "name")
                attributes.add(instruction.argval)
                if instruction.opname == "STORE_ATTR":
                    written.add(instruction.argval)
        waiting.extend(constant for constant in each.co_consts if isinstance(constant, types.CodeType))
    return MentionedNames(tuple(read), tuple(modules), frozenset(attributes), frozenset(written))
