"""The backend of ``torch.compile``: Dynamo's graph as a compiled function.

Dynamo passes a graph of torch's functions, through which autograd runs as through the user's code. So it is compiled like a function of
tensors. What Dynamo has guarded cannot differ between two calls, and the graph sees nothing but its arguments.
"""

import functools
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import torch
from torch import fx
from torch._ops import HigherOrderOperator
from torch.utils.checkpoint import checkpoint

from . import partition as partitions
from ._aot import aot_function
from ._library import call
from ._size_flow import FUNCTIONS_WITH_SYMBOLS, METHODS_WITH_SYMBOLS

_BACKEND = "torch.compile(backend='hindcast')"
_PARTITIONS = {"standard": partitions.standard, "min_cut": partitions.min_cut}
_OPTIONS = (
    *("partition", "memory_budget", "dynamic", "fw_compiler", "bw_compiler", "layouts", "check_every"),
    *("fallback", "fallback_random", "limit", "async_", "back_off"),
)


def _arguments_of(options: Optional[Mapping[str, Any]]) -> dict[str, Any]:
    """The arguments of aot_function."""
    arguments = {"fallback_random": True, **(options or {})}
    unknown = [name for name in arguments if name not in _OPTIONS]
    if unknown:
        raise ValueError(f"{_BACKEND}: options have {unknown[0]!r}; expected some of {', '.join(map(repr, _OPTIONS))}")
    partition = arguments.pop("partition", "standard")
    if not isinstance(partition, str) or partition not in _PARTITIONS:
        raise ValueError(f"{_BACKEND}: partition is {partition!r}; expected 'standard' or 'min_cut'")
    return {"partition_fn": _PARTITIONS[partition], **arguments}


def _check_mode(mode: Optional[str]) -> None:
    if mode not in (None, "default"):
        raise ValueError(
            f"{_BACKEND}: mode is {mode!r}, which names settings of Inductor; expected 'default'. "
            "Settings of hindcast are given as options={...}."
        )


# ---- sizes

_ARITHMETIC = frozenset(
    (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg, torch.sym_max, torch.sym_min)
)
_DIVISIONS = frozenset((operator.floordiv, operator.mod))
_COMPARISONS = frozenset((operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge))
_SIZES_OF_TENSORS = frozenset(
    (
        torch.ops.aten.sym_size.int,
        torch.ops.aten.sym_stride.int,
        torch.ops.aten.sym_numel.default,
        torch.ops.aten.sym_storage_offset.default,
    )
)
_TAKE_SYMBOLS = frozenset(getattr(torch, name) for name in FUNCTIONS_WITH_SYMBOLS if hasattr(torch, name)) | {torch.full}


def _example(node: Any) -> Any:
    return node.meta.get("example_value") if isinstance(node, fx.Node) else node


def _find_size(argument: fx.Node, tensors: Sequence[fx.Node]) -> Optional[tuple[fx.Node, int]]:
    """The tensor and the dim whose size the argument is."""
    number = _example(argument)
    for tensor in tensors if isinstance(number, torch.SymInt) else ():
        for dim, size in enumerate(_example(tensor).shape):
            if isinstance(size, torch.SymInt) and size.node.expr == number.node.expr:
                return tensor, dim
    return None


def _rounds_as_python(division: fx.Node) -> bool:
    """Whether `//` or `%` rounds down where C++ rounds toward zero: the dividend is known not to be negative, the divisor to be positive."""
    dividend, divisor = map(_example, division.args)
    if isinstance(dividend, torch.Tensor) or isinstance(divisor, torch.Tensor):
        return True  # an operator, which gets the number
    if not isinstance(dividend, (int, torch.SymInt)):
        return False
    is_natural = dividend >= 0 if isinstance(dividend, int) else dividend.node.expr.is_nonnegative
    return bool(is_natural) and isinstance(divisor, int) and divisor > 0


def _rounds_otherwise(number: fx.Node) -> bool:
    return any(
        user.target in _ARITHMETIC and ((user.target in _DIVISIONS and not _rounds_as_python(user)) or _rounds_otherwise(user))
        for user in number.users
    )


def _is_of_integers(user: fx.Node) -> bool:
    return all(isinstance(_example(arg), (int, torch.SymInt)) for arg in user.args)


def _is_arithmetic(user: fx.Node) -> bool:
    return user.target in _ARITHMETIC and _is_of_integers(user)


def _takes_symbol(number: fx.Node, user: fx.Node) -> bool:
    """Where a tensor is expected, Python's binding passes another number."""
    if user.target is operator.getitem:
        index = user.args[1]
        return number is not index and not (isinstance(index, (tuple, list)) and number in index)  # only in slices
    return user.target in (METHODS_WITH_SYMBOLS if user.op == "call_method" else _TAKE_SYMBOLS)


def _guard_on(graph: fx.Graph, comparison: fx.Node) -> None:
    """Replaces the comparison by a bool, which guards the program."""
    if any(user.target is bool for user in comparison.users):
        return  # done already: it was reached through its other operand
    # Dynamo compares sizes with numbers that are too large for a symbol.
    comparison.args = tuple(min(arg, sys.maxsize) if type(arg) is int else arg for arg in comparison.args)
    with graph.inserting_after(comparison):
        decided = graph.call_function(bool, (comparison,))
    comparison.replace_all_uses_with(decided, delete_user_cb=lambda user: user is not decided)


def _read_as_numbers(graph: fx.Graph, symbol: fx.Node) -> bool:
    """Reads the symbol as a number for the operators that take only numbers. Returns False if more is computed with such a number: then the
    sizes that were read do not tell which numbers a program has at other sizes."""
    number, is_all = None, True
    for user in list(symbol.users):
        if _is_arithmetic(user):
            is_all = _read_as_numbers(graph, user) and is_all
        elif user.target in _COMPARISONS and _is_of_integers(user):
            _guard_on(graph, user)
            is_all = False
        elif not _takes_symbol(symbol, user):
            if number is None:
                with graph.inserting_after(symbol):
                    number = graph.call_function(int, (symbol,))
            user.replace_input_with(symbol, number)
            made = _example(user)
            is_all = is_all and user.op != "output" and not isinstance(made, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool))
    return is_all


def _make_constants_by_operators(graph: fx.Graph) -> None:
    """Replaces torch.tensor(), which creates a tensor that no recorder sees: two traces would have two constants."""
    for node in graph.nodes:
        if node.target is not torch.tensor and node.target is not torch._refs.tensor:  # used for a SymInt
            continue
        is_number = len(node.args) == 1 and isinstance(_example(node.args[0]), (bool, int, float, complex, torch.SymInt))
        if is_number and node.kwargs.keys() <= {"dtype", "device"}:
            node.target, node.args = torch.full, ((), *node.args)


def _is_size_of_result(node: fx.Node) -> bool:
    """Whether the graph reads it from a tensor that it computes, or a subgraph returns it."""
    if node.target is operator.getitem:
        return isinstance(_example(node), torch.SymInt) and isinstance(_example(node.args[0]), (tuple, list))
    return node.target in _SIZES_OF_TENSORS


def _read_sizes_of_results(graph: fx.Graph) -> bool:
    """Sizes that depend on data. Returns what _read_as_numbers returns."""
    is_all = True
    for node in [node for node in graph.nodes if _is_size_of_result(node)]:
        if not _rounds_otherwise(node):
            is_all = _read_as_numbers(graph, node) and is_all
            continue
        with graph.inserting_after(node):
            number = graph.call_function(int, (node,))
        node.replace_all_uses_with(number, delete_user_cb=lambda user: user is not number)
        is_all = False
    return is_all


def _read_sizes_from_tensors(graph: fx.Graph) -> tuple[list[int], bool]:
    """Removes arguments that are sizes of others. Returns the numbers of the remaining ones, and whether all numbers that operators get are
    sizes as they were read."""
    arguments = [node for node in graph.nodes if node.op == "placeholder"]
    tensors = [node for node in arguments if isinstance(_example(node), torch.Tensor)]
    first = next(node for node in graph.nodes if node.op != "placeholder")
    stay, is_all = [], True
    for number, argument in enumerate(arguments):
        found = _find_size(argument, tensors)
        if argument.users and found is not None and not _rounds_otherwise(argument):
            with graph.inserting_before(first):
                size = graph.call_function(torch.ops.aten.sym_size.int, found)
            size.meta = dict(argument.meta)
            argument.replace_all_uses_with(size)
            is_all = _read_as_numbers(graph, size) and is_all
        if argument.users or argument in tensors:
            stay.append(number)
        else:
            graph.erase_node(argument)
    return stay, is_all


# ---- what a graph calls

# They call their graphs, and check no dispatch key.
_CALLED_AS_THEY_ARE = ("tag_activation_checkpoint",)


def _higher_order(node: fx.Node) -> str:
    """The name of the operator, if it is one."""
    return node.target.name() if isinstance(node.target, HigherOrderOperator) else ""


def _graphs_in(gm: fx.GraphModule) -> list[fx.GraphModule]:
    return [module for module in gm.modules() if isinstance(module, fx.GraphModule)]


def _call_subgraphs(gm: fx.GraphModule) -> None:
    """Replaces invoke_subgraph, whose own backward only supports traces with fake tensors."""
    for module in _graphs_in(gm):
        found = [node for node in module.graph.nodes if _higher_order(node) == "invoke_subgraph"]
        for node in found:
            subgraph, _, *operands = node.args
            with module.graph.inserting_before(node):
                node.replace_all_uses_with(module.graph.call_module(subgraph.target, tuple(operands)))
            module.graph.erase_node(node)
        if found:
            module.recompile()


_DRAW = ("attention", "bernoulli", "dropout", "exponential", "multinomial", "normal", "poisson", "rand", "rrelu", "uniform")


def _may_draw(gm: fx.GraphModule) -> bool:
    return any(name in str(node.target) for module in _graphs_in(gm) for node in module.graph.nodes for name in _DRAW)


def _call_checkpoints(gm: fx.GraphModule) -> None:
    """Replaces tag_activation_checkpoint, which after 2.11 relies on Inductor to make a dropout draw the same numbers again. A checkpoint
    with a context_fn is not replaced."""
    if torch.__version__.startswith("2.11."):
        return
    for module in _graphs_in(gm):
        for node in [node for node in module.graph.nodes if _higher_order(node) == "tag_activation_checkpoint"]:
            body = operator.attrgetter(node.args[0].target)(module)
            if "_checkpoint_context_fn" in body.meta or not _may_draw(body):
                continue
            node.target = checkpoint
            node.kwargs = {**node.kwargs, "use_reentrant": False, "preserve_rng_state": True}
            module.recompile()


class _TracedFunction:
    """A call of a custom Function whose forward and backward are Dynamo's graphs."""

    def __init__(self, fwd: fx.GraphModule, bwd: fx.GraphModule, non_differentiable: Sequence[int], for_backward: Sequence[int]) -> None:
        self.fwd, self.bwd, self.non_differentiable, self.for_backward = fwd, bwd, non_differentiable, for_backward
        self.saved: list[Any] = []


class _Applied(torch.autograd.Function):
    """autograd_function_apply. PyTorch's keeps what the forward saves in a reference cycle, which would look like a tensor that the graph
    keeps."""

    is_traceable = True  # the backward only calls PyTorch's operators

    @staticmethod
    def forward(function: _TracedFunction, *args: Any) -> Any:
        output, saved = function.fwd(*args)
        function.saved = list(saved)
        return output

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        function = inputs[0]
        saved, function.saved = function.saved, []
        ctx.bwd = function.bwd
        ctx.places = [place for place in function.for_backward if isinstance(saved[place], torch.Tensor)]
        ctx.save_for_backward(*(saved[place] for place in ctx.places))
        ctx.others = [None if place in ctx.places else value for place, value in enumerate(saved)]
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        ctx.mark_non_differentiable(*(outputs[place] for place in function.non_differentiable))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        values = list(ctx.others)
        for place, value in zip(ctx.places, ctx.saved_tensors):
            values[place] = value
        found = ctx.bwd(*grads, *values)
        return None, *(found if isinstance(found, (tuple, list)) else (found,))


def _apply_traced_function(fwd: fx.GraphModule, bwd: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    known = {name: kwargs[name] for name in ("non_differentiable_idx", "saved_for_backward_idx") if name in kwargs}
    if len(known) != 2 or any(kwargs[name] for name in kwargs if name not in known):  # of another release, or mark_dirty()
        return torch.ops.higher_order.autograd_function_apply(fwd, bwd, *args, **kwargs)
    return _Applied.apply(_TracedFunction(fwd, bwd, *known.values()), *args)


def _trace_through_functions(gm: fx.GraphModule) -> None:
    for module in _graphs_in(gm):
        found = [node for node in module.graph.nodes if _higher_order(node) == "autograd_function_apply"]
        for node in found:
            node.target = _apply_traced_function
        if found:
            module.recompile()


def _why_eager(gm: fx.GraphModule) -> Optional[str]:
    """What a program cannot express."""
    for module in _graphs_in(gm):
        if "_checkpoint_context_fn" in module.meta:
            return "a checkpoint has a context_fn"
        for node in module.graph.nodes:
            if _higher_order(node) not in ("", *_CALLED_AS_THEY_ARE):
                return f"it calls the higher-order operator {_higher_order(node)}"
    return None


def _sees_arguments_alone(gm: fx.GraphModule) -> bool:
    """Except for its own graphs and tensors. Not if torch._dynamo.config.inline_inbuilt_nn_modules is off: then it calls modules."""
    seen = [node.target for node in gm.graph.nodes if node.op in ("call_module", "get_attr")]
    return all(isinstance(operator.attrgetter(target)(gm), fx.GraphModule) for target in seen)


def _calls_only_torch(gm: fx.GraphModule) -> bool:
    """Whether it calls no code that could draw random numbers of Python's or NumPy's."""

    def is_torchs(target: Any) -> bool:
        if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            return str(target).startswith("aten.")
        return (getattr(target, "__module__", None) or "").partition(".")[0] in ("torch", "_operator", "math")

    called = (node.target for module in _graphs_in(gm) for node in module.graph.nodes if node.op == "call_function")
    return all(map(is_torchs, called))


# ---- the backend


def _function_of(gm: fx.GraphModule) -> tuple[Callable[..., Any], Optional[Callable[..., Any]], bool]:
    """The graph as a function; a function that picks its arguments out of Dynamo's, or None: they are the same; whether one program can be
    inferred for all sizes from those at two."""
    count = len(gm.graph.find_nodes(op="placeholder"))
    has_sizes = any(isinstance(_example(node), torch.SymInt) for node in gm.graph.find_nodes(op="placeholder"))
    if not has_sizes and not any(_is_size_of_result(node) for module in _graphs_in(gm) for node in module.graph.nodes):
        _ = gm.code  # Dynamo's graphs create their forward on demand
        return gm.forward, None, True
    own = _with_own_graphs(gm)
    _make_constants_by_operators(own.graph)
    is_all = all([_read_sizes_of_results(module.graph) for module in _graphs_in(own)])
    stay, are_all_read = _read_sizes_from_tensors(own.graph)
    for module in _graphs_in(own):
        for node in module.graph.nodes:
            node.meta.clear()  # Dynamo's fake tensors, which would live as long as the program
        module.recompile()
    return own.forward, None if len(stay) == count else _picker(stay), is_all and are_all_read


def _with_own_graphs(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy. The graphs themselves are Dynamo's, which may pass them to us once more."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, val_map={}, return_output_node=False))
    own = fx.GraphModule(gm, graph)
    own.meta = gm.meta
    for name, child in list(own.named_children()):
        if isinstance(child, fx.GraphModule):
            setattr(own, name, _with_own_graphs(child))
    return own


def _picker(stay: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    if len(stay) == 1:
        (only,) = stay
        return lambda args: (args[only],)
    return operator.itemgetter(*stay) if stay else lambda args: ()


def _eagerly(gm: fx.GraphModule, why: str, arguments: Mapping[str, Any]) -> Callable[..., Any]:
    if not arguments.get("fallback", True):
        raise RuntimeError(f"{_BACKEND}: a graph cannot be traced: {why}")
    call("record_eager_function", why)
    call("aot_tell", f"a graph of torch.compile runs eagerly: {why}", True)
    return gm.forward


def dynamo_backend(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Optional[Mapping[str, Any]] = None, mode: Optional[str] = None
) -> Callable[..., Any]:
    """The backend of ``torch.compile(model, backend="hindcast")``, called with each graph. Another backend may call it, too.

    Args:
        gm: Dynamo's graph of torch's functions; invoke_subgraph in it becomes a call.
        example_inputs: ignored. The first call traces, with its own tensors.
        options: of :func:`aot_function`, and ``partition``, ``"standard"`` or ``"min_cut"``. docs/torch-compile.md lists them.
        mode: ``"default"``.

    Returns:
        A callable that takes the graph's inputs, including sizes, and returns its outputs.

    Raises:
        TypeError, ValueError: for a bad option or mode. ``torch.compile`` raises its BackendCompilerFailed with the text.
        RuntimeError: with ``fallback=False``, for a graph that cannot become a program.
    """
    _check_mode(mode)
    arguments = _arguments_of(options)
    _call_subgraphs(gm)
    _call_checkpoints(gm)
    _trace_through_functions(gm)
    why = _why_eager(gm)
    if why is not None:
        return _eagerly(gm, why, arguments)
    try:
        function, picked, may_be_inferred = _function_of(gm)
    except KeyError as missing:  # seen with a custom Function, a hook and dynamic sizes
        return _eagerly(gm, f"Dynamo's graph reads {missing}, which it does not define", arguments)
    compiled = aot_function(function, **{"dynamic": "inferred" if may_be_inferred else "automatic", **arguments})
    if _sees_arguments_alone(gm):
        compiled.see_arguments_alone()
        compiled.draws_only_torchs = _calls_only_torch(gm)
    if picked is None:
        return compiled
    return functools.wraps(compiled, updated=())(lambda *args: compiled(*picked(args)))
