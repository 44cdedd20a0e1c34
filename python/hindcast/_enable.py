"""The guard under which backward() is captured and replayed."""

import copy
from typing import Any, Literal, Optional

from torch.utils._contextlib import _DecoratorContextManager

from ._backward import count_unseen, disabled_options, install, mode_reason, process_state, thread_state
from ._library import call, ops

_CHOICES = {
    "compiler": ("fused", "eager", "fused_through_aten"),
    "dynamic": ("automatic", "never"),
    "collector": ("typed", "visitor"),
}

# C++ stores options by number: creating a guard in each step then only passes a number.
_kept: dict[tuple[Any, ...], int] = {}


def _check_choice(name: str, value: Any) -> None:
    expected = " or ".join(repr(choice) for choice in _CHOICES[name])
    if not isinstance(value, str):
        raise TypeError(f"hindcast.enable: {name} is {value!r} of type {type(value).__name__}; expected {expected}")
    if value not in _CHOICES[name]:
        raise ValueError(f"hindcast.enable: {name} is {value!r}; expected {expected}")


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"hindcast.enable: {name} is {value!r} of type {type(value).__name__}; expected an int")
    if value < 1:
        raise ValueError(f"hindcast.enable: {name} is {value}; expected at least 1")


def _check_switch(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"hindcast.enable: {name} is {value!r} of type {type(value).__name__}; expected True or False")


class enable(_DecoratorContextManager):
    """Captures every backward that starts on this thread, and replays it: a context manager and a decorator.

    The first backward of a new structure is captured while it runs. Later ones with the same structure are looked up and
    replayed. A size that changes between two calls costs one more capture, then is dynamic. Gradients, hooks, their order
    and errors are those of PyTorch's own engine; what cannot be captured (a double backward with hooks, anomaly mode) runs there, and
    :func:`stats` counts it in ``fallbacks_by_reason``.

    Guards nest and the innermost options win; other threads are not affected: :class:`enable_process` is for those.

    Example::

        >>> with hindcast.enable():
        ...     loss.backward()
        >>> @hindcast.enable(compiler="eager")
        ... def train_step(): ...

    Args:
        compiler: ``"fused"``, the default: kernels compiled in the background, gradients up to rounding; ``"eager"``:
            replay through ATen, to PyTorch's bits; ``"fused_through_aten"``: plans of the first, bits of the second. The
            default is what the environment's ``HINDCAST_COMPILER`` names, if it is set.
        dynamic: ``"automatic"``, or ``"never"``: one capture for every combination of sizes and scalars.
        limit: captures of one structure; a backward that fits none of them is left to PyTorch's engine. Without ``back_off``, and
            after a hook, it runs its nodes as themselves.
        cache_size: structures kept in the process; the least recently used is evicted first.
        cache_bytes: bytes that captures and their kernels may take; the least recently used is evicted first.
        back_off: leave to PyTorch's engine what does not pay: structures that do not recur, and those of few nodes for which it is
            faster in this process.
        deterministic: equal inputs give equal bits, from the first backward on: everything runs through ATen. Also if
            ``torch.use_deterministic_algorithms`` is on.
        async_: compile kernels on a background thread; the steps until then run through ATen.
        verify: check each new graph, and each kernel, before it is used.
        nan_guard: look for infinities and NaN in every gradient, and log where they began.
        cuda_graphs: on CUDA, replay backwards as CUDA graphs: fewer launches, for device memory that they keep.
        require_cuda_graph: the same, and a hit that cannot be replayed as one CUDA graph raises ``RuntimeError``.
        cuda_graph_bytes: device memory that CUDA graphs may keep, evicting the least recently used.
        collector: ``"typed"``, or ``"visitor"``: read nodes through LibTorch's own visitor, for comparison.
        enabled: ``False``: PyTorch's engine runs everything in this guard's scope.

    Raises:
        TypeError, ValueError: for a bad option, naming it, what was given and what is expected.
    """

    def __init__(
        self,
        compiler: Optional[Literal["fused", "eager", "fused_through_aten"]] = None,
        *,
        dynamic: Literal["automatic", "never"] = "automatic",
        limit: int = 8,
        cache_size: int = 256,
        cache_bytes: int = 256 << 20,
        back_off: bool = True,
        deterministic: bool = False,
        async_: bool = True,
        verify: bool = False,
        nan_guard: bool = False,
        cuda_graphs: bool = False,
        require_cuda_graph: bool = False,
        cuda_graph_bytes: int = 256 << 20,
        collector: Literal["typed", "visitor"] = "typed",
        enabled: bool = True,
    ) -> None:
        if compiler is not None:
            _check_choice("compiler", compiler)
        _check_choice("dynamic", dynamic)
        _check_choice("collector", collector)
        _check_count("limit", limit)
        _check_count("cache_size", cache_size)
        _check_count("cache_bytes", cache_bytes)
        _check_count("cuda_graph_bytes", cuda_graph_bytes)
        switches = {
            "back_off": back_off,
            "deterministic": deterministic,
            "async_": async_,
            "verify": verify,
            "nan_guard": nan_guard,
            "cuda_graphs": cuda_graphs,
            "require_cuda_graph": require_cuda_graph,
            "enabled": enabled,
        }
        for name, value in switches.items():
            _check_switch(name, value)
        # In the order of the operator's arguments.
        sizes = (limit, cache_size, cache_bytes, cuda_graph_bytes)
        options = (compiler or "", dynamic, *sizes, *switches.values(), collector)
        number = _kept.get(options)
        if number is None:
            number = _kept[options] = call("keep_options", *options)
            if not enabled:
                disabled_options.add(number)
        self._options = number
        self._entered: list[int] = []

    def clone(self) -> "enable":
        """A guard with the same options, for each call of a decorated function."""
        other = copy.copy(self)
        other._entered = []
        return other

    def _newest(self) -> int:
        if not self._entered:
            raise RuntimeError(f"hindcast.{type(self).__name__}: a guard was left that is not entered, or was left before")
        return self._entered[-1]

    def __enter__(self) -> None:
        install()
        guard = call("enable", self._options)
        self._entered.append(guard)
        thread_state.enter(guard, self._options)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        guard = self._newest()
        if guard not in thread_state.guards:
            raise RuntimeError("hindcast.enable: a guard was left on another thread than the one that entered it")
        self._entered.pop()
        thread_state.leave(guard)
        call("disable", guard)
        count_unseen()  # the thread may end


class enable_process(enable):
    """:class:`enable` for all threads of the process that have no guard of their own, including later ones.

    A thread's own guard wins, even one with ``enabled=False``. Of several, the newest active one wins. It may be left on any
    thread; backwards that are running finish as they began. A fork's child has the guards of its parent.

    Example::

        >>> with hindcast.enable_process():
        ...     serve()  # in threads of its own

    Args and Raises: those of :class:`enable`.
    """

    def __enter__(self) -> None:
        install()
        guard = call("enable_process", self._options)
        self._entered.append(guard)
        process_state.enter(guard, self._options)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        guard = self._newest()
        self._entered.pop()
        process_state.leave(guard)
        call("disable", guard)
        count_unseen()


def is_enabled() -> bool:
    """True if a backward that starts now on this thread would be captured or replayed."""
    return thread_state.options is not None and mode_reason() is None and ops.active()
