"""Random generators that programs do not draw from: Python's and NumPy's."""

import pickle
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


def _state_of(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    bits = generator.bit_generator if hasattr(generator, "bit_generator") else generator._bit_generator
    return pickle.dumps(bits.state)


def random_states(generators: Iterable[Any]) -> list[Any]:
    """The states of these and of the global generators: equal as long as nobody draws."""
    return [_state_of(each) for each in (*_of_all(), *generators)]
