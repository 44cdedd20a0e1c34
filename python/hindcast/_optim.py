"""The optimizer's step as kernels: one pass over the memory of each parameter."""

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Optional

import torch
import torch.optim.optimizer as optimizers
from torch.optim.optimizer import Optimizer

from ._backward import has_unusual_dispatch
from ._library import calls, ops

_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_NUMBERS = frozenset((bool, int, float))
_LEFT = 63  # steps left to the optimizer after one in which it did all updates
_FOLDER = os.path.dirname(optimizers.__file__)
_is_function_mode_enabled = torch._C._is_torch_function_mode_enabled
_is_compiling = torch.compiler.is_compiling
_clip = ops.optim_clip.default._op

# The text of torch.nn.utils.clip_grad_norm_.
_NON_FINITE = (
    "The total norm of order {} for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this error and scale the "
    "gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
)

Group = dict[str, Any]
Closure = Callable[[], Any]


@dataclass(frozen=True)
class ClipGradNorm:
    """The arguments of ``torch.nn.utils.clip_grad_norm_``."""

    max_norm: float
    norm_type: float = 2.0
    error_if_nonfinite: bool = False

    def __post_init__(self) -> None:
        for name in ("max_norm", "norm_type"):
            object.__setattr__(self, name, float(getattr(self, name)))


# ---- properties of each class


class _Class(NamedTuple):
    update: Any  # the operator: parameters, lists of state, settings, maximize, factor
    settings: Callable[[Group], tuple[Any, ...]]
    state: dict[str, Callable[[Group], Any]]  # in the order of _init_group's lists: its name, and whether a group has it


def _always(group: Group) -> bool:
    return True


def _sgd_settings(group: Group) -> tuple[Any, ...]:
    return group["lr"], group["momentum"], group["dampening"], group["weight_decay"], bool(group["nesterov"])


def _adam_settings(group: Group) -> tuple[Any, ...]:
    decoupled, amsgrad = bool(group["decoupled_weight_decay"]), bool(group["amsgrad"])
    return group["lr"], *group["betas"], group["eps"], group["weight_decay"], decoupled, amsgrad


def _rmsprop_settings(group: Group) -> tuple[Any, ...]:
    centered = bool(group["centered"])
    return group["lr"], group["alpha"], group["eps"], group["weight_decay"], group["momentum"], centered


def _adagrad_settings(group: Group) -> tuple[Any, ...]:
    return group["lr"], group["lr_decay"], group["weight_decay"], group["eps"]


_SGD = _Class(ops.optim_sgd.default._op, _sgd_settings, {"momentum_buffer": lambda group: group["momentum"] != 0})
_ADAM = _Class(
    ops.optim_adam.default._op,
    _adam_settings,
    {"exp_avg": _always, "exp_avg_sq": _always, "max_exp_avg_sq": lambda group: group["amsgrad"], "step": _always},
)
_RMSPROP = _Class(
    ops.optim_rmsprop.default._op,
    _rmsprop_settings,
    {
        "square_avg": _always,
        "momentum_buffer": lambda group: group["momentum"] > 0,
        "grad_avg": lambda group: group["centered"],
        "step": _always,
    },
)
_ADAGRAD = _Class(ops.optim_adagrad.default._op, _adagrad_settings, {"sum": _always, "step": _always})

# Subclasses are not included.
_CLASSES: dict[type, _Class] = {
    torch.optim.SGD: _SGD,
    torch.optim.Adam: _ADAM,
    torch.optim.AdamW: _ADAM,
    torch.optim.RMSprop: _RMSPROP,
    torch.optim.Adagrad: _ADAGRAD,
}


# By class: its step(), once it was found to be PyTorch's own. Tracking libraries replace it on the class.
_OWN_STEPS: dict[type, Any] = {}


def _has_own_step(kind: type) -> bool:
    step = kind.step  # type: ignore[attr-defined]
    if _OWN_STEPS.get(kind) is step:
        return True
    function: Any = step
    while function is not None:  # torch.optim wraps it, for its hooks and again for its profiler
        code = getattr(function, "__code__", None)
        if code is None or os.path.dirname(code.co_filename) != _FOLDER:
            return False
        function = getattr(function, "__wrapped__", None)
    _OWN_STEPS[kind] = step
    return True


if calls is not None:
    # By the numbers of python/csrc/call_optim.h.
    _numbers = {_SGD.update: 0, _ADAM.update: 1, _RMSPROP.update: 2, _ADAGRAD.update: 3}
    calls.know_optimizers(
        {kind: _numbers[of_class.update] for kind, of_class in _CLASSES.items()},
        (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks),
        vars(torch.compiler),
        _OWN_STEPS,
    )


def _why_not_group(group: Group, settings: tuple[Any, ...]) -> Optional[str]:
    if group.get("capturable") or group.get("differentiable"):
        return "its group is capturable or differentiable"
    if not _NUMBERS.issuperset(map(type, settings)) and not all(isinstance(value, (int, float)) for value in settings):
        return "a setting of its group is not a number"
    return None


def _with_gradient(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    return [parameter for parameter in parameters if parameter.grad is not None]


# ---- the step


class CompiledStep:
    """The result of :func:`compiled_step`. Like the optimizer itself, not thread-safe.

    Attributes:
        compiled: updates of a parameter so far by kernels.
        original: the same by the optimizer's own code. After a step in which it did all of them, without a ``ClipGradNorm``, it also does
            the next 63, which count like that one.
        why_original: the last one's reason, or an empty string.
        grad_norm: of all gradients, before the last step clipped them: a tensor of one number. ``None`` without a ``ClipGradNorm``.
    """

    def __init__(self, optimizer: Optimizer, clip: Optional[ClipGradNorm]) -> None:
        self.optimizer = optimizer
        self.compiled = 0
        self.original = 0
        self.why_original = ""
        self.grad_norm: Optional[torch.Tensor] = None
        self._how = clip
        self._factor: Optional[torch.Tensor] = None  # of the gradients, in this step
        self._left, self._left_updates = 0, 0  # coming steps left to the optimizer, since kernels gain nothing; updates per step
        known = weakref.ref(self)  # else a cycle would keep the optimizer until the garbage collector runs

        def step(optimizer: Optimizer, closure: Optional[Closure] = None) -> Any:
            compiled = known()
            assert compiled is not None
            return compiled._step(optimizer, closure)

        self._hooked = Optimizer.profile_hook_step(step)
        self.may_enter_c = calls is not None and (clip is None or not (clip.norm_type == 0 or clip.error_if_nonfinite))
        self.clip_in_c = None if clip is None else (clip.max_norm, clip.norm_type)
        # Whether the optimizer checks if its step is recorded as a graph, as some do if there is an accelerator. None: unknown until the
        # first step, since the query initializes the accelerator.
        self._is_checked: Optional[bool] = None if _CLASSES.get(type(optimizer)) in (_ADAM, _RMSPROP) else False

    def __call__(self, closure: Optional[Closure] = None) -> Any:
        """Does the same as ``clip_grad_norm_()`` and then ``optimizer.step(closure)``, with the same state, up to rounding."""
        if self._left != 0 and self._how is None:
            self._left -= 1
            self.original += self._left_updates
            return self.optimizer.step() if closure is None else self.optimizer.step(closure)
        compiled, original = self.compiled, self.original
        if closure is None and self.may_enter_c and not _is_compiling() and self._step_in_c():
            result = None
        else:
            reason = self._why_not()
            if reason is not None:
                return self._step_originally(closure, reason)
            result = self._step_compiled(closure)
        if compiled == self.compiled and original != self.original:
            self._left, self._left_updates = _LEFT, self.original - original
        return result

    def _step_in_c(self) -> bool:
        if self._is_checked is None:
            self._is_checked = torch.cuda.is_available() or torch.xpu.is_available()
        return calls.step(self, self.optimizer, self.clip_in_c, self._is_checked)  # type: ignore[no-any-return, union-attr]

    def _step_compiled(self, closure: Optional[Closure]) -> Any:
        self.optimizer._opt_called = True  # type: ignore[attr-defined]  # read by learning-rate schedulers
        try:
            if closure is not None:
                return self._hooked(self.optimizer, closure)
            if self._how is not None and (self.optimizer._optimizer_step_pre_hooks or optimizers._global_optimizer_pre_hooks):
                self._clip_originally(self._how)  # a hook may change the clipped gradients
            else:
                self._clip()
            return self._hooked(self.optimizer)
        finally:
            self._factor = None

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a CompiledStep is of one optimizer: a copy of both takes a compiled_step() of its own")

    def with_scaler(self, scaler: "torch.amp.GradScaler") -> Any:
        """Does the same as ``scaler.step(optimizer)``, and clips once the gradients are unscaled."""
        attributes = self.optimizer.__dict__
        names = ("step", "_step_supports_amp_scaling")
        former = {name: attributes[name] for name in names if name in attributes}

        def give_back() -> None:
            for name in names:
                attributes.pop(name, None)
            attributes.update(former)

        is_skipped = True

        def step() -> Any:
            nonlocal is_skipped
            is_skipped = False
            give_back()
            return self()

        # The scaler calls the optimizer's step(), to which it would leave the unscaling for a fused optimizer.
        attributes.update(zip(names, (step, False)))
        try:
            result = scaler.step(self.optimizer)
        finally:
            give_back()
        if is_skipped and self._how is not None and self._how.error_if_nonfinite:
            self._clip()  # raises, like clipping between unscale_() and step()
        return result

    def _why_not(self) -> Optional[str]:
        optimizer = self.optimizer
        if type(optimizer) not in _CLASSES:
            return "its class is none of SGD, Adam, AdamW, RMSprop and Adagrad"
        if not _has_own_step(type(optimizer)):
            return "the step() of its class was replaced"
        own = optimizer.__dict__
        own_step = own.get("step")
        if own_step is not None and not (
            getattr(own_step, "_wrapped_by_lr_sched", False) and getattr(own_step, "__wrapped__", None) is type(optimizer).step
        ):
            return "the optimizer's step() was replaced"
        if own.get("grad_scale") is not None or own.get("found_inf") is not None:
            return "the optimizer has a GradScaler's scale"
        if torch.compiler.is_compiling():
            return "torch.compile traces the step"
        if has_unusual_dispatch():
            return "a mode of dispatch is on"
        return None

    def _step(self, optimizer: Optimizer, closure: Optional[Closure] = None) -> Any:
        of_class = _CLASSES[type(optimizer)]
        if of_class is _ADAM or of_class is _RMSPROP:
            optimizer._accelerator_graph_capture_health_check()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            self._clip()
        had_gradients = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # the same as torch.no_grad(), in a tenth of its time
        try:
            for group in optimizer.param_groups:
                self._update(of_class, group)
        finally:
            torch._C._set_grad_enabled(had_gradients)
        return loss

    def _update(self, of_class: _Class, group: Group) -> None:
        settings = of_class.settings(group)
        why = _why_not_group(group, settings)
        if why is None and of_class is _ADAM and any(parameter.grad.is_sparse for parameter in _with_gradient(group["params"])):
            why = "a gradient is sparse"  # which is an error, before anything is updated
        if why is not None:
            return self._update_originally(group, group["params"], why)
        parameters, state = self._state(of_class, group)
        first = [i for i, tensor in enumerate(state[0]) if tensor is None] if of_class is _SGD else []
        for i in first:
            state[0][i] = torch.empty_like(parameters[i])
        if not _PLAIN.issuperset(map(type, chain(parameters, *state))):
            return self._update_originally(group, parameters, "a parameter or a part of its state is not a plain tensor")
        if of_class is _SGD:
            state.append(first)
        arguments = (parameters, *state, *settings, bool(group["maximize"]), self._factor)
        if _is_function_mode_enabled():
            with torch._C.DisableTorchFunction():  # the modes would see the operator
                compiled, refused, reasons = of_class.update(*arguments)
        else:
            compiled, refused, reasons = of_class.update(*arguments)
        self.compiled += compiled
        originals = frozenset(refused)
        for i in first:
            if i not in originals:
                self.optimizer.state[parameters[i]]["momentum_buffer"] = state[0][i]
        if refused:
            self._update_originally(group, [parameters[i] for i in refused], reasons[-1])

    def _update_refused_for_c(self, group: Group, parameters: list[torch.Tensor], why: str, factor: Optional[torch.Tensor]) -> None:
        had_gradients = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        self._factor = factor
        try:
            self._update_originally(group, parameters, why)
        finally:
            self._factor = None
            torch._C._set_grad_enabled(had_gradients)

    def _state(self, of_class: _Class, group: Group) -> tuple[list[torch.Tensor], list[Any]]:
        """Parameters, including all that have a gradient, and lists of their state. The optimizer creates missing state."""
        names = of_class.state
        wanted = [name for name in names if names[name](group)]
        if not wanted:
            return group["params"], [[] for _ in names]
        states = list(map(self.optimizer.state.get, group["params"]))
        lists: list[Any]
        if all(states):
            try:
                lists = [[state[name] for state in states] if name in wanted else [] for name in names]  # type: ignore[index]
                if not any(tensor is None for tensor in lists[0]):
                    return group["params"], lists
            except KeyError:
                pass  # state of a parameter without a gradient; otherwise the optimizer raises it too
        parameters: list[torch.Tensor] = []
        lists = [[] for _ in names]
        self.optimizer._init_group(group, parameters, [], *lists)  # type: ignore[attr-defined]
        return parameters, lists

    # ---- clipping

    def _all_parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _clip(self) -> None:
        self._factor = None
        how = self._how
        if how is None:
            return
        parameters = self._all_parameters()
        # The norm of order 0 counts nonzero gradients.
        if how.norm_type != 0 and _PLAIN.issuperset(map(type, parameters)):
            with torch.no_grad(), torch._C.DisableTorchFunction():
                clipped = _clip(parameters, how.max_norm, how.norm_type)
            if clipped:
                norm, factor = clipped
                if how.error_if_nonfinite and not torch.isfinite(norm):
                    raise RuntimeError(_NON_FINITE.format(float(how.norm_type)))
                self.grad_norm, self._factor = norm, factor
                return
        self._clip_originally(how)

    def _clip_originally(self, how: ClipGradNorm) -> None:
        self.grad_norm = torch.nn.utils.clip_grad_norm_(self._all_parameters(), how.max_norm, how.norm_type, how.error_if_nonfinite)

    # ---- the optimizer's own code

    def _note_original(self, updates: int, why: str) -> None:
        if updates:
            self.original += updates
            self.why_original = why

    def _update_originally(self, group: Group, parameters: list[torch.Tensor], why: str) -> None:
        parameters = _with_gradient(parameters)
        if not parameters:
            return
        self._note_original(len(parameters), why)
        optimizer = self.optimizer
        groups, gradients = optimizer.param_groups, [parameter.grad for parameter in parameters]
        optimizer.param_groups = [{**group, "params": parameters}]
        try:
            if self._factor is not None:
                for parameter in set(parameters):
                    parameter.grad = parameter.grad * self._factor.to(parameter.grad)  # type: ignore[operator, arg-type]
            type(optimizer).step.__wrapped__(optimizer)  # type: ignore[attr-defined]  # without the hooks, which are running
        finally:
            optimizer.param_groups = groups
            for parameter, gradient in zip(parameters, gradients):
                if self._factor is not None:
                    parameter.grad = gradient

    def _step_originally(self, closure: Optional[Closure], why: str) -> Any:
        how, step = self._how, self.optimizer.step
        if closure is None:
            if how is not None:
                self._clip_originally(how)
            result = step()
        elif how is None:
            result = step(closure)
        else:

            def clipping() -> Any:
                loss = closure()
                self._clip_originally(how)
                return loss

            result = step(clipping)
        self._note_original(len(_with_gradient(self._all_parameters())), why)
        return result


def compiled_step(optimizer: Optimizer, clip_grad_norm: Optional[ClipGradNorm] = None) -> CompiledStep:
    """The step of ``optimizer`` as kernels: call the result in place of ``clip_grad_norm_()`` and ``optimizer.step()``.

    State, parameter groups and hooks stay the optimizer's: it is saved and loaded as before, schedulers change its learning rates,
    and steps of the two may alternate.

    Kernels make the updates of SGD, Adam, AdamW, RMSprop and Adagrad. The optimizer's own code makes those of other and derived
    classes, of sparse gradients, of complex parameters, of groups that are capturable or differentiable or have a tensor as a
    setting, and of a parameter, gradient and state that do not have the same layout.

    Example::

        >>> step = hindcast.compiled_step(optimizer, clip_grad_norm=hindcast.ClipGradNorm(1.0))
        >>> loss.backward()
        >>> step()

    With a ``GradScaler``, ``step.with_scaler(scaler)`` stands for ``scaler.step(optimizer)``.

    Args:
        optimizer: of ``torch.optim``.
        clip_grad_norm: gradients are scaled in the kernel that reads them; ``.grad`` keeps what the backward wrote. Where
            ``torch.nn.utils.clip_grad_norm_`` must do it, for sparse gradients, those of several devices, and before hooks of the
            optimizer, it scales ``.grad``.

    Raises:
        TypeError: for another type of argument.
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"hindcast.compiled_step: optimizer is of type {type(optimizer).__name__}; expected a torch.optim.Optimizer")
    if clip_grad_norm is not None and not isinstance(clip_grad_norm, ClipGradNorm):
        raise TypeError(
            f"hindcast.compiled_step: clip_grad_norm is {clip_grad_norm!r} of type {type(clip_grad_norm).__name__}; "
            "expected a hindcast.ClipGradNorm"
        )
    return CompiledStep(optimizer, clip_grad_norm)
