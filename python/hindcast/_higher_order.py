"""PyTorch's higher-order operators, such as vmap's call of a custom Function, in traced functions."""

import torch

# The recorder's: kSymbolicCompositesKey and kRecorderKey.
_KEYS = [torch._C._parse_dispatch_key(name) for name in ("TESTING_ONLY_GenericMode", "Fake")]
_known = 0


def pass_over_the_recorders_keys() -> None:
    """These operators choose their kernel in Python, by the highest key of the thread. Without a fall-through, that is one of the
    recorder's, for which they have none."""
    global _known
    operators = torch._ops._higher_order_ops
    if len(operators) == _known:
        return
    for operator in list(operators.values()):
        for key in _KEYS:
            operator.fallthrough(key)
    _known = len(operators)
