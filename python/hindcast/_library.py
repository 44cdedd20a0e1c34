"""Loads libhindcast_python.so, which is in this folder, and gives access to its operators."""

import atexit
import os
import sysconfig
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, Optional

import torch

LIBRARY = Path(__file__).with_name("libhindcast_python.so")


def _load() -> Any:
    if not LIBRARY.exists():
        source = "this is hindcast's source. Install the package with pip, or use the one in the build folder"
        raise ImportError(f"{LIBRARY} is missing: {source}.")
    from ._built_for import TORCH  # written by the build

    if not torch.__version__.startswith(TORCH + "."):
        raise ImportError(
            f"hindcast reads the inside of torch {TORCH}, but torch {torch.__version__} is installed. "
            f"Install torch=={TORCH}.*, or a hindcast for the torch that you have."
        )
    torch.ops.load_library(str(LIBRARY))  # type: ignore[no-untyped-call]
    return torch.ops.hindcast


ops: Any = _load()


def _load_calls() -> Optional[Any]:
    """hindcast._C, in the same library: calls that enter C++ only once. Without it, the package calls operators."""
    if os.environ.get("HINDCAST_PYTHON_CALLS") == "operators" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    loader = ExtensionFileLoader("hindcast._C", str(LIBRARY))
    spec = spec_from_loader("hindcast._C", loader)
    assert spec is not None
    try:
        module = module_from_spec(spec)
        loader.exec_module(module)
    except (ImportError, RuntimeError):  # another interpreter of this process; another build of torch
        return None
    return module


calls: Optional[Any] = _load_calls()


_depths_of_modes = (torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack)
_operators: dict[str, Any] = {}


def call(name: str, *arguments: Any) -> Any:
    """Calls an operator unrelated to tensors, bypassing the modes of this thread."""
    operator = _operators.get(name)
    if operator is None:
        # Bypasses the checks of torch.ops' Python half, which cost more than most of these operators.
        operator = _operators[name] = getattr(ops, name).default._op
    if not any(depth() for depth in _depths_of_modes):
        return operator(*arguments)
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        return operator(*arguments)


# Pending kernels must be finished before Python destroys its modules, including operators that the program has defined.
atexit.register(call, "stop_background")
