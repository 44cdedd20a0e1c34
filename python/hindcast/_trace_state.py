"""What a traced call shares with the functions that C++ calls meanwhile: objects that C++ knows by number, and the thread's innermost
call."""

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any, Optional

from ._facts import Call
from ._symbols_for_code import NumbersForPython

kept: dict[int, Any] = {}
_numbers = itertools.count(1)
EAGER, FUNCTIONS = -1, -2  # instead of a number: the function ran; it has to run


def keep(what: Any) -> int:
    number = next(_numbers)
    kept[number] = what
    return number


class Thread(threading.local):
    error: Optional[BaseException] = None  # of a callback, on its way through C++
    call: Optional[Call] = None  # the innermost one
    numbers: Optional[NumbersForPython] = None  # while a function is traced


thread = Thread()


# What PyTorch's C++ says of sizes that are symbols.
_TAKES_NUMBERS = ("with symbolic sizes/strides", "expected to contain only concrete integers")


def raised(error: BaseException) -> str:
    thread.error = error
    try:
        if type(error) is RuntimeError and any(text in str(error) for text in _TAKES_NUMBERS) and hasattr(error, "add_note"):
            error.add_note("hindcast: raised while a function was traced with symbolic sizes. With dynamic='never' it is traced without.")
        return f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
    except Exception:  # of the program's own __str__
        return type(error).__name__


def raise_kept() -> None:
    error, thread.error = thread.error, None
    assert error is not None
    try:
        raise error
    finally:
        del error  # else it would keep its own frame alive


@contextlib.contextmanager
def numbers_for_python() -> Iterator[None]:
    outer = thread.numbers
    numbers = thread.numbers = outer or NumbersForPython()
    try:
        yield
    finally:
        thread.numbers = outer
        if outer is None:
            numbers.end()
