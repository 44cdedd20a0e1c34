"""Calls of functions that are known: which take symbols, what they return, and how arguments become parameters."""

from typing import Optional

from ._size_values import (  # fmt: skip
    ANOTHER, NOT_OF_INTS, OTHER, PERHAPS, TRUTH, Function, Int, List, Object, Slice, Stack, Value, Variable, Variables, are_ints,
    has_symbol, int_of, items_of, least_of, tensor_of,
)

_OF_TENSORS = frozenset(
    ("broadcast_to", "narrow", "repeat_interleave", "reshape", "roll", "select", "split", "split_with_sizes", "tile", "unflatten")
)
METHODS_WITH_SYMBOLS = _OF_TENSORS | frozenset(("expand", "new_empty", "new_full", "new_ones", "new_zeros", "repeat", "view"))
METHODS_OF_ONE_TENSOR = METHODS_WITH_SYMBOLS - {"split", "split_with_sizes"}  # by their result
_FACTORIES = ("arange", "empty", "eye", "full", "ones", "rand", "randint", "randn", "randperm", "zeros")
FUNCTIONS_WITH_SYMBOLS = _OF_TENSORS | frozenset((*_FACTORIES, "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"))
# PyTorch's functions in Python that are correct with symbols, and return no symbols: their code was reviewed.
REVIEWED = frozenset(
    ("_check_key_padding_mask", "_verify_batch_size", "_verify_spatial_size", "affine_grid", "fold", "interpolate", "pad", "upsample")
)
# Operators whose result is one tensor, as methods and as functions of torch's.
TENSOR_OPERATORS = frozenset(
    ("abs", "clamp", "double", "exp", "float", "log", "mean", "mul", "neg", "norm", "pow", "relu", "sigmoid", "sqrt", "square", "sub")
    + ("sum", "tanh", "add", "div", "matmul", "contiguous", "detach", "logsumexp", "sin", "cos", "view_as", "where", "clone", "softmax")
    + ("log_softmax", "zeros_like", "ones_like", "randn_like", "rand_like", "flatten", "unsqueeze", "squeeze", "transpose", "amax")
)
# Functions of torch.nn.functional whose result is one tensor.
FUNCTIONALS = frozenset(
    ("binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "huber_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss")
    + ("smooth_l1_loss", "relu", "silu", "gelu", "softmax", "log_softmax", "linear", "normalize", "softplus")
)


def result_of(name: str, arguments: Stack, keywords: int) -> Optional[Value]:
    """The result of a function that is known. None: symbols must not reach it."""
    if name in FUNCTIONALS:
        return tensor_of(arguments) if not any(map(has_symbol, arguments)) else None
    if name in REVIEWED:
        return OTHER if TRUTH not in arguments else None
    if keywords or not arguments:
        return None
    first = arguments[0]
    if name == "_list_with_default":
        return first if int_of(first) or (are_ints(first) and not has_symbol(first)) else PERHAPS
    if name == "isinstance":
        classes = items_of(arguments[1]) or arguments[1:]
        is_followed = isinstance(first, List) or all(each == NOT_OF_INTS for each in classes)
        return OTHER if is_followed and (int_of(first) or isinstance(first, List)) else None
    numbers = first if len(arguments) == 1 else List(arguments)
    if not isinstance(numbers, List) or not are_ints(numbers):
        return None
    if name in ("min", "max"):
        return Int(*least_of(numbers))
    if len(arguments) > 1:
        return None
    if name == "len":
        return ANOTHER
    if name in ("list", "tuple"):
        return numbers._replace(is_mutable=name == "list" and numbers.items is not None)
    is_negative = least_of(numbers)[1] is None and numbers.items != ()
    return Int(has_symbol(numbers), None if is_negative else 0) if name in ("prod", "sum") else None


def bound(function: Function, arguments: Stack, names: tuple[str, ...]) -> Optional[Variables]:
    """The function's variables at its start. None: its parameters do not fit, or one that a closure shares gets symbols."""
    code = function.code
    count = len(arguments) - len(names)
    positional = [*([Object(function.path[:-1])] if function.is_method else []), *map(_passed, arguments[:count])]
    named = dict(zip(names, map(_passed, arguments[count:])))
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    variables: dict[str, Value] = {**dict(function.defaults), **dict(zip(parameters[: code.co_argcount], positional))}
    rest = code.co_varnames[len(parameters) :]
    if code.co_flags & 0x4:  # *args
        variables[rest[0]] = List(tuple(positional[code.co_argcount :]))
    elif len(positional) > code.co_argcount:
        return None
    if code.co_flags & 0x8 or not set(parameters[code.co_posonlyargcount :]).issuperset(named):  # **kwargs
        if any(map(has_symbol, named.values())):
            return None
    variables.update((name, value) for name, value in named.items() if name in parameters)
    for name, value in variables.items():
        if value == TRUTH or isinstance(value, Slice) or (has_symbol(value) and name in code.co_cellvars):
            return None
    return tuple(sorted(variables.items()))


def _passed(value: Value) -> Value:
    """What an argument is for the function: it may change a list."""
    if isinstance(value, List) and value.is_mutable:
        return PERHAPS if has_symbol(value) else OTHER
    return OTHER if isinstance(value, Variable) else value
