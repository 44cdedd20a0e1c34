"""Installs an emulated card in the process. Tensors on DEVICE have kernels in the CUDA emulator, and emulated CUDA graphs."""

import types

import hindcast  # noqa: F401
import torch

torch.ops.hindcast.install_fake_card()
_module = types.ModuleType("torch.fake")
_module.is_initialized = _module.is_available = lambda: True
_module.device_count, _module.current_device = (lambda: 2), (lambda: 0)
_module._is_in_bad_fork = lambda: False
_module.manual_seed_all = lambda seed: None
torch._register_device_module("fake", _module)

take_errors = torch.ops.hindcast.take_errors_of_fake_card
DEVICE = torch.device("fake:0")
