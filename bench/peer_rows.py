"""The rows of hindcast_bench that bench/peers.py runs under PyTorch's compilers: same names, same sizes.

Each row is a function of its leaves and constants alone, as AOT autograd wants it.
"""

import math
from dataclasses import dataclass
from typing import Callable, Optional

import torch
import torch.nn.functional as F

DROPOUT = 0.1


@dataclass
class Row:
    # function(*leaves, *constants) -> the root of a new graph; none of an optimizer's rows, whose leaves have gradients
    function: Optional[Callable]
    leaves: list
    constants: tuple = ()
    incoming: Optional[torch.Tensor] = None  # the root's gradient; none where the root is a scalar
    zero_in_place: bool = False  # else the gradients are dropped before a backward
    after_backward: Optional[Callable] = None  # timed with the backward
    random: bool = False  # draws masks: two compilers of the forward draw different ones
    partition: str = "min_cut"  # of rows aot/...: what decides which values the forward saves
    max_norm: Optional[float] = 1.0  # of rows step/... and train_step/...: the gradients are clipped to it

    def root(self, function):
        return function(*self.leaves, *self.constants)

    def clear_grads(self):
        for leaf in self.leaves:
            if self.zero_in_place and leaf.grad is not None:
                leaf.grad.zero_()
            else:
                leaf.grad = None


def parameter(values):
    return values.detach().requires_grad_(True)


class Parameters:
    """Creates the leaves of a model; its creator finds their values again among a function's arguments."""

    def __init__(self):
        self.leaves = []

    def keep(self, values):
        self.leaves.append(parameter(values))
        return len(self.leaves) - 1

    def random(self, sizes, fan_in):
        return self.keep(torch.randn(sizes) / math.sqrt(fan_in))

    def linear(self, width_in, width_out):
        return self.random((width_out, width_in), width_in), self.keep(torch.zeros(width_out))

    def norm(self, width):
        return self.keep(torch.ones(width)), self.keep(torch.zeros(width))


def mixed_chain(ops):
    def function(x):
        for i in range(ops):
            if i % 4 == 0:
                x = x * 1.001
            elif i % 4 == 1:
                x = x + 1e-4
            elif i % 4 == 2:
                x = x.sin()
            else:
                x = x.tanh()
        return x.sum()

    return Row(function, [parameter(torch.linspace(-0.1, 0.1, 16))])


def mul_leaves(count):
    def function(*arguments):
        return torch.cat([leaf * arguments[-1] for leaf in arguments[:-1]]).sum()

    return Row(function, [parameter(torch.rand(8)) for _ in range(count)], (torch.rand(8),))


def cat_leaves(count):
    def function(*leaves):
        return torch.cat(leaves).sin().sum()

    return Row(function, [parameter(torch.rand(8)) for _ in range(count)])


def mlp(widths, batch):
    make = Parameters()
    layers = [make.linear(*pair) for pair in zip(widths, widths[1:])]
    constants = torch.randn(batch, widths[0]), torch.randint(widths[-1], (batch,))

    def function(*a):
        x, target = a[-2:]
        for i, (weight, bias) in enumerate(layers):
            x = F.linear(x if i == 0 else F.relu(x), a[weight], a[bias])
        return F.cross_entropy(x, target)

    return Row(function, make.leaves, constants)


def ppo(observations, width, actions, batch):
    """A policy with tanh: the clipped surrogate of PPO, and the entropy of its actions."""
    make = Parameters()
    layers = [make.linear(*pair) for pair in ((observations, width), (width, width), (width, actions))]
    action = torch.randint(actions, (batch,))
    old_log_prob = F.log_softmax(torch.randn(batch, actions), 1).gather(1, action.unsqueeze(1)).squeeze(1)
    constants = torch.randn(batch, observations), action, old_log_prob, torch.randn(batch)

    def function(*a):
        x, action, old_log_prob, advantage = a[-4:]
        for i, (weight, bias) in enumerate(layers):
            x = F.linear(x if i == 0 else torch.tanh(x), a[weight], a[bias])
        log_probs = F.log_softmax(x, 1)
        ratio = (log_probs.gather(1, action.unsqueeze(1)).squeeze(1) - old_log_prob).exp()
        surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        entropy = -(log_probs.exp() * log_probs).sum(1)
        return -(surrogate + 0.01 * entropy).mean()

    return Row(function, make.leaves, constants, max_norm=0.5)


def lstm(width, steps=20, batch=32):
    """A cell of single operators; its outputs are kept in a list."""
    make = Parameters()
    of_input, of_state = make.linear(width, 4 * width), make.linear(width, 4 * width)
    constants = torch.randn(batch, steps, width), torch.randn(batch, steps, width)

    def function(*a):
        x, target = a[-2:]
        state = memory = x.new_zeros(batch, width)
        kept = []
        for step in range(steps):
            gates = F.linear(x[:, step], a[of_input[0]], a[of_input[1]]) + F.linear(state, a[of_state[0]], a[of_state[1]])
            forget, write, fresh, show = gates.chunk(4, 1)
            memory = forget.sigmoid() * memory + write.sigmoid() * fresh.tanh()
            state = show.sigmoid() * memory.tanh()
            kept.append(state)
        return F.mse_loss(torch.stack(kept, 1), target)

    return Row(function, make.leaves, constants)


def pinn(widths, points):
    """A physics-informed net: the Laplacian of its output has a target."""
    make = Parameters()
    layers = [make.linear(*pair) for pair in zip(widths, widths[1:])]
    x = torch.rand(points, widths[0])
    constants = x, (math.pi * x).sin().prod(1)

    def function(*a):
        x, wanted = a[-2].detach().requires_grad_(), a[-1]
        y = x
        for i, (weight, bias) in enumerate(layers):
            y = F.linear(y if i == 0 else torch.tanh(y), a[weight], a[bias])
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        laplacian = sum(torch.autograd.grad(slope[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(widths[0]))
        return F.mse_loss(laplacian, wanted)

    return Row(function, make.leaves, constants)


def gradient_penalty(widths, batch):
    """A critic of WGAN-GP: its loss, and a penalty that keeps its slope near 1 between real and generated samples."""
    make = Parameters()
    layers = [make.linear(*pair) for pair in zip(widths, widths[1:])]
    constants = torch.randn(batch, widths[0]), torch.randn(batch, widths[0]), torch.rand(batch, 1)

    def function(*a):
        real, made, share = a[-3:]

        def critic(x):
            for i, (weight, bias) in enumerate(layers):
                x = F.linear(x if i == 0 else F.silu(x), a[weight], a[bias])
            return x

        between = (share * real + (1 - share) * made).detach().requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        return (critic(made) - critic(real)).mean() + 10 * ((slope.norm(2, 1) - 1) ** 2).mean()

    return Row(function, make.leaves, constants)


def maml(widths, batch, steps=3, rate=0.1):
    """Meta-learning: the loss after some steps of descent, whose gradients have a graph."""
    make = Parameters()
    layers = [make.linear(*pair) for pair in zip(widths, widths[1:])]
    constants = torch.randn(batch, widths[0]), torch.randn(batch, widths[-1])

    def function(*a):
        x, wanted = a[-2:]

        def loss(weights):
            y = x
            for i, (weight, bias) in enumerate(layers):
                y = F.linear(y if i == 0 else torch.tanh(y), weights[weight], weights[bias])
            return F.mse_loss(y, wanted)

        weights = a[:-2]
        for _ in range(steps):
            slopes = torch.autograd.grad(loss(weights), weights, create_graph=True)
            weights = [weight - rate * slope for weight, slope in zip(weights, slopes)]
        return loss(weights)

    return Row(function, make.leaves, constants)


def schnet(molecules, atoms, width=64, filters=32, blocks=3):
    """A force field like SchNet, of energies and forces: each atom sees all others of its molecule, at most 27."""
    make = Parameters()
    kinds = make.random((5, width), width)
    filter_nets = [(make.linear(filters, width), make.linear(width, width)) for _ in range(blocks)]
    updates = [(make.linear(width, width), make.linear(width, width)) for _ in range(blocks)]
    readout = make.linear(width, width // 2), make.linear(width // 2, 1)
    one = torch.tensor([(i, j) for i in range(atoms) for j in range(atoms) if i != j])
    to, of = torch.cat([one + molecule * atoms for molecule in range(molecules)]).t().contiguous()
    count = molecules * atoms
    centers = torch.linspace(0, 5, filters)
    lattice = torch.cartesian_prod(*[torch.arange(3.0)] * 3)[:atoms].repeat(molecules, 1)
    constants = (1.2 * lattice + 0.1 * torch.randn(count, 3), torch.randint(5, (count,)), to, of, centers, torch.randn(molecules), torch.randn(count, 3))

    def function(*a):
        positions, kind, to, of, centers, energies, forces = a[-7:]

        def linear(pair, x):
            return F.linear(x, a[pair[0]], a[pair[1]])

        positions = positions.detach().requires_grad_()
        apart = positions.index_select(0, to) - positions.index_select(0, of)
        distance = ((apart * apart).sum(1) + 1e-6).sqrt()
        near = torch.exp(-2 * (distance.unsqueeze(1) - centers) ** 2)
        x = a[kinds].index_select(0, kind)
        for (first, second), (inner, outer) in zip(filter_nets, updates):
            weights = linear(second, F.softplus(linear(first, near)))
            messages = linear(inner, x).index_select(0, of) * weights / atoms
            x = x + F.softplus(linear(outer, torch.zeros_like(x).index_add(0, to, messages)))
        energy = linear(readout[1], F.softplus(linear(readout[0], x))).view(molecules, atoms).mean(1)
        (slope,) = torch.autograd.grad(energy.sum(), positions, create_graph=True)
        return F.mse_loss(energy, energies) + F.mse_loss(-slope, forces)

    return Row(function, make.leaves, constants)


def norm_silu(sizes, groups):
    leaves = [parameter(values) for values in
              (torch.randn(sizes), torch.randn(sizes), torch.ones(sizes[1]), torch.zeros(sizes[1]))]

    def function(x, residual, weight, bias):
        return F.silu(F.group_norm(x + residual, groups, weight, bias))

    return Row(function, leaves, incoming=torch.randn(sizes))


def residual_net(images, stem_of, blocks_of, classes, shortcut_side=3, pool=lambda x: x):
    """`stem_of`: width, stride and side of the kernel of the first convolution; `blocks_of`: width and stride of each
    block."""
    make = Parameters()
    statistics = []  # running mean and variance of each batch norm

    def conv_norm(width_in, width_out, stride, side=3):
        kernel = make.random((width_out, width_in, side, side), width_in * side**2)
        weight, bias = make.norm(width_out)
        statistics.extend((torch.zeros(width_out), torch.ones(width_out)))
        return kernel, weight, bias, len(statistics) - 2, stride

    stem = conv_norm(images[1], *stem_of)
    blocks = []
    width_in = stem_of[0]
    for width, stride in blocks_of:
        block = [conv_norm(width_in, width, stride), conv_norm(width, width, 1)]
        blocks.append(block + [conv_norm(width_in, width, stride, shortcut_side)] if stride != 1 else block)
        width_in = width
    head_weight, head_bias = make.linear(width_in, classes)
    leaves = len(make.leaves)
    constants = *statistics, torch.randn(images), torch.randint(classes, images[:1])

    def function(*a):
        x, target = a[-2:]

        def apply(layer, x):
            kernel, weight, bias, at, stride = layer
            mean, var = a[leaves + at], a[leaves + at + 1]
            y = F.conv2d(x, a[kernel], None, stride, a[kernel].shape[2] // 2)
            return F.batch_norm(y, mean, var, a[weight], a[bias], True)

        x = pool(F.relu(apply(stem, x)))
        for block in blocks:
            y = apply(block[1], F.relu(apply(block[0], x)))
            x = F.relu(y + (apply(block[2], x) if len(block) == 3 else x))
        x = F.adaptive_avg_pool2d(x, (1, 1)).flatten(1)
        return F.cross_entropy(F.linear(x, a[head_weight], a[head_bias]), target)

    return Row(function, make.leaves, constants)


def resnet(image, image_channels, width, batch):
    return residual_net((batch, image_channels, image, image), (width, 1), ((width, 1), (2 * width, 2)), 10)


def resnet18(image, batch):
    blocks = [(width, stride) for width in (64, 128, 256, 512) for stride in (1 if width == 64 else 2, 1)]
    return residual_net((batch, 3, image, image), (64, 2, 7), blocks, 1000, shortcut_side=1,
                        pool=lambda x: F.max_pool2d(x, 3, 2, 1))


def gpt(fused, dropped=DROPOUT):
    width, heads, length, batch, vocabulary = 128, 4, 64, 8, 96
    make = Parameters()
    token_table, position_table = make.random((vocabulary, width), width), make.random((length, width), width)
    layers = [(make.norm(width), make.norm(width), make.linear(width, 3 * width), make.linear(width, width),
               make.linear(width, 4 * width), make.linear(4 * width, width)) for _ in range(2)]
    last_norm, head = make.norm(width), make.linear(width, vocabulary)
    mask = torch.full((length, length), -math.inf).triu(1)
    constants = mask, torch.randint(vocabulary, (batch, length)), torch.randint(vocabulary, (batch * length,))

    def function(*a):
        mask, tokens, targets = a[-3:]

        def linear(pair, x):
            return F.linear(x, a[pair[0]], a[pair[1]])

        def norm(pair, x):
            return F.layer_norm(x, (width,), a[pair[0]], a[pair[1]])

        def drop(x):
            return F.dropout(x, dropped) if dropped else x

        def attend(qkv, x):
            q, k, v = (part.view(batch, length, heads, width // heads).transpose(1, 2)
                       for part in linear(qkv, x).chunk(3, -1))
            if fused:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                y = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(width // heads) + mask, -1) @ v
            return y.transpose(1, 2).reshape(batch, length, width)

        x = drop(F.embedding(tokens, a[token_table]) + a[position_table])
        for norm1, norm2, qkv, project, widen, narrow in layers:
            x = x + drop(linear(project, attend(qkv, norm(norm1, x))))
            x = x + drop(linear(narrow, F.gelu(linear(widen, norm(norm2, x)))))
        return F.cross_entropy(linear(head, norm(last_norm, x)).flatten(0, 1), targets)

    return Row(function, make.leaves, constants, random=dropped > 0)


def aot_tutorial(zero_in_place=False, optimizer=None):
    def function(a, b, c, d):
        return (a + b + c + d).cos().cos().sum()

    row = Row(function, [parameter(torch.randn(1024, 2048)) for _ in range(4)], zero_in_place=zero_in_place)
    if optimizer:
        chosen = optimizer(row.leaves, lr=1e-3)

        def after_backward():
            torch.nn.utils.clip_grad_norm_(row.leaves, 1.0)
            chosen.step()

        row.after_backward = after_backward
    return row


def four_cosines(sizes, partition="min_cut"):
    def function(a, b, c, d):
        return (a + b + c + d).cos().cos()

    leaves = [parameter(torch.randn(sizes)) for _ in range(4)]
    return Row(function, leaves, incoming=torch.randn(sizes), partition=partition)


def xformers(sizes, function, leaves, random=False):
    """`leaves` names the arguments: x, r(esidual) and c are as large as `sizes`, b(ias), w(eight) and n(orm's bias) as
    its last."""
    made = []
    for name in leaves:
        values = torch.randn(sizes if name in "xrc" else sizes[-1:])
        made.append(parameter(values.sigmoid() + 0.5 if name == "w" else values))
    return Row(function, made, incoming=torch.randn(sizes), random=random)


def layer_norm(x, weight=None, bias=None):
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def xformers_patterns():
    """name -> (function, its leaves, whether it draws masks)"""
    patterns = {}
    for name, activation in (("relu", F.relu), ("gelu", F.gelu), ("silu", F.silu)):
        patterns[f"bias_{name}"] = (lambda x, b, act=activation: act(x + b)), "xb", False
    for name, activation in (("relu", F.relu), ("gelu", F.gelu), ("silu", F.silu)):
        patterns[f"bias_{name}_dropout"] = (lambda x, b, act=activation: F.dropout(act(x + b), DROPOUT)), "xb", True
    patterns["bias_dropout_residual_norm"] = (
        lambda x, b, r, w, n: layer_norm(F.dropout(x + b, DROPOUT) + r, w, n), "xbrwn", True)
    patterns["bias_gelu_dropout_residual_norm"] = (
        lambda x, b, r, w, n: layer_norm(F.dropout(F.gelu(x + b), DROPOUT) + r, w, n), "xbrwn", True)
    patterns["layer_norm"] = layer_norm, "xwn", False
    patterns["residual_norm"] = (lambda x, r, w, n: layer_norm(x + r, w, n)), "xrwn", False
    patterns["add_norm_add"] = (lambda x, r, c: layer_norm(x + r) + c), "xrc", False
    patterns["softmax"] = (lambda x: torch.softmax(x, -1)), "x", False
    return patterns


def aot_patterns():
    """Like xformers_patterns(): those that xFormers compiles with memory_efficient_fusion()."""
    known = xformers_patterns()
    patterns = {"bias": (lambda x, b: x + b, "xb", False)}
    patterns.update((name, known[name]) for name in ("bias_gelu", "bias_relu"))
    patterns["bias_dropout"] = (lambda x, b: F.dropout(x + b, DROPOUT)), "xb", True
    patterns["bias_gelu_dropout"] = known["bias_gelu_dropout"]
    patterns["dropout_residual"] = (lambda x, r: F.dropout(x, DROPOUT) + r), "xr", True
    patterns["bias_dropout_residual_norm"] = known["bias_dropout_residual_norm"]
    return patterns


def add_patterns(made, prefix, patterns, shapes):
    for name, (function, leaves, random) in patterns.items():
        for sizes in shapes:
            made[f"{prefix}/{name}/{'x'.join(map(str, sizes))}"] = (
                lambda f=function, n=leaves, r=random, s=sizes: xformers(s, f, n, r))


def models():
    """Those of the rows aot/... and step/..."""
    return {
        "mlp/64-128-64/b32": lambda: mlp((64, 128, 64), 32),
        "mlp/784-512-512-10/b128": lambda: mlp((784, 512, 512, 10), 128),
        "cnn/8x8/b64": lambda: resnet(8, 1, 16, 64),
        "cnn/32x32/b16": lambda: resnet(32, 3, 16, 16),
        "gpt/explicit": lambda: gpt(fused=False),
        "gpt/fused": lambda: gpt(fused=True),
        "resnet18/64x64/b8": lambda: resnet18(64, 8),
    }


def aot_rows():
    """Functions compiled ahead of time: timed with their forwards."""
    made = {
        "aot/cosines/standard/1024x2048": lambda: four_cosines((1024, 2048), "standard"),
        "aot/cosines/min_cut/1024x2048": lambda: four_cosines((1024, 2048)),
        "aot/cosines/min_cut/2x4": lambda: four_cosines((2, 4)),
    }
    add_patterns(made, "aot/xformers", aot_patterns(),
                 ((8, 256, 512), (8, 512, 1024), (4, 1024, 1024), (2, 2048, 2048)))
    return made | {f"aot/{name}": build for name, build in models().items()}


def optimizer_alone(count, floats, max_norm=None):
    leaves = [parameter(torch.randn(floats)) for _ in range(count)]
    for leaf in leaves:
        leaf.grad = torch.randn(floats)
    return Row(None, leaves, max_norm=max_norm)


def step_rows():
    """Whole training steps, and the optimizer's part of them alone."""
    made = {}
    for title, count, floats in (("4x16mb", 4, 4 << 20), ("5000x64", 5000, 64)):
        made[f"step/optimizer/adam/{title}"] = lambda c=count, f=floats: optimizer_alone(c, f)
        made[f"step/optimizer/clip_adam/{title}"] = lambda c=count, f=floats: optimizer_alone(c, f, max_norm=1.0)
    return made | {f"step/{name}": build for name, build in models().items()}


def train_step_rows():
    """Each lane runs in a separate process. The small models have a lane by JAX."""
    return {
        "train_step/ppo/8-64-64-2/b64": lambda: ppo(8, 64, 2, 64),
        "train_step/mlp/64-128-64/b32": lambda: mlp((64, 128, 64), 32),
        "train_step/lstm/20x64/b32": lambda: lstm(64),
        "train_step/mlp/784-512-512-10/b128": lambda: mlp((784, 512, 512, 10), 128),
        "train_step/pinn/2-64-64-64-1/b1024": lambda: pinn((2, 64, 64, 64, 1), 1024),
        "train_step/gpt/2x128": lambda: gpt(fused=True, dropped=0),
        "train_step/resnet18/64x64/b4": lambda: resnet18(64, 4),
    }


def second_order_rows():
    """Like train_step/..., of losses that contain gradients."""
    return {
        "second/schnet/16x12": lambda: schnet(16, 12),
        "second/schnet/1x12": lambda: schnet(1, 12),
        "second/pinn/2-64-64-64-1/b1024": lambda: pinn((2, 64, 64, 64, 1), 1024),
        "second/pinn/2-64-64-64-1/b128": lambda: pinn((2, 64, 64, 64, 1), 128),
        "second/gradient_penalty/64-128-128-1/b64": lambda: gradient_penalty((64, 128, 128, 1), 64),
        "second/maml/16-64-64-1/b32": lambda: maml((16, 64, 64, 1), 32),
    }


def rows():
    """name -> function that creates the Row"""
    made = {
        "chain/mixed/100": lambda: mixed_chain(100),
        "chain/mixed/1000": lambda: mixed_chain(1000),
        "mlp/64-128-64/b32": lambda: mlp((64, 128, 64), 32),
        "cnn/8x8/b64": lambda: resnet(8, 1, 16, 64),
        "cnn/32x32/b16": lambda: resnet(32, 3, 16, 16),
        "cnn/norm_silu/8x64x32x32": lambda: norm_silu((8, 64, 32, 32), 8),
        "gpt/explicit": lambda: gpt(fused=False),
        "gpt/fused": lambda: gpt(fused=True),
        "leaves/mul/5000": lambda: mul_leaves(5000),
        "leaves/cat/5000": lambda: cat_leaves(5000),
        "seed/aot/set_to_none": aot_tutorial,
        "seed/aot/accumulate": lambda: aot_tutorial(zero_in_place=True),
        "seed/aot/clip_sgd": lambda: aot_tutorial(optimizer=torch.optim.SGD),
        "seed/aot/clip_adam": lambda: aot_tutorial(optimizer=torch.optim.Adam),
    }
    add_patterns(made, "seed/xformers", xformers_patterns(), ((8, 256, 512), (8, 512, 1024)))
    return made | aot_rows() | step_rows() | train_step_rows() | second_order_rows()
