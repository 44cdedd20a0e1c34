"""A training step in one call: forward, gradients, clipping and updates."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Optional

import torch
from torch.optim.optimizer import Optimizer
from torch.utils import _pytree as pytree

from ._aot import AotFunction, aot_function
from ._flatten import is_size
from ._library import calls, ops
from ._optim import ClipGradNorm, CompiledStep, compiled_step

_accumulators_are_hooked = ops.train_accumulators_are_hooked.default._op
_is_traced = ops.train_is_traced.default._op
_MOST_LISTS = 8
_NOT_KNOWN = object()  # to hindcast._C
_SCALE = "_hindcast_scale"
_SIMPLE = frozenset((torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None)))


def _check_count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"train_step: {name} is {value!r}, expected an int")
    if value < 1:
        raise ValueError(f"train_step: {name} is {value}, expected 1 or more")
    return value


def _loss_of(result: Any) -> torch.Tensor:
    leaves = pytree.tree_leaves(result)
    if not leaves or not isinstance(leaves[0], torch.Tensor):
        raise TypeError(f"train_step: the function returned {type(result).__name__}, expected the loss, or a container that begins with it")
    return leaves[0]


def _without_history(result: Any) -> Any:
    """A tensor that is returned twice stays one tensor."""
    detached: dict[int, torch.Tensor] = {}

    def detach(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in detached:
            detached[id(leaf)] = leaf.detach()
        return detached[id(leaf)]

    return pytree.tree_map(detach, result, is_leaf=is_size)


def _as_gradient_of(parameter: torch.Tensor, gradient: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    """In the layout that AccumulateGrad chooses for a leaf's gradient."""
    if gradient is None or gradient.layout != torch.strided or gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def _separate(gradients: list[Optional[torch.Tensor]]) -> None:
    """Replaces gradients that share memory with an earlier one by copies."""
    if calls is not None:
        calls.separate_gradients(gradients)
        return
    taken: set[int] = set()
    for i, gradient in enumerate(gradients):
        if gradient is None or gradient.layout != torch.strided:
            continue
        storage = gradient.untyped_storage().data_ptr()
        if storage in taken:
            gradients[i] = gradient.clone()
        taken.add(storage)


def _nodes_of(loss: torch.Tensor) -> Iterator[Any]:
    seen, pending = set(), [loss.grad_fn]
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        pending += [edge for edge, _ in node.next_functions]


def _wants_no_grad(loss: torch.Tensor) -> bool:
    """A reentrant checkpoint refuses ``torch.autograd.grad``."""
    return any(node.name() == "CheckpointFunctionBackward" for node in _nodes_of(loss))


class TrainStep:
    """What :func:`train_step` returns. Like the optimizer itself, not thread-safe.

    Attributes:
        update: the :class:`CompiledStep` of the optimizer, with its counts and ``grad_norm``.
        three_parts: calls so far that ran ``zero_grad()``, ``backward()`` and ``step()``.
        why_three_parts: the last one's reason, or an empty string.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        function: Callable[..., Any],
        clip: Optional[ClipGradNorm],
        keep_gradients: bool,
        accumulate: int,
        ignore_other_parameters: bool,
        scaler: Optional["torch.amp.GradScaler"],
        cuda_graphs: bool,
        cuda_graph_bytes: int,
        options: dict[str, Any],
    ) -> None:
        aot_function(function, **options)  # which checks them
        self.update: CompiledStep = compiled_step(optimizer, clip)
        self.three_parts = 0
        self.why_three_parts = ""
        self._optimizer, self._function, self._scaler, self._options = optimizer, function, scaler, options
        self._keep_gradients, self._accumulate = keep_gradients, _check_count("accumulate", accumulate)
        self._ignores_others = ignore_other_parameters
        self._micro_batch = 0
        self._all: list[torch.Tensor] = []
        self._trained: list[torch.Tensor] = []
        self._compiled: dict[tuple[int, ...], tuple[list[torch.Tensor], AotFunction]] = {}
        self._forgotten: dict[str, int] = {}  # counts of dropped programs
        self._why_no_program: Optional[str] = None  # from now on
        # For hindcast._C, once a step was one program: its parameters, the program's function, and the function's call.
        self._plan: Any = None
        self._planned: Any = None
        self._call_planned: Any = None
        self._needs_closure = isinstance(optimizer, torch.optim.LBFGS)
        self._recorder: Any = None
        self._cuda_graph_bytes = _check_count("cuda_graph_bytes", cuda_graph_bytes)
        self._wants_graphs = cuda_graphs
        self._make_recorder()
        if not any(group["params"] for group in optimizer.param_groups):
            raise ValueError("train_step: the optimizer has no parameters")
        if self._needs_closure and (self._accumulate != 1 or scaler is not None):
            raise ValueError("train_step: LBFGS evaluates the loss itself, so it takes no micro-batches and no scaler")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One step, or one of its micro-batches. Returns the function's result, without history."""
        if self._plan is not None and self._planned._next == 0:
            result = calls.train(
                self, self._plan, self._optimizer, self._planned, self._call_planned, self.update, self._keep_gradients, args, kwargs, _NOT_KNOWN,
                self._recorder,
            )
            if result is not _NOT_KNOWN:
                return result
        self._find_trained()
        if self._needs_closure:
            return self._by_closure(args, kwargs)
        before = [parameter.grad for parameter in self._all]
        if self._micro_batch == 0:
            self._drop_gradients()
        try:
            why = self._why_three_parts(args, kwargs)
            result = self._in_one_program(args, kwargs) if why is None else self._in_three_parts(why, args, kwargs)
        except BaseException:
            for parameter, gradient in zip(self._all, before):
                parameter.grad = gradient
            raise
        self._step()
        return result

    def _make_recorder(self) -> None:
        may_be_recorded = self.update.may_enter_c and self._accumulate == 1 and not self._keep_gradients and self._scaler is None
        if calls is not None and self._wants_graphs and may_be_recorded:
            self._recorder = calls.train_recorder(self._optimizer, self.update.clip_in_c, self._cuda_graph_bytes)

    @property
    def why_no_cuda_graph(self) -> str:
        """Why the last step without a CUDA graph was not recorded as one, or an empty string."""
        if self._recorder is not None:
            return str(calls.train_recorder_stats(self._recorder)[2])
        if not self._wants_graphs:
            return ""
        return "accumulate, keep_gradients, a scaler or error_if_nonfinite was asked for" if calls is not None else "hindcast._C was not loaded"

    def stats(self) -> dict[str, int]:
        """Counts of the programs of loss and gradients, as in :meth:`AotFunction.stats`, with ``three_parts``, ``cuda_graph_launches`` and
        ``cuda_graph_bytes``."""
        total = dict(self._forgotten) or dict.fromkeys(("calls", "hits", "traces", "eager"), 0)
        for _, function in self._compiled.values():
            for name, count in function.stats().items():
                total[name] = total.get(name, 0) + count
        launches, kept_bytes = calls.train_recorder_stats(self._recorder)[:2] if self._recorder is not None else (0, 0)
        return {**total, "three_parts": self.three_parts, "cuda_graph_launches": launches, "cuda_graph_bytes": kept_bytes}

    def reset(self) -> None:
        """Forgets everything compiled."""
        total = self.stats()
        for name in ("three_parts", "cuda_graph_launches", "cuda_graph_bytes"):
            del total[name]
        self._forgotten = total
        self._compiled.clear()
        self._why_no_program = None
        self._plan = self._planned = self._call_planned = None
        self._make_recorder()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a TrainStep cannot be copied or pickled: call train_step() for the copied optimizer")

    def _find_trained(self) -> None:
        self._all = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        trained = [parameter for parameter in self._all if parameter.requires_grad]
        if len(set(map(id, trained))) != len(trained):
            trained = list({id(parameter): parameter for parameter in trained}.values())
        if not trained:
            raise ValueError("train_step: none of the optimizer's parameters requires a gradient")
        self._trained = trained

    def _why_three_parts(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Optional[str]:
        if self._why_no_program is not None:
            return self._why_no_program
        if not torch.is_grad_enabled():
            return "gradients are disabled"
        why = _why_of_arguments(args, kwargs, self._trained)
        if why is not None:
            return why
        for parameter in self._trained:
            if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
                return "a parameter has a hook"
        with torch._C.DisableTorchFunction():
            if _accumulators_are_hooked(self._trained):
                return "the AccumulateGrad node of a parameter has a hook, as those of DistributedDataParallel"
        return None

    def _gradients_of(self) -> AotFunction:
        """The function and the gradients of all currently trained parameters: a program is for one list of parameters."""
        key = tuple(map(id, self._trained))
        known = self._compiled.get(key)
        if known is not None:
            return known[1]
        if len(self._compiled) == _MOST_LISTS:
            self.reset()
        function, trained, ignores_others = self._function, self._trained, self._ignores_others
        is_compared = bool(self._options.get("check_every"))

        def loss_and_gradients(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            scale = kwargs.pop(_SCALE, None)
            with torch.enable_grad():  # the comparison calls it without grad mode
                result = function(*args, **kwargs)
                loss = _loss_of(result)
                if not ignores_others:
                    _refuse_others(loss, trained)
                scaled = loss if scale is None else loss * scale
                gradients: tuple[Optional[torch.Tensor], ...] = (None,) * len(trained)
                if is_compared or (_is_traced() and not _wants_no_grad(loss)):
                    asked = [parameter for parameter in trained if parameter.requires_grad]  # the function may freeze some
                    found = iter(torch.autograd.grad(scaled, asked, allow_unused=True))
                    gradients = tuple(next(found) if parameter.requires_grad else None for parameter in trained)
                else:  # an eager call: the function may call backward() itself
                    scaled.backward()
            return (_without_history(result), *map(_as_gradient_of, trained, gradients))

        made = aot_function(loss_and_gradients, **self._options)
        made.owned_results = len(trained)
        self._compiled[key] = (trained, made)
        return made

    def _in_one_program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scale = self._scale()
        if scale is not None:
            kwargs = {**kwargs, _SCALE: scale}
        compiled = self._gradients_of()
        result = self._take_for_c(compiled, compiled(*args, **kwargs))
        if calls is not None and self._why_no_program is None and self._accumulate == 1 and self._scaler is None:
            self._plan = calls.train_plan(self._all, self._trained)
            self._planned, self._call_planned = compiled, compiled._call_in_c
        return result

    def _take_for_c(self, compiled: AotFunction, returned: tuple[Any, ...]) -> Any:
        result, *gradients = returned
        if gradients[0] is None and all(gradient is None for gradient in gradients):
            stats = compiled.stats()
            # Another branch of a function with a program runs eagerly once, when it is found.
            if stats["traces"] != 0 and stats["calls"] == stats["eager"]:
                self._give_up("the function cannot be traced with its gradients; HINDCAST_LOGS=aot says why")
        elif self._micro_batch == 0 and any(parameter.grad is not None for parameter in self._trained):
            self._give_up("the function makes gradients itself, as by backward()")
        self._add(gradients)
        return result

    def _give_up(self, why: str) -> None:
        self.reset()
        self._why_no_program = why

    def _scale(self) -> Optional[torch.Tensor]:
        scaler = self._scaler
        if scaler is None or not scaler.is_enabled():
            return None
        if scaler._scale is None:
            scaler.scale(torch.zeros((), device=self._trained[0].device))  # creates the scale
        return scaler._scale

    def _add(self, gradients: list[Optional[torch.Tensor]]) -> None:
        """Adds like AccumulateGrad. Parameters that share a gradient's memory get a copy each, since gradients may be written to."""
        _separate(gradients)
        for parameter, gradient in zip(self._trained, gradients):
            if gradient is None:
                continue
            grad = parameter.grad
            if grad is None:
                parameter.grad = gradient
            elif grad.is_sparse and not gradient.is_sparse:
                parameter.grad = gradient + grad
            else:
                grad.add_(gradient)

    def _step(self) -> None:
        self._micro_batch += 1
        if self._micro_batch < self._accumulate:
            return
        self._micro_batch = 0
        if self._scaler is None:
            self.update()
        else:
            try:
                self.update.with_scaler(self._scaler)
            except BaseException:
                with contextlib.suppress(AssertionError):  # it has seen no gradient
                    self._scaler.update()  # otherwise it would refuse the next step
                raise
            self._scaler.update()
        if not self._keep_gradients:
            self._drop_gradients()

    def _drop_gradients(self) -> None:
        for parameter in self._all:
            parameter.grad = None

    def _note_three_parts(self, why: str) -> None:
        self.three_parts += 1
        self.why_three_parts = why

    def _backward(self, result: Any) -> torch.Tensor:
        loss = _loss_of(result)
        # Walks the whole graph in Python, which is the same in most steps: so only in few of them.
        if not self._ignores_others and self.three_parts & (self.three_parts - 1) == 0:
            _refuse_others(loss, self._trained)
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()
        return loss

    def _in_three_parts(self, why: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._note_three_parts(why)
        result = self._function(*args, **kwargs)
        self._backward(result)
        return _without_history(result)

    def _by_closure(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._note_three_parts("LBFGS evaluates the loss itself")
        results: list[Any] = []
        before = [parameter.grad for parameter in self._all]

        def closure() -> torch.Tensor:
            self._drop_gradients()
            result = self._function(*args, **kwargs)
            loss = self._backward(result)
            results.append(_without_history(result))
            return loss

        try:
            self.update(closure)
        except BaseException:
            for parameter, gradient in zip(self._all, before):
                parameter.grad = gradient
            raise
        if not self._keep_gradients:
            self._drop_gradients()
        return results[0]


def _why_of_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], trained: list[torch.Tensor]) -> Optional[str]:
    """A program differentiates only up to its arguments: an argument's own history would get no gradient."""
    leaves = [*args, *kwargs.values()] if kwargs else list(args)
    if not all(type(leaf) in _SIMPLE for leaf in leaves):
        leaves = pytree.tree_leaves(leaves)
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            if not leaf.is_leaf:
                return "an argument has a history"
            if any(leaf is parameter for parameter in trained):
                return "an argument is a parameter"
    return None


def _refuse_others(loss: torch.Tensor, trained: list[torch.Tensor]) -> None:
    known = set(map(id, trained))
    for node in _nodes_of(loss):
        other = getattr(node, "variable", None)
        if isinstance(other, torch.nn.Parameter) and id(other) not in known:
            raise ValueError(
                f"train_step: the loss depends on a parameter that the optimizer does not have, of sizes {list(other.shape)}. Give it to the "
                "optimizer, call requires_grad_(False) on it, or pass ignore_other_parameters=True"
            )


def _of_module(module: torch.nn.Module, criterion: Callable[..., Any]) -> Callable[..., Any]:
    def loss(*args: Any) -> Any:
        return criterion(module(*args[:-1]), args[-1])

    return loss


def train_step(
    optimizer: Optimizer,
    function: Callable[..., Any],
    criterion: Optional[Callable[..., Any]] = None,
    *,
    clip_grad_norm: Optional[ClipGradNorm] = None,
    keep_gradients: bool = False,
    accumulate: int = 1,
    ignore_other_parameters: bool = False,
    scaler: Optional["torch.amp.GradScaler"] = None,
    cuda_graphs: bool = False,
    cuda_graph_bytes: int = 256 << 20,
    **options: Any,
) -> TrainStep:
    """A step of ``optimizer`` in one call: ``zero_grad()``, the loss, its gradients, clipping and updates.

    The first call runs the function and PyTorch's backward of it. Later ones run the loss and all gradients as one program, and then the
    updates: no autograd graph is built, no engine runs, and ``.grad`` stays ``None``. State, parameter groups and schedulers stay the
    optimizer's.

    A step runs as ``zero_grad()``, ``backward()`` and ``step()`` where a parameter has a hook, under DistributedDataParallel, with LBFGS,
    where an argument has a history or is a parameter, and where the function calls ``backward()`` itself. In a program, only the
    optimizer's parameters get gradients; arguments and other tensors get none.

    Example::

        >>> step = hindcast.train_step(optimizer, model, torch.nn.functional.cross_entropy)
        >>> loss = step(images, labels)
        >>> step = hindcast.train_step(optimizer, lambda x, y: (model(x) - y).square().mean())

    Args:
        optimizer: of ``torch.optim``. Kernels make the updates that :func:`compiled_step` makes by kernels.
        function: takes what a step takes, and returns the loss, or a container that begins with it. With `criterion`: a module.
        criterion: ``criterion(module(*args[:-1]), args[-1])`` is the loss of a step's arguments.
        clip_grad_norm: of all gradients, before the update.
        keep_gradients: ``.grad`` of each parameter has its gradient after the step.
        accumulate: n: each call is one of n micro-batches, whose gradients are added; the n-th makes the update.
        ignore_other_parameters: parameters that the loss depends on, and that the optimizer does not have, get no gradient; without, that is
            an error.
        scaler: scales the loss, unscales the gradients, and is updated after each step.
        cuda_graphs: on CUDA, a step that recurs is recorded as one CUDA graph, from the copy of the batch to the update. Needs ``accumulate`` 1,
            no ``keep_gradients``, no ``scaler``, no ``error_if_nonfinite``, an optimizer whose steps are counted on the CPU (no ``fused``, no
            ``capturable``), and a function that draws no random numbers. Other steps run without a graph; ``why_no_cuda_graph`` says why.
        cuda_graph_bytes: of device memory that these graphs keep.
        options: of :func:`aot_function`.

    Raises:
        TypeError, ValueError: for a bad option, an optimizer without parameters, and a function that returns no loss.
    """
    for name, value in (
        ("keep_gradients", keep_gradients),
        ("ignore_other_parameters", ignore_other_parameters),
        ("cuda_graphs", cuda_graphs),
    ):
        if not isinstance(value, bool):
            raise TypeError(f"train_step: {name} is {value!r}, expected a bool")
    if scaler is not None and not callable(getattr(scaler, "scale", None)):
        raise TypeError(f"train_step: scaler is a {type(scaler).__name__}, expected a GradScaler")
    if criterion is not None:
        if not callable(criterion):
            raise TypeError(f"train_step: criterion is a {type(criterion).__name__}, expected a callable")
        if not isinstance(function, torch.nn.Module):
            raise TypeError(f"train_step: with a criterion the function is a module, got {type(function).__name__}")
        function = _of_module(function, criterion)
    return TrainStep(
        optimizer, function, clip_grad_norm, keep_gradients, accumulate, ignore_other_parameters, scaler, cuda_graphs, cuda_graph_bytes, options
    )
