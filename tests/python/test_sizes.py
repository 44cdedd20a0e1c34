"""Functions that read sizes: one program for all sizes if only PyTorch gets them, otherwise plain numbers."""

import copy
import random
import sys

import hindcast
import pytest
import torch
import torch.nn.functional as F
from side_by_side import assert_same
from torch import nn

SIZES = (4, 16, 12, 6, 8, 5, 7, 9, 3, 2, 13, 8, 1, 11, 20, 32, 21)
COLUMNS = 12

linear = nn.Linear(4, 4)


def flattened(x):
    rows, columns = x.shape
    return x.view(rows * columns, 1).expand(rows * columns, 3)


def attended(x):
    b, t = x.size(0), x.size(1)
    q = linear(x.view(b, t // 4, 4)).view(b, t // 4, 2, 2).transpose(1, 2)
    return q.reshape(b, -1) + x.new_ones(b, t)


def with_prefix(x):
    prefix = x.shape[:-1]
    shape = (*prefix, -1, 4)
    return linear(x.view(*prefix, -1, 4)).view(shape).sum(-1)


def in_a_block(x):
    with torch.no_grad():
        n = x.shape[0]
    try:
        return x.reshape(n, 3, -1).cos()
    except RuntimeError:
        return x


def branches(x):
    n = x.shape[0]
    if n == 8:
        return x.view(n, -1) * 3
    if n > 10 and n != 20:
        return x.exp()
    return x.reshape(-1) if n % 2 else x.view(n // 2, 2, -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = 2
        self.inner = nn.Linear(COLUMNS, COLUMNS)

    def forward(self, x):
        rows, columns = x.size()
        q = self.inner(x).view(rows, self.heads, columns // self.heads).transpose(0, 1)
        return q.reshape(rows * self.heads, columns // self.heads)


def one_of_two(x, y=None):
    if x is not None:
        shape = x.size()
    else:
        shape = y.size()[:-1]
    rows, columns = shape
    first = 0
    return x.view(rows, columns) + torch.arange(first, first + columns)


def normed(x):
    y = nn.functional.batch_norm(x[None], None, None, training=True)[0]
    return nn.functional.adaptive_avg_pool2d(y[None], (3, 4))[0]


def told_of_columns(x):
    rows, columns = x.shape
    if columns > 100:
        raise ValueError(f"{columns} columns")
    return x.view(rows, 2, -1) * len(f"{columns}")


PLUS = 3


def in_a_loop(x):
    y = x
    for _ in range(3):
        y = y.reshape(y.shape[0], -1, 2).sum(2, keepdim=True).expand(-1, -1, 2).reshape(y.shape)
    return y


def checked(x, y):
    if x.shape != y.shape:  # not assert, which pytest rewrites
        raise ValueError("shapes")
    return x * y.reshape(x.shape)


# The most traces for all of SIZES: the first is for its own size, the second for others, one for size 1.
FOLLOWED = {
    "reshape": (lambda x: x.reshape(x.shape[0], -1, 4).tanh(), 3),
    "flattened": (flattened, 3),
    "attended": (attended, 3),
    "prefix": (with_prefix, 3),
    "block": (in_a_block, 3),
    "branches": (branches, 7),
    "branch": (lambda x: x * 3 if x.shape[0] == 8 else x * 2, 4),
    "loop": (in_a_loop, 3),
    "checked": (lambda x: checked(x, x), 3),
    "arange": (lambda x: x + torch.arange(x.shape[1]) + torch.zeros(x.shape[0], COLUMNS), 3),
    "slice": (lambda x: x[: x.shape[0] // 2].sum(0) + x[:, : x.shape[1] - 3].sum(), 4),
    "indices": (lambda x: x[-1] + x[1:, None].sum((0, 1)), 5),
    "odd": (lambda x: x * x.new_ones((x.shape[0] + 1) // 2, 1).sum(), 3),
    "attention": (Attention(), 3),
    "one of two": (one_of_two, 3),
    "normed": (normed, 3),
    "told of what never changes": (told_of_columns, 3),
    "global": (lambda x: x.repeat(x.shape[0] + PLUS, 1).view(-1, x.shape[1]), 3),
    "numel": (lambda x: x.reshape(x.numel() // 2, 2), 3),
    "repeat": (lambda x: x.repeat(x.shape[0] + 1, 1), 3),
}


def leaf(size):
    return torch.randn(size, COLUMNS, requires_grad=True)


def gradient_of(result, x):
    return torch.autograd.grad(result.sin().sum(), x)


def assert_is_the_function(function, sizes=SIZES, **options):
    """Returns the counts of the compiled one."""
    f = hindcast.aot_function(function, fw_compiler="eager", bw_compiler="eager", back_off=False, **options)
    for size in sizes:
        x = leaf(size)
        expected, seen = function(x), f(x)
        assert_same(seen.detach(), expected.detach(), f"size {size}")
        assert_same(gradient_of(seen, x), gradient_of(expected, x), f"gradient at size {size}")
    assert sys.getprofile() is None
    return f.stats()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="sizes are followed from Python 3.11 on")
@pytest.mark.parametrize("name", FOLLOWED)
def test_there_is_one_program_for_all_sizes(name):
    function, traces = FOLLOWED[name]
    stats = assert_is_the_function(function)
    assert stats["eager"] == 0 and stats["traces"] <= traces, stats


@pytest.mark.skipif(sys.version_info < (3, 11), reason="sizes are followed from Python 3.11 on")
def test_batches_of_a_net_that_trains():
    layers = [nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)]
    net = nn.Sequential(*layers)
    stock = copy.deepcopy(net)
    f = hindcast.aot_module(net, "eager", "eager", back_off=False)
    for rows in (4, 3, 5, 7, 2, 9, 6):
        images = torch.randn(rows, 3, 9, 8)
        given, expected = f(images), stock(images)
        assert_same(given.detach(), expected.detach())
        given.square().sum().backward()
        expected.square().sum().backward()
        assert_same([p.grad for p in net.parameters()], [p.grad for p in stock.parameters()])
        assert_same(list(net.buffers()), list(stock.buffers()))
    assert f.aot_stats()["traces"] == 2 and f.aot_stats()["eager"] == 0


# ---- code that looks at a size gets a number

seen = []


def note(value):
    seen.append(value)
    return value


class Wrapper:
    """Has methods with the names of a tensor's."""

    def __init__(self, tensor):
        self.tensor = tensor

    def view(self, *shape):
        note(shape)
        return self.tensor.view(*shape)

    def reshape(self, shape, *, order="C"):
        note(shape)
        return self.tensor.reshape(shape) if order == "C" else self.tensor

    def expand(self, rows, columns=3):
        def inner():
            return note(rows)

        return self.tensor.sum().expand(inner(), columns)

    def __getitem__(self, index):
        note(index)
        return self.tensor[index]


class WithShape:
    def __init__(self, *shape):
        self.shape = shape


def by_a_cell(x):
    n = x.shape[0]
    return x.view((lambda: note(n))(), -1)


def by_variables(x):
    n = x.shape[0]
    note(locals()["n"])
    return x.view(n, -1)


def by_except(x):
    try:
        return x.view(note(x.shape[0]), -1)
    except RuntimeError as error:
        return x + len(str(error))


def by_comparison(x):
    n = x.shape[0]
    return x * note(n > 5)


def kept_and_viewed(x, shapes):
    shapes["last"] = x.shape
    return x.view(note(shapes["last"])[0], -1)


def with_two_values(x):
    n = x.shape[0]
    if x.shape[1] == COLUMNS:
        n = "text" if n == 3 else n
    return x.view(n, -1) if n != "text" else x * 2


LOOKING = {
    "quotients": lambda x: x.sum() / x.shape[0] - x.shape[0] * x,
    "isinstance": lambda x: x.view(x.shape[0], -1) if isinstance(note(x.shape[0]), int) else x,
    "text": lambda x: x.view(x.shape[0], -1) + len(note(f"{x.shape[0]}")),
    "hash": lambda x: x.view(x.shape[0], -1) * {4: 2.0}.get(note(x.shape[0]), 3.0),
    "quotient": lambda x: x / note(x.shape[0]) + x.mean() * x.numel(),
    "tensor times size": lambda x: x * x.shape[0] + torch.ones(2).sum() * x.shape[0],
    "quotients as numbers": lambda x: x.sum() / int(x.shape[0]) - int(x.shape[0]) * x,
    "tensor times number": lambda x: x * int(x.shape[0]) + torch.ones(2).sum() * int(x.shape[0]),
    "real": lambda x: x[: int(x.shape[0] * 0.5) + 1],
    "rounded down": lambda x: x.view(x.shape[0], -1) * ((1 - x.shape[0]) // 2),
    "range": lambda x: sum(x[i] * i for i in range(x.shape[0])),
    "cell": by_a_cell,
    "variables": by_variables,
    "except": by_except,
    "comparison": by_comparison,
    "mapping": lambda x: kept_and_viewed(x, {}),
    "two values": with_two_values,
    "view of another class": lambda x: Wrapper(x).view(x.shape[0], -1),
    "reshape of another class": lambda x: Wrapper(x).reshape((x.shape[0], -1), order="C"),
    "list for another class": lambda x: Wrapper(x).reshape([x.shape[0], 2, -1]),
    "expand of another class": lambda x: Wrapper(x).expand(x.shape[0]) + x.sum(),
    "slice of another class": lambda x: Wrapper(x)[: x.shape[0], 1 : x.shape[0]],
    "sizes of another class": lambda x: x.view(x.shape[0] * WithShape(torch.tensor(1)).shape[0], -1) * 2,
    "array": lambda x: x + torch.from_numpy(torch.ones(1).numpy().repeat(x.shape[0])).float()[:, None],
    "list": lambda x: x * sum([1.0, 2.0, 3.0, 4.0, 5.0][: x.shape[0]]),
    "keyword": lambda x: Wrapper(x).expand(rows=x.shape[0]) + x.sum(),
}


def types_in(value):
    if isinstance(value, (tuple, list)):
        return set().union(*map(types_in, value))
    return types_in((value.start, value.stop)) if isinstance(value, slice) else {type(value)}


@pytest.mark.parametrize("name", ("quotients as numbers", "tensor times number"))
def test_a_number_that_a_tensor_is_multiplied_with_joins_those_of_a_program(name):
    f = hindcast.aot_function(LOOKING[name], fw_compiler="eager", bw_compiler="eager", back_off=False)
    for size in (*range(4, 20), *range(4, 20)):
        x = leaf(size)
        assert_same(gradient_of(f(x), x), gradient_of(LOOKING[name](x), x))
    assert f.stats()["eager"] == 0 and f.stats()["hits"] == 16


def test_a_size_that_changes_late():
    function = FOLLOWED["told of what never changes"][0]
    f = hindcast.aot_function(function, fw_compiler="eager", bw_compiler="eager", back_off=False)
    for rows, columns in ((4, 12), (5, 12), (6, 12), (6, 8), (7, 8), (5, 120), (9, 10), (9, 12), (8, 8)):
        x = torch.randn(rows, columns, requires_grad=True)
        if columns > 100:
            with pytest.raises(ValueError, match="^120 columns$"):
                f(x)
        else:
            assert_same(gradient_of(f(x), x), gradient_of(function(x), x), f"{rows} x {columns}")


@pytest.mark.parametrize("name", LOOKING)
def test_who_looks_at_a_size_gets_a_number(name):
    seen.clear()
    assert_is_the_function(LOOKING[name])
    assert not {torch.SymInt, torch.SymBool} & types_in(seen), seen


def test_beside_a_profiler_sizes_are_numbers():
    calls = []

    def profile(frame, event, _):
        calls.append(frame.f_code.co_name)

    f = hindcast.aot_function(FOLLOWED["reshape"][0], back_off=False)
    sys.setprofile(profile)
    try:
        for size in SIZES[:3]:
            f(leaf(size)).sum().backward()
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
    assert "<lambda>" in calls and "_enters" not in calls


def test_a_profile_ends_with_a_function_that_raises():
    def function(x):
        y = x.view(x.shape[0], -1)
        if x.shape[0] > 5:
            raise KeyError("user")
        return y

    f = hindcast.aot_function(function)
    f(leaf(4)).sum().backward()
    with pytest.raises(KeyError, match="user"):
        f(leaf(6))
    assert sys.getprofile() is None


def test_a_function_goes_on_with_symbols_as_itself():
    def function(x):
        n = x.shape[0]
        y = x.detach().clone()
        if n > 5:
            y.data_ptr()  # ends the recording
        z = (x * y).view(n * 2, -1)[1:n].expand(n - 1, 6)
        return z + z.new_zeros(n - 1, 1) if n > 6 else z * 2

    assert_is_the_function(function, (4, 12, 12, 7, 5, 4, 9))


def test_a_storage_offset_beside_a_transform():
    def function(x):
        return torch.func.grad(lambda each: each.square().sum())(x) * x.storage_offset() + x

    memory = torch.randn(12)
    function(memory)  # the import of torch.func draws from Python's generator
    f = hindcast.aot_function(function, fw_compiler="eager", bw_compiler="eager", back_off=False)
    for _ in range(3):
        for first in (0, 0, 2, 5):
            x = memory[first : first + 4]
            assert_same(f(x), function(x), f"from {first} on")
    assert f.stats()["hits"] > 0


def test_what_pytorch_exports_is_no_call_of_ours():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = hindcast.aot_function(lambda x: x.view(x.shape[0], -1).cos(), fallback=False)

        def forward(self, x):
            return self.inner(x)

    x = torch.randn(3, 4)
    program = torch.export.export(Net(), (x,), strict=False)
    assert_same(program.module()(x), x.cos())


# ---- any functions of sizes


class Writer:
    """Writes functions that compute with sizes, branch on them, and reshape and slice by them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = ["a", "b"]
        self.count = 0

    def number(self, depth=2):
        pick = self.random.random()
        if depth == 0 or pick < 0.35:
            return self.random.choice(self.names)
        if pick < 0.5:
            return str(self.random.randint(1, 5))
        if pick < 0.6:
            return f"({self.number(depth - 1)} {self.random.choice(('//', '%'))} {self.random.randint(1, 4)})"
        if pick < 0.65:
            return self.random.choice((f"int({self.number(depth - 1)})", f"max({self.number(depth - 1)}, 2)", "x.size(0)", "x.shape[-1]"))
        return f"({self.number(depth - 1)} {self.random.choice('+-*')} {self.number(depth - 1)})"

    def test(self):
        compared = f"{self.number(1)} {self.random.choice(('<', '<=', '==', '!=', '>', '>='))} {self.number(1)}"
        return compared if self.random.random() < 0.7 else f"{compared} and {self.number(1)} > {self.random.randint(0, 9)}"

    def statement(self, depth):
        indent = "    " * depth
        pick = self.random.random()
        if pick < 0.25:
            self.count += 1
            line = f"{indent}n{self.count} = {self.number()}"
            self.names.append(f"n{self.count}")
            return [line]
        if pick < 0.4:
            kept = list(self.names)
            body = self.statement(depth + 1)
            self.names = kept  # may be unbound
            return [f"{indent}if {self.test()}:", *body]
        return [
            indent
            + self.random.choice(
                (
                    "y = y.reshape(a, -1).reshape(y.shape).cos()",
                    f"y = y * y.new_ones({self.number(1)} % 4 + 1, 1, 1).sum()",
                    f"y = y + x[: {self.number(1)} % 3 + 1].sum()",
                    f"y = y * torch.arange({self.number(1)} % 5 + 1).sum()",
                    f"y = y * ({self.number(1)})",
                    "y = y.view(a * b).view(a, b) if y.dim() == 2 else y",
                    f"y = y + x[{self.number(1)} % a]",
                    f"y = y[:, : {self.number(1)} % b + 1].sum(1, keepdim=True) + x",
                )
            )
        ]

    def function(self):
        lines = ["def function(x):", "    a, b = x.shape", "    y = x * 1"]
        for _ in range(self.random.randint(2, 6)):
            lines += self.statement(1)
        return "\n".join([*lines, "    return y"])


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_written_functions_are_what_they_are(first):
    for seed in range(first, first + 10):
        text = Writer(seed).function()
        names = {"torch": torch}
        exec(compile(text, f"seed {seed}", "exec"), names)
        random_sizes = random.Random(seed)
        try:
            for size in range(1, 20):
                names["function"](leaf(size))
        except (RuntimeError, IndexError, ZeroDivisionError):
            continue  # the function itself fails
        try:
            assert_is_the_function(names["function"], [random_sizes.randint(1, 19) for _ in range(14)])
        except BaseException:
            print(text)
            raise


@pytest.mark.parametrize("size", [torch.ops.aten.sym_size.int, lambda x, dim: torch.ops.aten.sym_numel.default(x)], ids=["size", "numel"])
def test_sizes_that_operators_give(size):
    """PyTorch computes x * torch.SymInt with a placeholder number, 7777777."""
    function = hindcast.aot_function(lambda x: x * size(x, 0))
    for length in (3, 4, 5, 6, 4):
        x = torch.ones(length, requires_grad=True)
        assert torch.equal(function(x), x * length)


FILLS = {
    "full_like": lambda x: x[:4].exp() + torch.full_like(x[:4], x.shape[0]),
    "full": lambda x: x[:4].exp() + torch.full((4,), x.shape[0]),
    "new_full": lambda x: x[:4].exp() + x.new_full((4,), x.shape[0] / 2),
    "scalar_tensor": lambda x: x[:4] * torch.scalar_tensor(x.shape[0]) + torch.full((), 1 / x.shape[0]),
}


@pytest.mark.parametrize("name", FILLS)
def test_tensors_full_of_a_size(name):
    f = hindcast.aot_function(FILLS[name], async_=False, back_off=False)
    for call in range(40):
        x = torch.zeros(5 + call % 7)
        assert torch.allclose(f(x), FILLS[name](x)), call


# The strides of these views depend on a size that the views do not have.
STRIDES_OF_VIEWS = {
    "slice": lambda x: x[:, :2].reshape(2, -1).sin(),
    "first": lambda x: x[:, 0].reshape(-1).sin(),
    "last": lambda x: x[:, -1:].flatten().sin(),
    "transposed": lambda x: x[:, :2].transpose(0, 1).reshape(-1).sin(),
    "chunk": lambda x: x.chunk(3, -1)[1].reshape(x.shape[0], -1).sin(),
    "every second": lambda x: x[:, ::2][:, :1].reshape(-1).sin(),
    "written": lambda x: (x * 1)[:, :2].reshape(2, -1).mul_(3),
    "windows": lambda x: x.unfold(1, 2, 1)[:, 0].reshape(2, -1).sin(),
}


@pytest.mark.parametrize("compilers", [(), ("eager", "eager")], ids=["kernels", "eager"])
@pytest.mark.parametrize("function", STRIDES_OF_VIEWS.values(), ids=STRIDES_OF_VIEWS.keys())
def test_strides_of_views_follow_the_sizes(function, compilers):
    compiled = hindcast.aot_function(function, *compilers, async_=False, back_off=False)
    for length in (4, 2, 5, 6, 2, 3, 7, 200, 3):
        x = torch.randn(2, length, 3, requires_grad=True)
        result, expected = compiled(x), function(x)
        weights = torch.arange(1.0, expected.numel() + 1).view(expected.shape)
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(*(torch.autograd.grad((one * weights).sum(), x) for one in (result, expected)))


def test_strides_of_gradients_follow_the_sizes():
    for width in (3, 4, 5, 6, 2, 9):
        x, w, v = (torch.randn(*sizes, requires_grad=True) for sizes in ((3, 1, 2), (3, 1, 2), (3, width)))

        def gradients():
            loss = torch.cat([(x * w).reshape(3, 2), v.sin()], 1).pow(2).sum()
            return torch.autograd.grad(loss, (x, w, v))

        with hindcast.enable(async_=False):
            seen = gradients()
        torch.testing.assert_close(seen, gradients())


ONE_WHEN_TRACED = {
    "the rest": lambda b: b[1:].exp().sum(0, keepdim=True),
    "half": lambda b: b[: b.shape[0] // 2].cos().sum(0, keepdim=True) + 1,
    "every second": lambda b: b[::2].exp().mean(0, keepdim=True),
    "all": lambda b: b.softmax(-1),
}


@pytest.mark.parametrize("function", ONE_WHEN_TRACED.values(), ids=ONE_WHEN_TRACED.keys())
def test_a_size_that_is_one_when_traced(function):
    compiled = hindcast.aot_function(function, async_=False, back_off=False)
    for length in (3, 2, 6, 7, 1, 4, 2, 9):
        x = torch.randn(length)
        torch.testing.assert_close(compiled(x), function(x))


def test_a_first_backward_of_a_call_whose_size_is_one():
    def function(b, c):
        b.mul_(2)
        return b.softmax(-1), c.sin()

    compiled = hindcast.aot_function(function, async_=False, back_off=False)
    for length, other, runs_backward in ((1, 2, True), (4, 5, False), (1, 2, True), (3, 7, False), (5, 6, True)):
        b, c = torch.randn(length), torch.randn(other, requires_grad=True)
        stock = b.clone()
        result, expected = compiled(b, c), function(stock, c)
        torch.testing.assert_close((b, *result), (stock, *expected))
        if runs_backward:
            result[1].sum().backward()


@pytest.mark.parametrize(
    "function",
    [lambda x: x[: -(-x.shape[0] // 3)] * 2, lambda x: x[(x.shape[0] - 10) % 4 :] * 2, lambda x: x[: (x.shape[0] - 10) // 3] * 2],
    ids=["ceiling", "remainder", "floor"],
)
@pytest.mark.parametrize("dynamic", [True, None])
def test_divisions_of_negative_sizes_round_down(function, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="hindcast", dynamic=dynamic)
    for length in (12, 16, 20, 7, 8, 9, 5, 13):
        x = torch.randn(length)
        torch.testing.assert_close(compiled(x), function(x))


def test_symbols_of_an_operator_are_numbers_outside():
    size = torch.ops.aten.sym_size.int
    results = hindcast.aot_function(lambda x: (x.sin(), size(x, 0), (x.exp(), size(x, 0) > 3)), "eager", "eager")
    operand = hindcast.aot_function(lambda x: x * (size(x, 0) / 4), "eager", "eager")
    for rows in (3, 4, 5, 5):
        x = torch.ones(rows, 2)
        _, count, (_, is_large) = results(x)
        assert_same([count, is_large], [rows, rows > 3])
        assert_same(operand(x), x * (rows / 4))


WEIGHT = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
# functorch's wrappers take the sizes of the tensor that they wrap. ATen asks many of them for plain numbers.
TRANSFORMS = {
    "vmap": lambda x: torch.vmap(lambda row: row * row.shape[-1] + row.numel())(x),
    "vmap of a product": lambda x: torch.vmap(lambda rows: rows @ WEIGHT)(x.expand(2, *x.shape)),
    "vmap over columns": lambda x: torch.vmap(lambda row: row.cumsum(0) / row.shape[0], in_dims=1, out_dims=1)(x),
    "vmap of vmap": lambda x: torch.vmap(torch.vmap(lambda number: number.sin() * 2))(x),
    "gradients per row": lambda x: torch.vmap(torch.func.grad(lambda row: (row * row).sum()))(x),
    "gradients of a weight": lambda x: torch.vmap(torch.func.grad(lambda w, row: (row @ w).square().mean()), (None, 0))(WEIGHT, x),
    "jacrev": lambda x: torch.func.jacrev(lambda v: (v @ WEIGHT).pow(2))(x),
    "jacfwd": lambda x: torch.func.jacfwd(lambda v: (v @ WEIGHT).pow(2))(x),
    "hessian of a product": lambda x: torch.func.hessian(lambda v: (v @ WEIGHT).pow(2).sum())(x),
    "hessian of sort": lambda x: torch.func.hessian(lambda v: (v.sort(-1)[0] ** 3).sum())(x),
    "hessian of a view": lambda x: torch.func.hessian(lambda v: (WEIGHT @ x.t() @ v).pow(2).sum())(x[:, 0]),
    "jacobian": lambda x: torch.func.jacrev(lambda v: v.cumsum(-1))(x),
}


@pytest.mark.parametrize("dynamic", ("automatic", "inferred", "never"))
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_inside_of_functions_of_changing_sizes(name, dynamic):
    function = TRANSFORMS[name]
    f = hindcast.aot_function(function, async_=False, dynamic=dynamic)
    for batch in (2, 2, 4, 4, 5, 3, 5):
        x = torch.randn(batch, 3, dtype=torch.float64)  # rounding is not what is tested
        ours, stock = x.clone().requires_grad_(), x.clone().requires_grad_()
        seen, expected = f(ours), function(stock)
        torch.testing.assert_close(seen, expected)
        if expected.requires_grad:
            seen.sin().sum().backward()
            expected.sin().sum().backward()
            torch.testing.assert_close(ours.grad, stock.grad)


def jacobian_by_the_older_vmap(x):
    return torch.autograd.functional.jacobian(lambda v: v.cumsum(-1), x, vectorize=True)


def test_the_older_vmap_takes_no_symbols():
    f = hindcast.aot_function(jacobian_by_the_older_vmap, async_=False)
    f(torch.randn(2, 3))
    with pytest.raises(RuntimeError, match="concrete integers") as raised:
        f(torch.randn(4, 3))
    assert sys.version_info < (3, 11) or "dynamic='never'" in raised.value.__notes__[0]
    f = hindcast.aot_function(jacobian_by_the_older_vmap, async_=False, dynamic="never")
    for batch in (2, 4, 4):
        x = torch.randn(batch, 3)
        torch.testing.assert_close(f(x), jacobian_by_the_older_vmap(x))


def test_gradients_per_row_are_traced_once_for_each_number_of_rows():
    f = hindcast.aot_function(TRANSFORMS["gradients per row"], async_=False)
    for _ in range(2):
        for batch in range(2, 16):  # more than `limit`
            f(torch.randn(batch, 3, requires_grad=True)).sum().backward()
    assert f.stats()["traces"] == f.stats()["hits"] == 14


# Sizes of values that are expressions of sizes of arguments, and become 1.
BECOME_ONE = {
    "group norm": lambda x, w, b: F.group_norm(x[:, :, 1:], 2, w, b),
    "group norm, strided": lambda x, w, b: F.group_norm(F.avg_pool1d(x, 2, ceil_mode=True), 2, w, b),
    "instance norm": lambda x, w, b: F.instance_norm(x.repeat(1, 1, 2)[:, :, 1:], weight=w, bias=b),
    "batch norm": lambda x, w, b: F.batch_norm(x[:, :, 1:], None, None, w, b, training=True),
    "sum over two dims alone": lambda x, w, b: (x[:, :, : x.shape[2] // 2] * 2).sum((0, 2)),
    "sum over two dims": lambda x, w, b: (x[:, :, : x.shape[2] // 2] * 2).sum((0, 2)) * w + b,
    "sum over two dims, strided": lambda x, w, b: (x[:, :, ::2].exp() * w[:, None]).sum((0, 2)) + b,
    "mean and var": lambda x, w, b: x[:, :, 1:].var((0, 2), correction=0) * w + x[:, :, 1:].mean((0, 2)) * b,
    "softmax": lambda x, w, b: (x[:, :, 1:] * w[:, None]).softmax(2) + b[:, None],
}


@pytest.mark.parametrize("dynamic", ("automatic", "inferred"))
@pytest.mark.parametrize("name", BECOME_ONE)
@pytest.mark.parametrize("starts_at_one", (False, True))
def test_a_dim_that_becomes_one(name, dynamic, starts_at_one):
    function = BECOME_ONE[name]
    f = hindcast.aot_function(function, async_=False, dynamic=dynamic, back_off=False)
    sizes = [(4, 4), (3, 4), (3, 6), (5, 6), (3, 2), (5, 2), (5, 4), (4, 2)]
    for batch, length in sizes[4:] + sizes[:4] if starts_at_one else sizes:
        for _ in range(2):
            x, w, b = (torch.randn(sizes, dtype=torch.float64) for sizes in ((batch, 4, length), 4, 4))
            ours, stock = ([one.clone().requires_grad_() for one in (x, w, b)] for _ in range(2))
            seen, expected = f(*ours), function(*stock)
            torch.testing.assert_close(seen, expected)
            gradient = torch.randn_like(expected)
            seen.backward(gradient), expected.backward(gradient)
            for leaf, of_stock in zip(ours, stock):
                if of_stock.grad is None:
                    assert leaf.grad is None
                else:
                    torch.testing.assert_close(leaf.grad, of_stock.grad)


def test_a_sum_whose_last_dim_becomes_one():
    """Its operand is copied: the axis of rows lies between those of columns."""

    def function(x):
        return (x[:, :, : x.shape[2] // 2] * 2).sum((0, 2))

    f = hindcast.aot_function(function, async_=False, back_off=False)
    for batch, length in ((4, 4), (3, 4), (3, 6), (5, 6), (3, 2), (3, 2), (4, 2), (4, 3), (2, 7), (2, 3)):
        x = torch.randn(batch, 4, length, dtype=torch.float64)
        torch.testing.assert_close(f(x), function(x))


PRODUCTS = {  # of sizes that are new in each call: the arguments' sizes for n
    "rows and a matrix": lambda n: ((3, n, 4), (4, 5)),
    "4 dims and a matrix": lambda n: ((2, n, 3, 4), (4, 5)),
    "rows and a vector": lambda n: ((3, n, 4), (4,)),
    "a matrix and rows": lambda n: ((5, 4), (3, 4, n)),
    "a vector and rows": lambda n: ((4,), (n, 4, 3)),
    "batches": lambda n: ((3, n, 4), (3, 4, n)),
    "4 dims": lambda n: ((2, 3, n, 4), (2, 3, 4, n)),
    "a broadcast batch": lambda n: ((2, 1, n, 4), (3, 4, 5)),
    "a batch of one": lambda n: ((1, n, 4), (3, 4, 5)),
    "another batch of one": lambda n: ((3, n, 4), (1, 4, 5)),
    "batches that change": lambda n: ((n, 3, 4), (n, 4, 2)),
    "a batch that changes, and a matrix": lambda n: ((n, n + 1, 4), (4, 2)),
}


@pytest.mark.parametrize("leaves", [(0, 1), (0,), (1,), ()])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_matmul_of_new_sizes(name, is_transposed, leaves):
    def function(a, b):
        return torch.matmul(a, b) * 2

    f = hindcast.aot_function(function, back_off=False)
    for n in (6, 9, 4, 12, 7, 5, 1, 8, 1, 10):
        both = []
        for i, size in enumerate(PRODUCTS[name](n)):
            tensor = torch.randn(size[::-1] if is_transposed else size, dtype=torch.float64)
            tensor = tensor.permute(*reversed(range(len(size)))) if is_transposed else tensor
            both.append(tensor.detach().requires_grad_(i in leaves))
        results = [f(*both), function(*both)]
        assert results[0].stride() == results[1].stride()
        torch.testing.assert_close(*results)
        if leaves:
            wanted = [both[i] for i in leaves]
            torch.testing.assert_close(*(torch.autograd.grad(result.sin().sum(), wanted) for result in results))
    assert f.stats()["traces"] <= 4, "two for sizes from 2 on, and two for 1"


def test_attention_of_new_lengths():
    inner, outer = (torch.nn.Linear(8, size, bias=False, dtype=torch.float64) for size in (24, 8))

    def function(x):
        q, k, v = inner(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        explicit = (q @ k.mT / 2).softmax(-1) @ v
        return outer((F.scaled_dot_product_attention(q, k, v) + explicit).transpose(1, 2).flatten(2)) + x

    f = hindcast.aot_function(function, back_off=False)
    for length in (5, 8, 3, 11, 6, 9, 4, 7):
        x = torch.randn(3, length, 8, dtype=torch.float64)
        results = [f(x), function(x)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*(torch.autograd.grad(each.sin().sum(), (inner.weight, outer.weight)) for each in results))
    assert f.stats()["traces"] == 2


def test_matmul_of_new_sizes_under_transforms_and_autocast():
    weight = torch.randn(4, 5)

    def cast(x):
        with torch.autocast("cpu", torch.bfloat16):
            return (x @ weight).float()

    def mapped(x):
        return torch.vmap(lambda rows: rows @ weight)(x)

    def differentiated(x):
        return torch.func.grad(lambda y: (y @ weight).sin().sum())(x)

    for function in (cast, mapped, differentiated):
        f = hindcast.aot_function(function, back_off=False)
        for n in (6, 9, 4, 12, 7):
            x = torch.randn(3, n, 4)
            torch.testing.assert_close(f(x), function(x))
