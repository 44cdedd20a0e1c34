"""The rows of hindcast_bench_gpu as Python functions: same names, sizes, dtypes and values as in workloads.cpp and seed_rows.cpp."""

from dataclasses import dataclass, field
from typing import Callable

import torch
import torch.nn.functional as F

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass
class Work:
    """The tensors of one copy of a row."""

    leaves: list
    constants: list
    incoming: torch.Tensor = None

    def clear_grads(self):
        for leaf in self.leaves:
            leaf.grad = None


@dataclass
class Row:
    name: str
    function: Callable  # function(*leaves, *constants) -> the root of a new graph
    leaves: Callable  # leaves(make) -> the leaves
    sizes: tuple
    dtype: str
    constants: Callable = field(default=lambda make: [])
    draws: bool = False  # masks: two compilers of the forward draw different ones

    def work(self, device, sizes):
        make = Make(device, DTYPES[self.dtype], sizes)
        made = Work([one.detach().requires_grad_(True) for one in self.leaves(make)], self.constants(make))
        with torch.no_grad():
            made.incoming = make.numbers(*self.function(*made.leaves, *made.constants).shape)
        return made


class Make:
    """Values: `x` has the row's sizes, vectors have its last size."""

    def __init__(self, device, dtype, sizes):
        self.options, self.sizes, self.width = {"device": device, "dtype": dtype}, sizes, sizes[-1]

    def numbers(self, *sizes):
        return torch.randn(sizes, **self.options)

    def named(self, letters):
        """x: the row's sizes; b(ias) and w(eight): vectors; s(cale): a number per row."""
        makers = {
            "x": lambda: self.numbers(*self.sizes),
            "b": lambda: self.numbers(self.width),
            "w": lambda: self.numbers(self.width).abs() + 0.5,
            "s": lambda: self.numbers(self.sizes[0], 1),
        }
        return [makers[letter]() for letter in letters]

    def square(self):
        return self.numbers(self.width, self.width)


def dropout(y):
    return F.dropout(y, 0.1)


def norm(y, weight=None, bias=None):
    return F.layer_norm(y, y.shape[-1:], weight, bias)


def swiglu(x):
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


def rms_norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


def chain(x):
    for _ in range(10):
        x = torch.tanh(torch.sin(x * 1.5))
    return x


def mlp(*arguments):
    *leaves, x = arguments
    for weight, bias in zip(leaves[::2], leaves[1::2]):
        x = F.gelu(torch.addmm(bias, x, weight))
    return x


def block(weight, bias, q, k, v, project, widen, narrow, x):
    y = norm(x, weight, bias)
    scores = torch.softmax(torch.mm(torch.mm(y, q), torch.mm(y, k).t()) * 0.125, -1)
    mixed = x + torch.mm(torch.mm(scores, torch.mm(y, v)), project)
    return mixed + torch.mm(F.gelu(torch.mm(mixed, widen)), narrow)


def tiny(x, square):
    for _ in range(200):
        x = torch.tanh(torch.sin(torch.mm(x, square)) * 1.5) + x
    return x


# name -> function, letters of its leaves, letters of its constants, whether it draws
PATTERNS = {
    "cosines": (lambda a, b, c, d: (a + b + c + d).cos().cos(), "xxxx", "", False),
    "bias_gelu": (lambda x, b: F.gelu(x + b), "xb", "", False),
    "swiglu": (swiglu, "x", "", False),
    "dropout_residual": (lambda x, b, r: dropout(F.relu(x + b)) + r, "xbx", "", True),
    "softmax": (lambda x: torch.softmax(x * 0.125, -1), "x", "", False),
    "layer_norm": (norm, "xwb", "", False),
    "rms_norm": (rms_norm, "xw", "", False),
    "column_sums": (lambda w, x: x * w, "w", "x", False),
    "row_sums": (lambda s, x: x * s, "s", "x", False),
    "chain": (chain, "x", "", False),
    "seed/bias_relu_dropout": (lambda x, b: dropout(F.relu(x + b)), "xb", "", True),
    "seed/bias_gelu_dropout": (lambda x, b: dropout(F.gelu(x + b)), "xb", "", True),
    "seed/bias_silu_dropout": (lambda x, b: dropout(F.silu(x + b)), "xb", "", True),
    "seed/bias_dropout_residual": (lambda x, b, r: dropout(x + b) + r, "xbx", "", True),
    "seed/bias_dropout_residual_norm": (lambda x, b, r, w, n: norm(dropout(x + b) + r, w, n), "xbxwb", "", True),
    "seed/add_norm_add": (lambda a, b, c: norm(a + b) + c, "xxx", "", False),
    "seed/layer_norm": (norm, "xwb", "", False),
}

LARGE, SMALL = (8192, 4096), (64, 256)
SEED_SIZES = ((8, 256, 512), (8, 512, 1024), (4, 1024, 1024), (2, 2048, 2048), (1, 2048, 12288), (2, 4096, 4096))


def name_of(pattern, sizes, dtype):
    return f"{pattern}/{'x'.join(map(str, sizes))}/{dtype}"


def of_pattern(pattern, sizes, dtype):
    function, leaves, constants, draws = PATTERNS[pattern]
    return Row(name_of(pattern, sizes, dtype), function, lambda make: make.named(leaves), sizes, dtype,
               lambda make: make.named(constants), draws)


def layers(make):
    return [tensor for _ in range(6) for tensor in (make.square() / 8, make.numbers(make.width))]


def block_leaves(make):
    width = make.width
    matrices = [make.numbers(width, columns) / 16 for columns in (width, width, width, width, 4 * width)]
    return [*make.named("wb"), *matrices, make.numbers(4 * width, width) / 32]


def step_rows():
    x = lambda make: make.named("x")  # noqa: E731
    return [
        Row(name_of("steps/chain", (64, 64), "float32"), chain, x, (64, 64), "float32"),
        Row(name_of("steps/mlp", (64, 64), "float32"), mlp, layers, (64, 64), "float32", x),
        Row(name_of("steps/block", (64, 64), "float32"), block, block_leaves, (64, 64), "float32", x),
        Row(name_of("steps/tiny", (8, 8), "float32"), tiny, x, (8, 8), "float32", lambda make: [make.square() / 4]),
    ]


def rows():
    made = []
    for pattern in ("cosines", "bias_gelu", "swiglu", "dropout_residual", "softmax", "layer_norm", "rms_norm"):
        made += [of_pattern(pattern, LARGE, "float32"), of_pattern(pattern, LARGE, "bfloat16"), of_pattern(pattern, SMALL, "float32")]
    for pattern in ("column_sums", "row_sums"):
        made += [of_pattern(pattern, LARGE, "float32"), of_pattern(pattern, LARGE, "bfloat16")]
    made += [
        of_pattern("cosines", (8192, 8192), "float32"),
        of_pattern("cosines", (1024, 2048), "float32"),
        of_pattern("softmax", (4096, 50304), "bfloat16"),
        of_pattern("chain", SMALL, "float32"),
    ]
    made += step_rows()
    for pattern in PATTERNS:
        if pattern.startswith("seed/"):
            made += [of_pattern(pattern, sizes, dtype) for dtype in ("float16", "float32") for sizes in SEED_SIZES]
    return made
