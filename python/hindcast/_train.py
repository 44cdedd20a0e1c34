"""A training step in one call: forward, gradients, clipping and updates."""

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch.optim.optimizer import Optimizer
from torch.utils import _pytree as pytree

from ._aot import AotFunction, aot_function
from ._library import ops
from ._optim import ClipGradNorm, CompiledStep, compiled_step

_accumulators_are_hooked = ops.train_accumulators_are_hooked.default._op
_MOST_LISTS = 8


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
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, result)


def _as_gradient_of(parameter: torch.Tensor, gradient: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    """As AccumulateGrad lays out what it gives to a leaf."""
    if gradient is None or gradient.layout != torch.strided or gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def _other_parameter(loss: torch.Tensor, known: set[int]) -> Optional[torch.nn.Parameter]:
    seen, pending = set(), [loss.grad_fn]
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.nn.Parameter) and id(variable) not in known:
            return variable
        pending += [edge for edge, _ in node.next_functions]
    return None


class TrainStep:
    """What :func:`train_step` gives. Not for several threads at a time, as the optimizer itself is not.

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
        options: dict[str, Any],
    ) -> None:
        self.update: CompiledStep = compiled_step(optimizer, clip)
        self.three_parts = 0
        self.why_three_parts = ""
        self._optimizer, self._function, self._scaler, self._options = optimizer, function, scaler, options
        self._keep_gradients, self._accumulate = keep_gradients, _check_count("accumulate", accumulate)
        self._ignores_others = ignore_other_parameters
        self._micro_batch = 0
        self._trained: list[torch.Tensor] = []
        self._compiled: dict[tuple[int, ...], tuple[list[torch.Tensor], AotFunction]] = {}
        self._needs_closure = isinstance(optimizer, torch.optim.LBFGS)
        if not any(group["params"] for group in optimizer.param_groups):
            raise ValueError("train_step: the optimizer has no parameters")
        if self._needs_closure and (self._accumulate != 1 or scaler is not None):
            raise ValueError("train_step: LBFGS evaluates the loss itself, so it takes no micro-batches and no scaler")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One step, or one micro-batch of it. Returns what the function returns, without history."""
        self._trained = [parameter for group in self._optimizer.param_groups for parameter in group["params"] if parameter.requires_grad]
        if not self._trained:
            raise ValueError("train_step: none of the optimizer's parameters requires a gradient")
        if self._needs_closure:
            return self._by_closure(args, kwargs)
        why = self._why_three_parts()
        if why is not None:
            return self._in_three_parts(why, args, kwargs)
        result, *gradients = self._gradients_of()(self._scale(), *args, **kwargs)
        self._add(gradients)
        self._step()
        return result

    def stats(self) -> dict[str, int]:
        """Of the programs of loss and gradients, as :meth:`AotFunction.stats`, with ``three_parts``."""
        total: dict[str, int] = {}
        for _, function in self._compiled.values():
            for name, count in function.stats().items():
                total[name] = total.get(name, 0) + count
        return {**total, "three_parts": self.three_parts}

    def reset(self) -> None:
        """Forgets what was compiled."""
        self._compiled.clear()

    def _why_three_parts(self) -> Optional[str]:
        for parameter in self._trained:
            if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
                return "a parameter has a hook"
        with torch._C.DisableTorchFunction():
            if _accumulators_are_hooked(self._trained):
                return "the AccumulateGrad node of a parameter has a hook, as those of DistributedDataParallel"
        return None

    def _gradients_of(self) -> AotFunction:
        """The function and the gradients of all that is trained now: a program is for one list of parameters."""
        key = tuple(map(id, self._trained))
        known = self._compiled.get(key)
        if known is not None:
            return known[1]
        if len(self._compiled) == _MOST_LISTS:
            del self._compiled[next(iter(self._compiled))]
        function, trained, ignores_others = self._function, self._trained, self._ignores_others

        def loss_and_gradients(scale: Optional[torch.Tensor], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            result = function(*args, **kwargs)
            loss = _loss_of(result)
            if not ignores_others:
                _refuse_others(loss, trained)
            gradients = torch.autograd.grad(loss if scale is None else loss * scale, trained, allow_unused=True)
            return (_without_history(result), *map(_as_gradient_of, trained, gradients))

        made = aot_function(loss_and_gradients, **self._options)
        self._compiled[key] = (trained, made)
        return made

    def _scale(self) -> Optional[torch.Tensor]:
        scaler = self._scaler
        if scaler is None or not scaler.is_enabled():
            return None
        if scaler._scale is None:
            scaler.scale(torch.zeros((), device=self._trained[0].device))  # makes it
        return scaler._scale

    def _add(self, gradients: list[Optional[torch.Tensor]]) -> None:
        if self._micro_batch == 0:
            for parameter, gradient in zip(self._trained, gradients):
                parameter.grad = gradient
            return
        for parameter, gradient in zip(self._trained, gradients):
            if parameter.grad is None or gradient is None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad
            else:
                parameter.grad.add_(gradient)

    def _step(self) -> None:
        self._micro_batch += 1
        if self._micro_batch < self._accumulate:
            return
        self._micro_batch = 0
        if self._scaler is None:
            self.update()
        else:
            self.update.with_scaler(self._scaler)
            self._scaler.update()
        if not self._keep_gradients:
            self._drop_gradients()

    def _drop_gradients(self) -> None:
        for parameter in self._trained:
            parameter.grad = None

    def _note_three_parts(self, why: str) -> None:
        self.three_parts += 1
        self.why_three_parts = why

    def _backward(self, loss: torch.Tensor) -> None:
        """What fails leaves the gradients that there were."""
        if not self._ignores_others:
            _refuse_others(loss, self._trained)
        before = [parameter.grad for parameter in self._trained]
        if self._micro_batch == 0:
            self._drop_gradients()
        try:
            (loss if self._scaler is None else self._scaler.scale(loss)).backward()
        except BaseException:
            for parameter, gradient in zip(self._trained, before):
                parameter.grad = gradient
            raise

    def _in_three_parts(self, why: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._note_three_parts(why)
        result = self._function(*args, **kwargs)
        self._backward(_loss_of(result))
        self._step()
        return _without_history(result)

    def _by_closure(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._note_three_parts("LBFGS evaluates the loss itself")
        results: list[Any] = []

        def closure() -> torch.Tensor:
            result = self._function(*args, **kwargs)
            loss = _loss_of(result)
            self._backward(loss)
            results.append(_without_history(result))
            return loss

        self.update(closure)
        self._drop_gradients()
        return results[0]


def _refuse_others(loss: torch.Tensor, trained: list[torch.Tensor]) -> None:
    other = _other_parameter(loss, set(map(id, trained)))
    if other is not None:
        raise ValueError(
            f"train_step: the loss depends on a parameter that the optimizer does not have, of sizes {list(other.shape)}. Give it to the optimizer, "
            "call requires_grad_(False) on it, or pass ignore_other_parameters=True"
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
    **options: Any,
) -> TrainStep:
    """A step of ``optimizer`` in one call: ``zero_grad()``, the loss, its gradients, clipping and updates.

    The first call runs the function and PyTorch's backward of it. Later ones run the loss and all gradients as one program, and then the
    updates: no autograd graph is built, no engine runs, and ``.grad`` stays ``None``. State, parameter groups and schedulers stay the
    optimizer's.

    Steps whose gradients somebody watches run as ``zero_grad()``, ``backward()`` and ``step()``: where a parameter has a hook, under
    DistributedDataParallel, and with LBFGS.

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
        scaler: scales the loss, unscales the gradients, and is updated behind each step.
        options: of :func:`aot_function`.

    Raises:
        TypeError, ValueError: for a bad option, an optimizer without parameters, and a function that returns no loss.
    """
    if criterion is not None:
        if not isinstance(function, torch.nn.Module):
            raise TypeError(f"train_step: with a criterion the function is a module, got {type(function).__name__}")
        function = _of_module(function, criterion)
    return TrainStep(optimizer, function, clip_grad_norm, keep_gradients, accumulate, ignore_other_parameters, scaler, options)
