"""PyTorch's higher-order operators, such as vmap's call of a custom Function, in traced functions."""

import torch

# The recorder's own key above autograd (capture/recorder/symbolic_composites.h).
_KEY = torch._C._parse_dispatch_key("TESTING_ONLY_GenericMode")
_known = 0


def pass_over_the_recorders_key() -> None:
    """These operators choose their kernel in Python, by the highest key of the thread. Without a fall-through, that is the recorder's, for
    which they have none."""
    global _known
    operators = torch._ops._higher_order_ops
    if len(operators) == _known:
        return
    for operator in list(operators.values()):
        operator.fallthrough(_KEY)
    _known = len(operators)
