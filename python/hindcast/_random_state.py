"""Random generators that programs do not draw from: Python's and NumPy's."""

import random
import sys
from collections.abc import Iterable
from typing import Any


def is_generator(value: Any) -> bool:
    kind = type(value)
    if issubclass(kind, random.Random):
        return not issubclass(kind, random.SystemRandom)
    return kind.__module__.startswith("numpy.random") and (hasattr(kind, "bit_generator") or hasattr(value, "_bit_generator"))


def _of_all() -> list[Any]:
    """The generators behind the modules ``random`` and ``numpy.random``."""
    numpys = getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
    ours = random._inst
    return [ours] if numpys is None else [ours, numpys]


def _comparable(state: Any) -> Any:
    if isinstance(state, dict):
        return [(name, _comparable(value)) for name, value in state.items()]
    return state.tobytes() if hasattr(state, "tobytes") else state


def _state_of(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return _comparable(generator.bit_generator.state)
    return _comparable(generator.get_state(legacy=False))  # with the second normal number of a pair, which it keeps


def random_states(generators: Iterable[Any]) -> list[Any]:
    """The states of these and of the global generators: equal as long as nobody draws."""
    return [_state_of(each) for each in (*_of_all(), *generators)]
