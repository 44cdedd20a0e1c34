"""The names that a function's code mentions: what it can read without its arguments."""

import dis
import functools
import types
from typing import NamedTuple


ANY_NAME = "*"  # among attributes: the code may read any

_READ_ANY_NAME = frozenset(
    (
        *("getattr", "vars", "eval", "exec", "repr", "str", "ascii", "format", "format_map", "attrgetter", "methodcaller"),
        *("getattr_static", "getmembers", "getmembers_static", "copy", "deepcopy", "dump", "dumps", "state_dict"),
        *("__dict__", "__getattribute__", "__getstate__", "__reduce__", "__reduce_ex__", "__repr__", "__format__"),
    )
)


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
            elif instruction.opname.startswith(("FORMAT_", "MATCH_CLASS")):  # calls __repr__(), reads what __match_args__ names
                attributes.add(ANY_NAME)
            elif isinstance(instruction.argval, str):  # also as in getattr(x, "name")
                attributes.add(instruction.argval)
                if instruction.opname == "STORE_ATTR":
                    written.add(instruction.argval)
        waiting.extend(constant for constant in each.co_consts if isinstance(constant, types.CodeType))
    if not _READ_ANY_NAME.isdisjoint(attributes) or not _READ_ANY_NAME.isdisjoint(read):
        attributes.add(ANY_NAME)
    return MentionedNames(tuple(read), tuple(modules), frozenset(attributes), frozenset(written))
