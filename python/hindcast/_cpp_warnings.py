"""Passes C++ warnings of a backward to Python's ``warnings`` like PyTorch: after the backward, whose effects stay."""

import sys
import warnings

from ._library import call

_CATEGORIES = {"DeprecationWarning": DeprecationWarning, "UserWarning": UserWarning}


def _warn(category: str, text: str, file: str, line: int, stacklevel: int) -> None:
    if file:
        warnings.warn_explicit(text, _CATEGORIES[category], file, line)
    else:
        warnings.warn(text, _CATEGORIES[category], stacklevel=stacklevel)


def warn_of_kept(stacklevel: int = 4) -> None:
    """Attributed to the caller's caller, as a rule. Raises the first one that a filter turns into an error; later ones are lost."""
    for warning in zip(*call("take_warnings")):
        _warn(*warning, stacklevel=stacklevel)


def warn_of_kept_beside_an_error(stacklevel: int = 4) -> None:
    """The same while an error propagates, which stays the one that is raised: others are only shown."""
    for warning in zip(*call("take_warnings")):
        try:
            _warn(*warning, stacklevel=stacklevel)
        except Exception as error:
            error.__context__ = None  # the propagating error is not its cause
            sys.excepthook(type(error), error, error.__traceback__)
