"""Modules compiled ahead of time."""

import copy
import types
from collections.abc import Callable, Sequence
from typing import Any, Union

import torch

from . import partition as partitions
from ._aot import AotFunction, aot_function, compile_again

_OF_THE_ORIGINAL = ("training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_state_dict_hooks",
                    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")  # fmt: skip
# Methods by which a module is saved, loaded, moved and searched: its class may override any of them, and a parent calls some of its
# children's.
_CONVERSIONS = ("_apply", "cuda", "ipu", "xpu", "mtia", "cpu", "type", "float", "double", "half", "bfloat16", "to", "to_empty")
_CALLED_ON_THE_ORIGINAL = (*_CONVERSIONS, "state_dict", "load_state_dict", "_save_to_state_dict", "_load_from_state_dict",
                           "get_extra_state", "set_extra_state", "register_parameter", "register_buffer", "add_module", "register_module",
                           "set_submodule", "get_submodule", "get_parameter", "get_buffer", "apply", "train", "eval", "requires_grad_",
                           "zero_grad", "share_memory", "parameters", "named_parameters", "buffers", "named_buffers", "children",
                           "named_children")  # fmt: skip


def _of_the_original(name: str) -> Any:
    def put(self: "AotModule", value: Any) -> None:
        if "_aot_call" in self.__dict__:  # else nn.Module's __init__ sets one for this object
            setattr(self._aot_original, name, value)

    # Looked up each time: the module may replace its own.
    return property(lambda self: getattr(self._aot_original, name), put)


def _called_on_the_original(name: str) -> Any:
    def method(self: "AotModule", *args: Any, **kwargs: Any) -> Any:
        original = self.__dict__["_aot_original"]
        if name in _CONVERSIONS and torch.__future__.get_swap_module_params_on_conversion():
            self.__dict__["_aot_call"].reset()  # torch does not swap tensors that have weak references
        result = getattr(original, name)(*args, **kwargs)
        return self if result is original else result

    method.__name__ = method.__qualname__ = name
    method.__doc__ = getattr(getattr(torch.nn.Module, name, None), "__doc__", None)
    return method


def _without_global_hooks(method: Callable[..., Any]) -> Any:
    """The method of nn.Module as it is without global module hooks: these are called for the module itself."""
    if not isinstance(method, types.FunctionType):
        return method
    names = method.__globals__
    none = {name: type(value)() for name, value in names.items() if name.startswith("_global_") and isinstance(value, dict)}
    copied = types.FunctionType(method.__code__, {**names, **none}, method.__name__, method.__defaults__, method.__closure__)
    copied.__kwdefaults__ = method.__kwdefaults__
    return copied


def _acts_as_the_original(cls: type["AotModule"]) -> type["AotModule"]:
    for name in _OF_THE_ORIGINAL:
        setattr(cls, name, _of_the_original(name))
    for name in _CALLED_ON_THE_ORIGINAL:
        setattr(cls, name, _called_on_the_original(name))
    return cls


@_acts_as_the_original
class AotModule(torch.nn.Module):
    """The result of :func:`aot_module`: the module, with its forward compiled. Parameters, buffers, submodules and all other attributes are
    the module's own. Hooks that are registered here are called around the compiled forward."""

    def __init__(self, module: torch.nn.Module, **options: Any) -> None:
        # Bypasses nn.Module's __setattr__: as a submodule, its name would be in every key of state_dict().
        self.__dict__["_aot_original"] = module
        super().__init__()
        self.__dict__["_aot_call"] = aot_function(module, **options)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["_aot_call"](*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
            return super().__call__(*args, **kwargs)
        return own["_aot_call"](*args, **kwargs)

    _call_impl = _without_global_hooks(torch.nn.Module._call_impl)
    _get_backward_hooks = _without_global_hooks(torch.nn.Module._get_backward_hooks)
    _get_backward_pre_hooks = _without_global_hooks(torch.nn.Module._get_backward_pre_hooks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_aot_original"], name)

    # Python looks these up only in classes.
    def __bool__(self) -> bool:
        return bool(self._aot_original)

    def __iter__(self) -> Any:
        return iter(self._aot_original)

    def __len__(self) -> int:
        return len(self._aot_original)

    def __contains__(self, item: Any) -> bool:
        return item in self._aot_original

    def __getitem__(self, key: Any) -> Any:
        return self._aot_original[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._aot_original[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._aot_original[key]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or name in _OF_THE_ORIGINAL or "_aot_call" not in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self._aot_original, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._aot_original, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return compile_again, (AotModule, self._aot_original, self.__dict__["_aot_call"]._options), self._own_state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)  # nn.Module's adds hooks that it misses here: they are the original's

    def __copy__(self) -> "AotModule":
        return self._copy_of(self._aot_original, self._own_state())

    def __deepcopy__(self, memo: dict[int, Any]) -> "AotModule":
        made = self._copy_of(copy.deepcopy(self._aot_original, memo), {})
        memo[id(self)] = made
        made.__setstate__(copy.deepcopy(self._own_state(), memo))
        return made

    def _copy_of(self, original: torch.nn.Module, own: dict[str, Any]) -> "AotModule":
        made = AotModule(original, **self.__dict__["_aot_call"]._options)
        made.__setstate__(own)
        return made

    def _own_state(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_aot_original", "_aot_call", "_compiled_call_impl")}

    def aot_stats(self) -> dict[str, int]:
        """:meth:`AotFunction.stats` of its forward."""
        return self.__dict__["_aot_call"].stats()  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"aot of {type(self._aot_original).__name__}"


def aot_module(module: torch.nn.Module, *args: Any, **options: Any) -> AotModule:
    """Compiles a module, with the arguments of :func:`aot_function` after `module`.

    A new module with the parameters, buffers and submodules of `module`: it trains, saves and loads like it, and
    ``train()`` and ``eval()`` are the module's. Each mode has its own programs; any change in a module is noticed.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"hindcast.aot_module: {module!r} of type {type(module).__name__} is not a torch.nn.Module")
    names = ("fw_compiler", "bw_compiler", "partition_fn")
    return AotModule(module, **dict(zip(names, args)), **options)


def memory_efficient_fusion(
    fn: Union[Callable[..., Any], torch.nn.Module], static_argnums: Union[int, Sequence[int], None] = None
) -> Union[AotFunction, AotModule]:
    """:func:`aot_function`, or :func:`aot_module`, with ``partition.min_cut`` and fused kernels."""
    make = aot_module if isinstance(fn, torch.nn.Module) else aot_function
    return make(fn, "fused", "fused", partitions.min_cut, static_argnums=static_argnums)
