"""Modules and functions at sizes that are new in every call: they have one program for all of them."""

import functools
import itertools
import sys
import weakref

import hindcast
import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="sizes are followed from Python 3.11 on")

SIZES = ((4, 6), (3, 8), (5, 7), (7, 9), (2, 11), (9, 5), (6, 10), (8, 13), (10, 4))  # batch, length
WIDTH = 8


def randn(*sizes):
    return torch.randn(*sizes, dtype=torch.float64, requires_grad=True)


def sequences(batch, length):
    return (randn(batch, length, WIDTH),)


def pairs(batch, length):
    return randn(batch, length, WIDTH), randn(batch, length + 3, WIDTH)


def images(batch, length):
    return (randn(batch, 4, 2 * length, 3 * length),)


def with_causal_mask(batch, length):
    return (*sequences(batch, length), torch.full((length, length), float("-inf"), dtype=torch.float64).triu(1))


def with_padding(batch, length):
    return (*sequences(batch, length), torch.arange(length).expand(batch, length) >= length - 1)


def module(make):
    torch.manual_seed(0)
    return make().double()


attention = module(lambda: nn.MultiheadAttention(WIDTH, 2, batch_first=True))
rnn = module(lambda: nn.GRU(WIDTH, WIDTH, batch_first=True))
length_first = module(lambda: nn.MultiheadAttention(WIDTH, 2))


def two_reads(x):
    batch, length, width = x.shape
    y = x.reshape(batch * length, width).tanh()
    rows, _ = y.shape
    return y.view(batch, rows // batch, width) + x


def heads(x):
    b, t, c = x.size()
    q = x.view(b, t, 2, c // 2).transpose(1, 2)
    y = (q @ q.transpose(-2, -1) * q.size(-1) ** -0.5).softmax(-1) @ q
    return y.transpose(1, 2).contiguous().view(b, t, c)


def checked(x):
    if len(x.shape) != 3 or x.shape[-1] != WIDTH:
        raise ValueError(f"expected (batch, length, {WIDTH}), got {x.shape}")
    shape = list(x.shape)
    return x.reshape(max(x.shape[0], 1), -1).view(shape) * 2


def shaped(x, batch, length, count=2):
    return x.view(batch, length, count, x.size(-1) // count).transpose(1, 2)


def merged(x, *, batch, length):
    return x.transpose(1, 2).reshape(batch, length, -1)


def shaped_with_its_length(x, batch):
    return shaped(x, batch, x.shape[1])


def sizes_of(x):
    batch, length, _ = x.shape
    return batch, length


def as_list(x):
    return [x.shape[0], x.shape[1]]


def reshaped(x, *sizes):
    return x.reshape(*sizes)


def forwarded(x, *sizes):
    return reshaped(x, *sizes)


def by_pair(x, shape):
    batch, length = shape
    return x.reshape(batch * length, -1)


def with_default(x, rows, columns=None):
    return x.reshape(rows, -1 if columns is None else columns)


def causal_mask(length, device):
    return torch.full((length, length), float("-inf"), dtype=torch.float64, device=device).triu(1)


class Cutter:
    parts = 2

    def cut(self, x, length):
        return x[:, : length // self.parts]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.heads = 2

    def forward(self, x, batch, length):
        q = shaped(self.linear(x), batch, length, self.heads)
        return merged((q @ q.mT).softmax(-1) @ q, batch=batch, length=length) + x


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        batch, length = sizes_of(x)
        for block in self.blocks:
            x = block(x, batch, length)
        return self.blocks[0](x, batch, length)


def with_closure():
    def rows_of(x, rows):
        return x.reshape(rows, -1)

    return lambda x: rows_of(x, x.shape[0])


cutter = Cutter()
blocks = module(Blocks)


def turned(x):
    return F.affine_grid(torch.eye(2, 3).double().expand(x.shape[0], 2, 3), x.shape, align_corners=False)


def written(x):
    n, t = x.shape[:2]
    y = x.sin()
    loss = F.mse_loss(y, torch.zeros_like(y), reduction="sum")
    z = y + 1
    z /= n
    return loss / (n * t) + z.sum()


FOLLOWED = {
    "two reads": (two_reads, sequences),
    "heads": (heads, sequences),
    "checked": (checked, sequences),
    "a mean": (lambda x: (x * x).sum() / x.shape[0], sequences),
    "a mean of all": (lambda x: x.square().sum() / x.numel() + x.shape[1] * x.mean(), sequences),
    "elements of a view": (lambda x: x.square().sum() / x[:, 0].nelement(), sequences),
    "a view's product": (lambda x: x.view(x.shape[0], -1) * x.shape[0] / x.reshape(x.shape[0], -1).shape[1], sequences),
    "products": (lambda x: x * x.shape[0] - x[:, 0].exp()[:, None] * x.shape[1] + x.shape[0], sequences),
    "written": (written, sequences),
    "divergence": (lambda x: F.kl_div(x.log_softmax(-1), x.detach().softmax(-1), reduction="batchmean"), sequences),
    "attention": (lambda x: attention(x, x, x)[0], sequences),
    "attention without weights": (lambda x: attention(x, x, x, need_weights=False)[0], sequences),
    "attention, length first": (lambda x: length_first(x, x, x)[0], sequences),
    "attention to another": (lambda x, y: attention(x, y, y)[0], pairs),
    "attention with a mask": (lambda x, mask: attention(x, x, x, attn_mask=mask)[0], with_causal_mask),
    "attention with padding": (lambda x, is_padding: attention(x, x, x, key_padding_mask=is_padding)[0], with_padding),
    "encoder layer": (module(lambda: nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.0, batch_first=True)), sequences),
    "group norm": (module(lambda: nn.GroupNorm(2, 4)), images),
    "instance norm": (module(lambda: nn.InstanceNorm2d(4)), images),
    "adaptive pool": (nn.AdaptiveMaxPool2d(2), images),
    "padded": (lambda x: F.pad(x, (0, 0, 0, x.shape[1] // 2)), sequences),
    "max pool of rows": (nn.MaxPool1d(3, 2, 1), lambda batch, length: (randn(batch, 4, 2 * length + 3),)),
    "upsampled": (nn.Upsample(scale_factor=2, mode="bilinear"), images),
    "upsampled by a fraction": (lambda x: F.interpolate(x, scale_factor=(1.5, 0.5), mode="bicubic"), images),
    "nearest": (lambda x: F.interpolate(x, scale_factor=0.7), images),
    "upsampled as another": (lambda x: F.interpolate(F.avg_pool2d(x, 2), size=x.shape[-2:], mode="bilinear", align_corners=True), images),
    "upsampled rows": (lambda x: F.interpolate(x.mT, size=2 * x.shape[1], mode="linear"), sequences),
    "folded": (lambda x: F.fold(F.unfold(x, 2), x.shape[-2:], 2), images),
    "rnn": (lambda x: rnn(x)[0], lambda batch, _: (randn(batch, 3, WIDTH),)),
    "solved": (lambda x: torch.linalg.solve(x.mT @ x + torch.eye(WIDTH).double(), x.mT), sequences),
    "lower triangle": (lambda x: torch.linalg.cholesky(x.mT @ x + torch.eye(WIDTH).double()), sequences),
    "singular values": (lambda x: torch.linalg.svdvals(x.mT @ x + torch.diag(torch.arange(WIDTH).double())), sequences),
    "eigenvalues": (lambda x: torch.linalg.eigvalsh(x.mT @ x + torch.diag(torch.arange(WIDTH).double())), sequences),
    "orthonormal": (lambda x: torch.linalg.qr(x.mT @ x + torch.eye(WIDTH).double())[1].abs(), sequences),
    "pairs": (lambda x: F.pdist(x[:, 0]), lambda batch, length: (randn(batch + 1, length, WIDTH),)),
    "encoder": (module(lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.0, batch_first=True), 2)), sequences),
    "transformer": (module(lambda: nn.Transformer(WIDTH, 2, 1, 1, 16, 0.0, batch_first=True)), pairs),
    "arguments": (lambda x: shaped(x, x.shape[0], x.shape[1]), sequences),
    "arguments by name": (lambda x: merged(x[:, None], length=x.shape[1], batch=x.shape[0]), sequences),
    "a function in a function": (lambda x: shaped_with_its_length(x, x.shape[0]), sequences),
    "returned": (lambda x: x.reshape(sizes_of(x)[0] * sizes_of(x)[1], -1), sequences),
    "returned in a list": (lambda x: x.reshape(as_list(x)[0], -1), sequences),
    "any number of arguments": (lambda x: forwarded(x, x.shape[0], -1), sequences),
    "a pair": (lambda x: by_pair(x, x.shape[:2]), sequences),
    "a default": (lambda x: with_default(x, x.shape[0]), sequences),
    "a method": (lambda x: cutter.cut(x, x.shape[1]), sequences),
    "a mask": (lambda x: (x @ x.mT + causal_mask(x.size(1), x.device)).softmax(-1) @ x, sequences),
    "a closure": (with_closure(), sequences),
    "modules": (blocks, sequences),
    "grid": (lambda x: F.grid_sample(x, turned(x), align_corners=False), images),
    "split": (lambda x: torch.cat([y.sin() for y in x.split([x.shape[1] - 2, 2], 1)], 1), sequences),
    "unflattened": (lambda x: x.flatten(0, 1).unflatten(0, (x.shape[0], x.shape[1])).sin(), sequences),
    "eye": (lambda x: x.mT @ torch.eye(x.shape[1]).double(), sequences),
}


TRACES = {"grid": 3}  # it compares the batch with the channels


def differentiated(function, arguments):
    """The result, and the gradients of the arguments that require one."""
    result = function(*arguments)
    return result, *torch.autograd.grad(result.sin().sum(), [each for each in arguments if each.requires_grad])


@pytest.mark.parametrize("name", FOLLOWED)
def test_there_is_one_program_for_all_sizes(name):
    function, arguments_of = FOLLOWED[name]
    f = hindcast.aot_function(function, back_off=False)
    for batch, length in SIZES:
        arguments = arguments_of(batch, length)
        torch.testing.assert_close(differentiated(f, arguments), differentiated(function, arguments))
    stats = f.stats()
    assert stats["traces"] == TRACES.get(name, 2) and stats["eager"] == 0, stats


# ---- functions in Python that would notice get numbers

seen = []


def noted(x, rows):
    seen.append(rows)
    return x.reshape(rows, -1)


def noted_deeper(x, *rows):
    return noted(x, *rows)


def by_text(x, rows):
    return x.reshape(rows, -1) * len(str(rows))


def for_each(x, rows):
    for i in range(rows):
        x = x * (1 + i / 8)
    return x


def recursive(x, rows):
    return x if rows < 3 else recursive(x * 2, rows - 2)


def kept_globally(x, rows):
    global last
    last = rows
    return x.reshape(last, -1)


def captured(x, rows):
    return (lambda: x.reshape(rows, -1))()


def generated(x, rows):
    yield x.reshape(rows, -1)


class Keeps:
    def rows_of(self, x, rows):
        self.rows = rows
        return x.reshape(self.rows, -1)


class Watched(nn.Module):
    def forward(self, x, rows):
        return x.reshape(rows, -1)


keeps, watched = Keeps(), Watched()
watched.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[1]))


def replaced(x, rows):
    return x.reshape(rows, -1)


def replaces(x):
    global replaced
    first = replaced(x, x.shape[0])
    replaced, former = noted, replaced
    try:
        return first + replaced(x, x.shape[0])
    finally:
        replaced = former


class Cached:
    @functools.lru_cache(None)
    def split(self, rows):
        return float(rows)


class Box:
    pass


class Watching(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.sizes = (kwargs or {}).get("size", ())
        return function(*args, **(kwargs or {}))


cached = Cached()


def given_to_a_builtin(x):
    box, items = Box(), []
    box.view = items.append
    box.view(x.shape[0])
    return x * (type(items[0]) is int)


def resized_in_a_mode(x):
    with Watching() as mode:
        y = F.interpolate(x[None], size=(x.shape[1] * 2, WIDTH))[0]
    return y * all(type(n) is int for n in mode.sizes)


class Weak:
    pass


def let_go(x):
    kept = Weak()
    reference = weakref.ref(kept)
    rows = len(str(x.shape[0]))
    kept = None
    return x * (2 * rows if reference() is None else 3)


def quotient(x):
    try:
        return x * (x.shape[0] // x[:, 7:].shape[1])
    except ZeroDivisionError:
        return x * 100


NOTICING = {
    "noted": lambda x: noted(x, x.shape[0]),
    "noted deeper": lambda x: noted_deeper(x, x.shape[0]),
    "text": lambda x: by_text(x, x.shape[0]),
    "range": lambda x: for_each(x, x.shape[0]),
    "recursive": lambda x: recursive(x, x.shape[0]),
    "global": lambda x: kept_globally(x, x.shape[0]),
    "captured": lambda x: captured(x, x.shape[0]),
    "generated": lambda x: next(generated(x, x.shape[0])),
    "attribute": lambda x: keeps.rows_of(x, x.shape[0]),
    "hook": lambda x: watched(x, x.shape[0]),
    "mapping": lambda x: x.reshape(dict(rows=x.shape[0])["rows"], -1) * len({x.shape[0]: 1}),
    "returned and noted": lambda x: noted(x, sizes_of(x)[0]),
    "replaced": replaces,
    "a cached method": lambda x: x * cached.split(x.shape[0]),
    "an iterator": lambda x: x * sum(type(n) is int for n in itertools.repeat(x.shape[0], 2)),
    "a builtin": given_to_a_builtin,
    "a mode": resized_in_a_mode,
    "what the function lets go of": let_go,
    "division by zero": quotient,
}


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.complex64, torch.int32, torch.int64, torch.uint8, torch.bool))
@pytest.mark.parametrize("is_number", (False, True), ids=("rows", "number"))
def test_arithmetic_of_tensors_and_sizes_has_eagers_dtype(dtype, is_number):
    for compute in (lambda x, n: x * n, lambda x, n: n * x, lambda x, n: x + n, lambda x, n: x / n):

        def function(x, rows):
            return compute(x, rows.shape[0])

        f = hindcast.aot_function(function, back_off=False)
        for n in (5, 7, 9, 300, 11):
            arguments = (torch.rand(() if is_number else n) * 9).to(dtype), torch.zeros(n, 2)
            torch.testing.assert_close(f(*arguments), function(*arguments), rtol=0, atol=0)
        is_small = is_number and dtype in (torch.int32, torch.uint8)  # a size as a tensor would change the dtype
        assert is_small or f.stats()["traces"] == 2


@pytest.mark.parametrize("name", NOTICING)
def test_a_function_that_would_notice_gets_numbers(name):
    seen.clear()
    function = NOTICING[name]
    f = hindcast.aot_function(function, back_off=False)
    for batch, length in SIZES:
        arguments = sequences(batch, length)
        torch.testing.assert_close(differentiated(f, arguments), differentiated(function, arguments))
    assert all(type(each) is int for each in seen), seen


def test_interpolation_gets_numbers_where_another_library_has_the_dispatch_key(monkeypatch):
    monkeypatch.setattr("hindcast._size_names._has_symbolic_upsampling", lambda: False)

    def function(x):
        return F.interpolate(x.mT, size=2 * x.shape[1])

    f = hindcast.aot_function(function, back_off=False)
    for batch, length in SIZES[:4]:
        arguments = sequences(batch, length)
        torch.testing.assert_close(differentiated(f, arguments), differentiated(function, arguments))
    assert f.stats()["traces"] == 4


def test_an_error_names_numbers():
    def check(x):
        if x.shape[0] > 6:
            raise ValueError(f"{x.shape[0]} rows in {x.shape}")
        return x * 2

    f = hindcast.aot_function(check, back_off=False)
    for rows in (3, 4, 5, 6):
        f(randn(rows, 5)).sum().backward()
    for rows in (7, 9):
        with pytest.raises(ValueError, match=rf"^{rows} rows in torch.Size\(\[{rows}, 5\]\)$"):
            f(randn(rows, 5))
    assert f.stats()["traces"] <= 4, "two programs, and a trace for each error"


def test_pytorchs_errors_name_numbers():
    f = hindcast.aot_function(lambda x: x.view(x.shape[0], 7), back_off=False)
    for rows in (3, 4, 5):
        f(randn(rows, 7)).sum().backward()
    for rows in (6, 8):
        with pytest.raises(RuntimeError, match=rf"shape '\[{rows}, 7\]' is invalid for input of size {5 * rows}"):
            f(randn(rows, 5))


WITH_NUMBERS = {
    "times": lambda x, n: x * n,
    "over": lambda x, n: (x * x).sum() / n,
    "from": lambda x, n: (n - x).square(),
    "over x": lambda x, n: n / (x + 10),
    "in place": lambda x, n: (x * x).mul_(n),
    "twice": lambda x, n: x * x * n * n,
}


@pytest.mark.parametrize("name", WITH_NUMBERS)
@pytest.mark.parametrize("end", [lambda y: y.tolist(), lambda y: y.register_hook(lambda gradient: gradient), lambda y: y.retain_grad()])
def test_a_call_that_ends_a_trace_keeps_the_sizes_that_it_computed_with(name, end):
    """PyTorch passes 7777777 for a symbolic number, and autograd saves it."""

    def function(x):
        y = WITH_NUMBERS[name](x, x.shape[0])
        end(y)
        return y

    f = hindcast.aot_function(function, "eager", "eager")
    for n in (3, 3, 5, 6, 7, 5):
        gradients = []
        for call in (f, function):
            x = torch.linspace(0.1, 1, n).requires_grad_()
            call(x).sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)
