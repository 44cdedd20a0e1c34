"""Small models of torchvision, timm and transformers with random weights, as workloads. Families that are not installed are
left out; nothing is downloaded."""

import importlib.util
import os
import re
from collections.abc import Iterable
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .workloads import Workload

_CLASSES, _WORDS, _LENGTH, _IMAGE = 10, 256, 32, 64
_WIDTH = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
_WORDED: dict[str, Any] = {"vocab_size": _WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

_TORCHVISION: dict[str, dict[str, Any]] = {
    "resnet18": {},
    "mobilenet_v2": {},
    "mobilenet_v3_small": {},
    "shufflenet_v2_x0_5": {},
    "squeezenet1_1": {},
    "efficientnet_b0": {},
    "regnet_y_400mf": {},
    "densenet121": {},
    "convnext_tiny": {},
}
_TIMM: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": {"img_size": _IMAGE},
    "convnext_atto": {},
    "mixer_s32_224": {"img_size": _IMAGE},
    "resnet10t": {},
    "mobilenetv4_conv_small": {},
    "efficientvit_b0": {},
    "poolformer_s12": {},
}
# Class of the model, class of its config, config arguments.
_TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "loss_type": "ForCausalLM"}),
    "bert": ("BertForMaskedLM", "BertConfig", _WIDTH),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128}),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", {**_WIDTH, "embedding_size": 32}),
    "t5": ("T5ForConditionalGeneration", "T5Config", {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**_WIDTH, "num_key_value_heads": 2}),
    "opt": ("OPTForCausalLM", "OPTConfig", {**_WIDTH, "ffn_dim": 128, "word_embed_proj_dim": 64}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {**_WIDTH, "num_key_value_heads": 2}),
}


def _of_images(name: str, model: nn.Module, batch: int) -> Workload:
    def loss(size: int) -> Tensor:
        return F.cross_entropy(model(torch.randn(size, 3, _IMAGE, _IMAGE)), torch.zeros(size, dtype=torch.long))

    return Workload(name, list(model.parameters()), loss, batch, model)


def _of_words(name: str, model: nn.Module, batch: int) -> Workload:
    def loss(size: int) -> Tensor:
        words = torch.randint(3, _WORDS, (size, _LENGTH))
        result: Tensor = model(input_ids=words, labels=words).loss
        return result

    return Workload(name, list(model.parameters()), loss, batch, model)


def _torchvision(name: str) -> Workload:
    import torchvision

    model = torchvision.models.get_model(name, weights=None, num_classes=_CLASSES, **_TORCHVISION[name])
    return _of_images(f"torchvision/{name}", model, 2)


def _timm(name: str) -> Workload:
    import timm

    model = timm.create_model(name, pretrained=False, num_classes=_CLASSES, **_TIMM[name])
    return _of_images(f"timm/{name}", model, 2)


def _transformers(name: str) -> Workload:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    model_class, config_class, options = _TRANSFORMERS[name]
    config = getattr(transformers, config_class)(**{**_WORDED, "decoder_start_token_id": 0, **options})
    return _of_words(f"transformers/{name}", getattr(transformers, model_class)(config), 2)


def models(only: str = "") -> Iterable[Workload]:
    """The models whose names contain `only`, in training mode, each created in its turn."""
    families: dict[str, tuple[Iterable[str], Callable[[str], Workload]]] = {
        "torchvision": (_TORCHVISION, _torchvision),
        "timm": (_TIMM, _timm),
        "transformers": (_TRANSFORMERS, _transformers),
    }
    for family, (names, make) in families.items():
        if importlib.util.find_spec(family) is None:
            continue
        for name in names:
            if re.search(only, f"{family}/{name}"):
                torch.manual_seed(0)
                workload = make(name)
                yield workload
