"""Second derivatives of PyTorch's database of operators under hindcast.enable(): backwards with create_graph and their backwards, to the
bit through ATen. A partial run (HINDCAST_TEST_PART) takes some samples of each operator."""

import contextlib
import copy
import gc
import weakref

import hindcast
import pytest
import test_aot_ops as database
import torch
from side_by_side import RELEASE, leaf, run_seeded
from device_of_tests import ADDS_IN_ANY_ORDER, DEVICE
from test_aot_ops import dense, name_of, needs_gradient, samples_of, weighted
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_structure, tree_unflatten
from torch.utils.checkpoint import checkpoint

MOST_NUMBERS = 150  # in the arguments that gradgradcheck perturbs, to bound its time
CALLS = 4  # a trace, one whose backward makes the program, and two hits


def outcome(op, sample, orders=2):
    """For each argument that needs a gradient: the gradient, and whether that needs one; or the error."""
    args, kwargs = tree_map(database.own, ((sample.input, *sample.args), sample.kwargs))
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    torch.manual_seed(0)
    seen = []
    try:
        results = sample.output_process_fn_grad(tree_leaves(op(*args, **kwargs)))
        for order in range(orders):
            results = [result for result in tree_leaves(results) if needs_gradient(result)]
            if not results:
                break
            root = sum(map(weighted, results))
            results = torch.autograd.grad(root, leaves, create_graph=order < orders - 1, allow_unused=True)
            seen.append([None if each is None else (dense(each.detach()), each.requires_grad) for each in results])
    except Exception as error:
        seen.append((type(error), str(error)))
    return seen


# Their gradients have different histories, and so nodes of their own. What three or more nodes contribute to one argument is added in the
# order of these nodes, which LibTorch's nodes for single operators do not have.
ADDED_IN_ANOTHER_ORDER = {
    "cov", "div.no_rounding_mode", "true_divide", "nn.functional.scaled_dot_product_attention", "triangular_solve", "nn.functional.kl_div",
    "linalg.lstsq", "linalg.lstsq.grad_oriented", "linalg.solve", "linalg.solve_ex", "linalg.tensorsolve",
}  # fmt: skip


def is_same(seen, expected, rtol=0.0):
    """`rtol`: of the largest number of a tensor."""
    if isinstance(expected, (list, tuple)):
        return type(seen) is type(expected) and len(seen) == len(expected) and all(is_same(*each, rtol) for each in zip(seen, expected))
    if isinstance(expected, torch.Tensor):
        atol = 1e-5 if ADDS_IN_ANY_ORDER else rtol * expected.abs().max().item() if rtol and expected.numel() else 0.0
        rtol = 1e-4 if ADDS_IN_ANY_ORDER else rtol
        return seen.dtype == expected.dtype and torch.allclose(seen, expected, rtol=rtol, atol=atol, equal_nan=True)
    return seen == expected


def with_gradients():
    return [each for each in database.operators() if each.values[0].supports_autograd and each.values[1].is_floating_point]


def test_gradients_of_complex_parameters_are_not_lazily_conjugated():
    torch.manual_seed(0)
    w = torch.randn(3, 3, dtype=torch.complex128, requires_grad=True)
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    for _ in range(3):
        w.grad = None
        with hindcast.enable():
            (gradient,) = torch.autograd.grad((x.to(w.dtype) @ w).abs().sum(), x, create_graph=True)
            gradient.square().sum().backward()
        assert not w.grad.is_conj()


@pytest.mark.parametrize("op, dtype", with_gradients())
@pytest.mark.filterwarnings("ignore")
def test_second_derivatives(op, dtype):
    rtol = 3e-6 if name_of(op) in ADDED_IN_ANOTHER_ORDER else 0.0
    for i, sample in samples_of(op, dtype, requires_grad=True):
        expected = outcome(op.op, sample)
        hindcast.reset()
        with hindcast.enable("eager", async_=False):
            for call in range(CALLS):
                seen = outcome(op.op, sample)
                assert is_same(seen, expected, rtol), f"{name_of(op)}, sample {i}, call {call}: {seen}, expected {expected}"


@pytest.mark.parametrize("name", ["sin", "tanh", "nn.functional.softplus", "rsqrt", "sum", "logsumexp", "index_select"])
def test_third_derivatives(name):
    op = next(each.values[0] for each in database.operators() if name_of(each.values[0]) == name)
    for sample in op.sample_inputs(DEVICE, torch.float64, requires_grad=True):
        expected = outcome(op.op, sample, orders=3)
        with hindcast.enable("eager", async_=False):
            for call in range(CALLS + 2):
                before = hindcast.stats()["fallbacks_by_reason"].get("CreateGraph", 0)
                assert is_same(outcome(op.op, sample, orders=3), expected), (name, call)
            assert hindcast.stats()["fallbacks_by_reason"].get("CreateGraph", 0) == before, f"{name}: the last call fell back"


def of_leaves(op, sample):
    """The operator as a function of its arguments that need a gradient, and these arguments. None if there are none, or too many numbers."""
    values, tree = tree_flatten(((sample.input, *sample.args), sample.kwargs))
    places = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor) and value.requires_grad]
    leaves = [values[i] for i in places]
    if not 0 < sum(leaf.numel() for leaf in leaves) <= MOST_NUMBERS:
        return None

    def function(*given):
        args, kwargs = tree_unflatten([given[places.index(i)] if i in places else value for i, value in enumerate(values)], tree)
        torch.manual_seed(0)
        return sample.output_process_fn_grad(op.gradcheck_wrapper(op.op, *args, **kwargs))

    return function, leaves


def passes_gradgradcheck(function, leaves):
    torch.manual_seed(1)
    try:
        # A backward that is traced and one that runs kernels differ by rounding.
        return torch.autograd.gradgradcheck(function, leaves, fast_mode=True, nondet_tol=1e-10)
    except (RuntimeError, ValueError) as error:
        return str(error)


def in_float64():
    ops = [each.values[0] for each in with_gradients()]
    return [op for op in ops if op.supports_gradgrad and op.supports_dtype(torch.float64, DEVICE)]


@pytest.mark.parametrize("op", in_float64(), ids=name_of)
@pytest.mark.filterwarnings("ignore")
def test_finite_differences_of_kernels(op):
    for i, sample in samples_of(op, torch.float64, requires_grad=True):
        made = of_leaves(op, sample)
        if made is None or passes_gradgradcheck(*made) is not True:  # some of PyTorch's own samples fail without hindcast
            continue
        hindcast.reset()
        with hindcast.enable("fused", async_=False):
            assert passes_gradgradcheck(*made) is True, f"{name_of(op)}, sample {i}"


NO_SECOND = "this call has no second derivatives"


def is_close(seen, expected, exact=None):
    """`exact`: the same in float64, for derivatives that are rounding alone, as that of x / |x|: then each tensor may differ from it by four
    times what PyTorch's does."""
    if isinstance(expected, (list, tuple)):
        rest = [exact] if exact is not None else []
        return type(seen) is type(expected) and len(seen) == len(expected) and all(map(is_close, seen, expected, *rest))
    if isinstance(expected, torch.Tensor):
        is_near = seen.dtype == expected.dtype and torch.allclose(seen, expected, rtol=1e-3, atol=1e-4, equal_nan=True)
        return is_near or (exact is not None and bool((seen - exact).abs().max() <= 4 * (expected - exact).abs().max()))
    return seen == expected


def outcome_in_float64(op, sample):
    def in_float64(each):
        is_single = isinstance(each, torch.Tensor) and each.dtype == torch.float32
        return each.detach().double().requires_grad_(each.requires_grad) if is_single else each

    return outcome(op.op, sample.transform(in_float64))


def without_zeros(derivatives):
    return [[each if each is not None and each[0].any() else None for each in one] for one in derivatives]


@pytest.mark.parametrize("first", [1, 2], ids=["programs_first", "at_once"])
@pytest.mark.parametrize("op", [each.values[0] for each in with_gradients() if each.values[0].supports_gradgrad], ids=name_of)
@pytest.mark.filterwarnings("ignore")
def test_through_compiled_functions(op, first):
    """Without a guard. `first`: 1, the first calls have only first derivatives; 2, all calls have second ones."""
    for i, sample in samples_of(op, torch.float32 if op.supports_dtype(torch.float32, DEVICE) else torch.float64, requires_grad=True):
        expected = outcome(op.op, sample)
        if len(expected) < 2 or isinstance(expected[-1], tuple):  # PyTorch has no second derivative of this sample
            continue
        function = hindcast.aot_function(op.op, async_=False, fallback_random=True)
        for _ in range(3):
            outcome(function, sample, orders=first)
        seen = outcome(function, sample)
        if first == 1 and isinstance(seen[-1], tuple) and NO_SECOND in seen[-1][1]:
            first_ones = [[each and each[0] for each in derivatives[0]] for derivatives in (seen, expected)]
            assert is_close(*first_ones), f"{name_of(op)}, sample {i}: first derivatives {first_ones[0]}, expected {first_ones[1]}"
            seen = outcome(function, sample)
        if RELEASE >= (2, 15) and name_of(op) == "native_group_norm":  # PyTorch's zeros for the bias, on which nothing depends
            seen, expected = without_zeros(seen), without_zeros(expected)
        if not is_close(seen, expected):
            exact = outcome_in_float64(op, sample)
            same_shape = tree_structure(exact) == tree_structure(expected)
            assert same_shape and is_close(seen, expected, exact), f"{name_of(op)}, sample {i}: {seen}, expected {expected}"


class Cells(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.attention = torch.nn.LSTMCell(4, 4), torch.nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        y, _ = self.attention(x, x, x)
        h, c = self.cell(y[:, 0])
        return h + c


def convolutions():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.SiLU(), torch.nn.Conv2d(3, 3, 3, padding=1))


# In-place writes where autograd sees no view (unsafe_chunk, _unsafe_view); layouts of convolutions that are chosen later.
@pytest.mark.parametrize("make, sizes, dtype", [(Cells, (3, 2, 4), torch.float64), (convolutions, (3, 3, 3, 3), torch.float32)])
def test_modules(make, sizes, dtype):
    module = make().to(dtype)
    compiled = hindcast.aot_module(module)
    parameters = list(module.parameters())
    for call in range(5):
        x = torch.randn(sizes, dtype=dtype, requires_grad=True)

        def second(net):
            slopes = torch.autograd.grad(net(x).square().sum(), [x, *parameters], create_graph=True)
            return torch.autograd.grad(sum(slope.square().sum() for slope in slopes), [x, *parameters], allow_unused=True)

        for seen, expected in zip(second(compiled), second(module)):
            assert (seen is None) == (expected is None)
            assert seen is None or torch.allclose(seen, expected, rtol=1e-3, atol=1e-3), call
        hindcast.wait()


class Transposed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 5), torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.second(self.first(x.transpose(1, 2)).tanh().transpose(1, 2))


class Recurrent(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.net = kind(3, 5, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.net(x)[0][:, -1]


def critic():
    return torch.nn.Sequential(
        torch.nn.Conv1d(4, 6, 3, padding=1),
        torch.nn.BatchNorm1d(6),
        torch.nn.LeakyReLU(0.2),
        torch.nn.Conv1d(6, 6, 3, padding=1),
        torch.nn.InstanceNorm1d(6, affine=True, track_running_stats=True),
        torch.nn.Tanh(),
        torch.nn.BatchNorm1d(6, momentum=None, affine=False),
        torch.nn.Dropout(0.3),
        torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(3, 2)),
    )


PENALISED = {
    "lstm": lambda: Recurrent(torch.nn.LSTM),
    "gru": lambda: Recurrent(torch.nn.GRU),
    "transposed": Transposed,
    "critic": critic,
}


@pytest.mark.parametrize("partition", [hindcast.partition.standard, hindcast.partition.min_cut], ids=str)
@pytest.mark.parametrize("make", PENALISED.values(), ids=PENALISED.keys())
def test_a_penalty_after_steps_without_one(make, partition):
    """Recomputed: in-place writes to results of unsafe_chunk and _unsafe_view, and batch norms, which update their statistics once. Not
    recomputed: masks of dropouts, and what a spectral norm writes to its buffers."""
    torch.manual_seed(0)
    module = make().double()
    modules = copy.deepcopy(module), module
    nets = hindcast.aot_module(modules[0], partition_fn=partition, async_=False, fallback_random=True), modules[1]
    for call, batch in enumerate([3, 3, 3, 5, 7, 3, 6]):
        x = torch.randn(batch, 4, 3, dtype=torch.float64)

        def step(net, of):
            torch.manual_seed(call)
            leaves = [x.clone().requires_grad_(), *of.parameters()]
            loss = net(leaves[0]).sin().sum()
            if call in (0, 4):
                return torch.autograd.grad(loss, leaves)
            (slope,) = torch.autograd.grad(loss, leaves[:1], create_graph=True)
            penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
            if call == 6 and make is not critic:  # LibTorch 2.15 has no third derivative of batch norm
                (bend,) = torch.autograd.grad(penalty, leaves[:1], create_graph=True)
                penalty = penalty + bend.square().sum()
            return slope, *torch.autograd.grad(penalty, leaves, allow_unused=True), *map(torch.clone, of.buffers())

        for seen, expected in zip(*map(step, nets, modules), strict=True):
            assert (seen is None) == (expected is None)
            assert seen is None or torch.allclose(seen, expected, rtol=1e-9, atol=1e-12), call


@pytest.mark.parametrize("order", [1, 2])
def test_an_argument_that_is_written_before_the_first_backward(order):
    """Stock saves the reciprocal. With this budget a program saves the argument, and recomputes."""

    def function(x):
        return 1 / (x * 2 + 0.5)

    f = hindcast.aot_function(function, "eager", "eager", partition_fn=hindcast.partition.min_cut, memory_budget=0.0, back_off=False)
    for size in (3, 4):  # each is traced
        found = []
        for called in (f, function):
            x = torch.linspace(0, 1, size, dtype=torch.float64).requires_grad_()
            loss = called(x).sin().sum()
            with torch.no_grad():
                x.mul_(1.3)
            slopes = [torch.autograd.grad(loss, x, retain_graph=True, create_graph=order == 2)[0] for _ in range(2)]
            found.append([*slopes, *torch.autograd.grad(sum(slopes).sum(), x)] if order == 2 else slopes)
        assert all(map(torch.allclose, *found))


IN_GRAD_MODE = {
    "silu": lambda h: torch.nn.functional.silu(h).sin(),
    "loss": lambda h: torch.nn.functional.binary_cross_entropy_with_logits(
        h, torch.linspace(0, 1, 4, dtype=h.dtype).expand_as(h), pos_weight=torch.arange(1, 5, dtype=h.dtype), reduction="none"
    ),
}


@pytest.mark.parametrize("name", IN_GRAD_MODE)
def test_replayed_formulas_that_differ_in_grad_mode(name):
    torch.manual_seed(0)
    linear = torch.nn.Linear(4, 4).double()
    function = lambda x: IN_GRAD_MODE[name](linear(x))  # noqa: E731
    compiled = hindcast.aot_function(function, async_=False, back_off=False)
    for call, batch in enumerate([3, 3, 3, 5, 4, 3, 2]):
        x = torch.randn(batch, 4, dtype=torch.float64)

        def step(called):
            leaves = [x.clone().requires_grad_(), *linear.parameters()]
            loss = called(leaves[0]).square().sum()
            if call < 2:
                return torch.autograd.grad(loss, leaves)
            (slope,) = torch.autograd.grad(loss, leaves[:1], create_graph=True)
            bends = torch.autograd.grad(slope.pow(3).sum(), leaves, create_graph=True)
            return slope, *bends, *torch.autograd.grad(sum(bend.square().sum() for bend in bends), leaves)

        assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(step(compiled), step(function), strict=True)), call
    assert compiled.stats()["eager"] == 0 and compiled.stats()["traces"] == 2


def convolutions_of(step):
    with torch.profiler.profile() as profile:
        step()
    return sum(event.name == "aten::convolution" for event in profile.events())


@pytest.mark.skipif(DEVICE != "cpu", reason="kernels of another backend are not in the profile by these names")
@pytest.mark.parametrize("partition", [hindcast.partition.standard, hindcast.partition.min_cut], ids=str)
def test_what_the_forward_has_saved_is_not_computed_again(partition):
    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in ((2, 4), (4, 8), (8, 1)))
    module = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.Softplus()))).double()
    modules = copy.deepcopy(module), module
    compiled = hindcast.aot_module(modules[0], partition_fn=partition, async_=False, back_off=False)
    counts = []
    for call, batch in enumerate([4, 4, 4, 6, 5, 3, 8, 6]):
        x = torch.randn(batch, 2, 9, 9, dtype=torch.float64)

        def step(net, of):
            leaves = [x.clone().requires_grad_(), *of.parameters()]
            (slope,) = torch.autograd.grad(net(leaves[0]).sum(), leaves[:1], create_graph=True)
            penalty = slope.square().sum()
            # The third derivative flows through the values that the second one has not computed.
            bends = torch.autograd.grad(penalty, leaves, create_graph=call % 2 == 1)
            if call % 2 == 0:
                return bends
            return torch.autograd.grad(sum(bend.square().sum() for bend in bends), leaves)

        seen, expected = map(step, (compiled, module), modules)
        assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(seen, expected, strict=True)), call
        if call % 2 == 0:
            counts.append([convolutions_of(lambda: step(*each)) for each in zip((compiled, module), modules, strict=True)])
    ours, stock = counts[1]
    assert ours <= stock


VIEWS_OF_VIEWS = {
    "transposed scores": lambda q, k: (q @ k.transpose(1, 2)).transpose(1, 2).div_(2).exp() @ k,
    "relu behind a flatten": lambda q, k: torch.nn.functional.relu((q * k).view(6, 4).view(2, 3, 4), inplace=True) * q,
}


@pytest.mark.parametrize("function", VIEWS_OF_VIEWS.values(), ids=VIEWS_OF_VIEWS.keys())
def test_a_write_to_a_view_of_a_view(function):
    compiled = hindcast.aot_function(function, async_=False)
    for _ in range(3):
        q, k = (torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))

        def second(called):
            (slope,) = torch.autograd.grad(called(q, k).sum(), q, create_graph=True)
            return torch.autograd.grad(slope.square().sum(), (q, k))

        assert all(map(torch.allclose, second(compiled), second(function)))


def test_a_write_to_a_chunk_of_a_tensor_that_is_read_as_a_whole():
    """Autograd does not see such a write in the history of the whole, where a recomputation would."""

    def function(x):
        whole = x * 2
        whole.unsafe_chunk(2, 1)[0].sigmoid_()
        return whole * whole

    compiled = hindcast.aot_function(function)
    x = torch.randn(3, 4, requires_grad=True)
    for _ in range(2):
        compiled(x).sum().backward()
    (slope,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=f"{NO_SECOND}: it writes in place to the result of an operator like unsafe_chunk"):
        slope.sum().backward()
    (slope,), (expected,) = (torch.autograd.grad(net(x).sum(), x, create_graph=True) for net in (compiled, function))
    assert torch.equal(*torch.autograd.grad(slope.sum(), x), *torch.autograd.grad(expected.sum(), x))


@pytest.mark.parametrize("layers", [1, 2])
def test_a_backward_that_is_recorded_twice(layers):
    """A GRU writes in place to chunks of its gates, whose values a backward reconstructs."""
    module = torch.nn.GRU(4, 4, layers)
    compiled = hindcast.aot_module(module)
    for _ in range(3):
        x = torch.randn(2, 3, 4, requires_grad=True)
        seen, expected = (torch.autograd.grad(net(x)[0].square().sum(), [x, *module.parameters()]) for net in (compiled, module))
        assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(seen, expected))


@pytest.mark.skipif(RELEASE >= (2, 15), reason="the function runs eagerly: docs/libtorch-releases.md")
def test_a_checkpoint_in_a_function():
    def function(a, w):
        return checkpoint(lambda t: (t @ w).tanh(), a, use_reentrant=False)

    compiled = hindcast.aot_function(function)
    for call in range(3):
        a, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))

        def second(called):
            slopes = torch.autograd.grad(called(a, w).square().sum(), (a, w), create_graph=True)
            return slopes, torch.autograd.grad(sum(slope.square().sum() for slope in slopes), (a, w))

        if call == 0:
            with pytest.raises(RuntimeError, match=NO_SECOND):
                second(compiled)
            continue
        (first, seen), (expected_first, expected) = second(compiled), second(function)
        assert all(map(torch.allclose, first, expected_first)) and all(map(torch.allclose, seen, expected))


# PyTorch's reentrant checkpoint has no second derivatives.
@pytest.mark.parametrize("order, reentrant", [(1, False), (2, False), (1, True)])
def test_a_checkpoint_behind_a_custom_function(order, reentrant):
    first, last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)
    inner = torch.nn.Linear(4, 4)

    def function(x):
        x = NotTraceable.apply(first(x)) if not reentrant else checkpoint(inner, first(x), use_reentrant=True)
        return last(checkpoint(torch.tanh, x, use_reentrant=False)).square().mean()

    parameters = [*first.parameters(), *last.parameters(), *(inner.parameters() if reentrant else ())]

    def gradients(called, x):
        for one in parameters:
            one.grad = None
        loss = called(x)
        if reentrant:
            loss.backward()
            return [one.grad for one in parameters]
        slopes = torch.autograd.grad(loss, parameters, create_graph=order == 2)
        return torch.autograd.grad(sum(slope.square().sum() for slope in slopes), parameters) if order == 2 else slopes

    compiled = hindcast.aot_function(function)
    for _ in range(3):
        x = torch.randn(5, 4)
        expected = gradients(function, x)
        assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(gradients(compiled, x), expected))


class Traceable(torch.autograd.Function):
    is_traceable = True

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos()


@pytest.mark.skipif(RELEASE >= (2, 15), reason="the function runs eagerly: docs/libtorch-releases.md")
@pytest.mark.parametrize("is_behind", [False, True])
def test_a_checkpoint_and_a_traceable_function(is_behind):
    def saved(x, w):
        return checkpoint(lambda x, w: (x @ w).tanh(), x, w, use_reentrant=False)

    def function(x, w):
        return Traceable.apply(saved(x, w)) if is_behind else saved(Traceable.apply(x), w)

    compiled = hindcast.aot_function(function)
    for call in range(3):
        x, w = (torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))

        def second(called):
            slopes = torch.autograd.grad(called(x, w).sin().sum(), (x, w), create_graph=True)
            return torch.autograd.grad(sum(slope.sin().sum() for slope in slopes), (x, w))

        if call == 0:
            with pytest.raises(RuntimeError, match=NO_SECOND):
                second(compiled)
        else:
            assert all(map(torch.allclose, second(compiled), second(function)))


class NotTraceable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad


def packed(x):
    with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        return x.sin()


def hooked(x):
    x.register_hook(lambda grad: grad * 2)
    return x.sin()


# A checkpoint, or hooks of saved tensors, and something that ends the trace.
ENDED_TRACES = {
    "a Function": lambda x: NotTraceable.apply(packed(x)) * x,
    "a Function around a checkpoint": lambda x: NotTraceable.apply(checkpoint(torch.sin, x, use_reentrant=False)) * x,
    "a hook": lambda x: hooked(packed(x)) * x,
    "a Function before": lambda x: packed(NotTraceable.apply(x)) * x,
}


@pytest.mark.parametrize("function", ENDED_TRACES.values(), ids=ENDED_TRACES)
@pytest.mark.parametrize("inputs", [True, False])
def test_packed_tensors_in_a_call_that_is_not_recorded(function, inputs):
    def second(called, batch):
        x = torch.linspace(-2, 2, batch * 3).reshape(batch, 3).requires_grad_()
        (slope,) = torch.autograd.grad(called(x).sum(), x, create_graph=True)
        if inputs:
            return torch.autograd.grad(slope.square().sum(), x)[0]
        slope.square().sum().backward()
        return x.grad

    compiled = hindcast.aot_function(function)
    for batch in (2, 2, 3, 4):
        try:
            seen = second(compiled, batch)
        except RuntimeError as error:
            assert NO_SECOND in str(error) and batch == 2
            continue
        torch.testing.assert_close(seen, second(function, batch))


@pytest.mark.skipif(RELEASE >= (2, 15), reason="the function runs eagerly: docs/libtorch-releases.md")
def test_only_the_first_call_of_all_sizes_has_no_second_derivatives():
    compiled = hindcast.aot_function(lambda x: checkpoint(torch.tanh, x, use_reentrant=False))
    errors = 0
    for batch in (3, 3, 4, 5, 6, 3):
        x = torch.randn(batch, 4, requires_grad=True)
        (slope,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        try:
            slope.sum().backward()
        except RuntimeError as error:
            assert NO_SECOND in str(error)
            errors += 1
    assert errors == 1


class PaiNN(torch.nn.Module):
    """A force field with scalars and vectors per atom."""

    def __init__(self, width=16):
        super().__init__()
        linear = torch.nn.Linear

        def net(width_in, width_out):
            return torch.nn.Sequential(linear(width_in, width), torch.nn.SiLU(), linear(width, width_out))

        self.kinds, self.filters = torch.nn.Embedding(5, width), linear(8, 3 * width)
        self.messages, self.mixes, self.readout = net(width, 3 * width), net(2 * width, 3 * width), net(width, 1)
        self.u, self.v = linear(width, width, bias=False), linear(width, width, bias=False)

    def forward(self, positions, kind, to, of):
        apart = positions.index_select(0, to) - positions.index_select(0, of)
        distance = ((apart * apart).sum(1, keepdim=True) + 1e-6).sqrt()
        near = torch.exp(-((distance - torch.linspace(0, 5, 8)) ** 2))
        x = self.kinds(kind)
        vectors = torch.zeros_like(x).unsqueeze(1).expand(-1, 3, -1)
        for _ in range(2):
            a, b, c = (self.filters(near) * self.messages(x).index_select(0, of)).chunk(3, 1)
            x = x + torch.zeros_like(x).index_add(0, to, a)
            message = vectors.index_select(0, of) * b.unsqueeze(1) + c.unsqueeze(1) * (apart / distance).unsqueeze(2)
            vectors = vectors + torch.zeros_like(vectors).index_add(0, to, message)
            u, v = self.u(vectors), self.v(vectors)
            a, b, c = self.mixes(torch.cat([x, ((v * v).sum(1) + 1e-6).sqrt()], 1)).chunk(3, 1)
            x, vectors = x + a + b * (u * v).sum(1), vectors + c.unsqueeze(1) * u
        return self.readout(x).sum()


def test_a_force_field_whose_atoms_change():
    net = PaiNN()

    def gradients(atoms):
        torch.manual_seed(atoms)
        positions = (torch.randn(atoms, 3) * 2).requires_grad_()
        to, of = (torch.rand(atoms, atoms).fill_diagonal_(1) < 0.6).nonzero().t().contiguous()
        energy = net(positions, torch.randint(5, (atoms,)), to, of)
        (slope,) = torch.autograd.grad(energy, positions, create_graph=True)
        return torch.autograd.grad(energy.square() + slope.square().sum(), list(net.parameters()), allow_unused=True)

    hindcast.reset()
    for step in range(40):
        atoms = 5 + step * 7 % 13
        expected = gradients(atoms)
        with hindcast.enable(async_=False):
            seen = gradients(atoms)
        for one, other in zip(seen, expected):
            assert (one is None) == (other is None)
            assert one is None or torch.allclose(one, other, rtol=1e-3, atol=1e-4 * other.abs().max().item()), step
    stats = hindcast.stats()
    assert stats["hits"] >= 74 and stats["misses"] <= 6 and not stats["fallbacks_by_reason"], stats


def first_and_second(function, *args):
    leaves = [each for each in args if each.requires_grad]
    result = function(*args)
    first = torch.autograd.grad((result * result).sum(), leaves, create_graph=True)
    return [*first, *torch.autograd.grad(sum(map(weighted, first)), leaves, allow_unused=True)]


PARTITIONS = [hindcast.partition.standard, hindcast.partition.min_cut]


# Derivatives of extremes compare tensors. What a kernel recomputes is rounded differently from ATen's result, and so never equal to it.
@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sin().exp().max(),
        lambda x: x.sin().exp().amax(1),
        lambda x: x.sin().exp().median(),
        lambda x: x.sin().exp().norm(float("inf"), dim=1),
        lambda x: torch.maximum(x.sin().exp(), x.sin().exp().flip(1)),
    ],
)
def test_what_is_compared_is_computed_once(function, partition):
    for async_ in (True, False):
        compiled = hindcast.aot_function(function, async_=async_, partition_fn=partition)
        for seed in range(24):
            torch.manual_seed(seed)
            x = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
            for seen, expected in zip(first_and_second(compiled, x), first_and_second(function, x)):
                torch.testing.assert_close(seen, expected)


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None] * 0.5, x[None].sin()),  # divides by the root of a size
        lambda x: x.var(unbiased=False) * x,  # compares real numbers
        lambda x: torch.nn.functional.normalize((x * 0.2 + 1).prod(1) + 2, dim=0),  # a formula that depends on values
        lambda x: torch.nn.functional.batch_norm(torch.einsum("ij,ik->jk", x, x).zero_(), None, None, training=True),  # a write to a view
    ],
)
def test_sizes_that_change(function, partition):
    try:
        first_and_second(function, torch.ones(4, 5, dtype=torch.double, requires_grad=True))
    except RuntimeError as error:
        if RELEASE < (2, 15):  # whose fused attention has no second derivative
            raise
        pytest.skip(str(error))
    compiled = hindcast.aot_function(function, async_=False, partition_fn=partition)
    for size in ((4, 5), (4, 5), (7, 5), (3, 8), (3, 8), (7, 7), (4, 5)):
        x = torch.linspace(-1, 2, size[0] * size[1], dtype=torch.double).reshape(size).requires_grad_()
        for seen, expected in zip(first_and_second(compiled, x), first_and_second(function, x)):
            torch.testing.assert_close(seen, expected)


@pytest.mark.parametrize("name", ["layer_norm", "silu"])
def test_sizes_that_come_back_have_second_derivatives(name):
    """Numbers of two sizes fit one program, whose formulas differ in grad mode."""
    function = {"layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), "silu": lambda x: torch.nn.functional.silu(x) / x.shape[0]}[name]
    f = hindcast.aot_function(function)
    for size in (4, 3, 9, 4, 3, 4):
        x = torch.randn(size, requires_grad=True)
        ours, stock = ([torch.autograd.grad(((each(x)) ** 2).sum(), x, create_graph=True)[0]] for each in (f, function))
        assert torch.allclose(ours[0], stock[0], atol=1e-5)
        ours, stock = (torch.autograd.grad(gradients[0].square().sum(), x)[0] for gradients in (ours, stock))
        assert torch.allclose(ours, stock, atol=1e-4, rtol=1e-4)


def test_an_argument_written_without_a_graph_has_second_derivatives():
    def function(x):
        with torch.no_grad():
            x.clamp_(-1, 1)
        return x**3

    f = hindcast.aot_function(function)
    for seed in range(3):
        results = []
        for each in (f, function):
            torch.manual_seed(seed)
            w = torch.randn(3, 3, requires_grad=True)
            (first,) = torch.autograd.grad(each(w * 1).sum(), w, create_graph=True)
            results.append((first, torch.autograd.grad(first.square().sum(), w)[0]))
        for ours, stock in zip(*results):
            assert torch.allclose(ours, stock)


@pytest.mark.parametrize("which", [0, 1])
def test_hooks_of_a_gradient_that_gets_none(which):
    """One program makes both gradients of the function."""

    def program(function):
        seen = []
        for _ in range(4):
            x, w = leaf(3, 4), leaf(4)
            slopes = torch.autograd.grad(function(x, w), (x, w), create_graph=True)
            for i, slope in enumerate(slopes):
                slope.register_hook(lambda g, i=i: seen.append(i) or g * 2)
            seen += torch.autograd.grad(slopes[which].pow(2).sum(), (x, w), retain_graph=True)
            seen += torch.autograd.grad(slopes[0].sum() + slopes[1].exp().sum(), (x, w))
        return seen

    def function(x, w):
        return (x * w).exp().sum()

    expected = run_seeded(lambda: program(function))
    compiled = hindcast.aot_function(function, back_off=False)
    seen = run_seeded(lambda: program(compiled))
    assert len(seen) == len(expected) and all(map(is_like, seen, expected))
    assert compiled.stats()["hits"] >= 2


def is_like(seen, expected):
    return torch.allclose(seen, expected) if isinstance(expected, torch.Tensor) else seen == expected


@pytest.mark.parametrize("guard", [True, False], ids=["enable", "functions"])
def test_a_gradient_that_is_the_incoming_one_keeps_its_history(guard):
    """Of a sum, the gradients are the incoming gradient, which another program made here."""

    def program(make, sums):
        t, a, b = leaf(3), leaf(3), leaf(3)
        g, _ = make(t)
        h = g * g
        y, _ = sums(a, b)
        torch.autograd.grad(y, (a, b), g, create_graph=True)
        calls = []
        g.register_hook(lambda grad: calls.append(1))
        return [*torch.autograd.grad(h.sum(), (g, t)), len(calls)]

    def make(t):
        return t.sin() * 2, t.cos() * 3

    def sums(a, b):
        return a + b, (a * b).exp().sin()

    expected = run_seeded(lambda: program(make, sums))
    make_compiled = hindcast.aot_function(make, back_off=False)
    compiled = sums if guard else hindcast.aot_function(sums, back_off=False)
    with hindcast.enable() if guard else contextlib.nullcontext():
        for _ in range(4):
            seen = run_seeded(lambda: program(make_compiled, compiled))
            assert all(map(is_like, seen, expected))


@pytest.mark.parametrize("inside", [False, True])
def test_a_zero_derivative_at_other_sizes(inside):
    """The second derivative of abs() is an efficient zero tensor, and is reshaped."""

    def penalty(x):
        (gradient,) = torch.autograd.grad(x.reshape(-1).abs().sum() + (x**3).sum(), x, create_graph=True)
        return gradient.square().sum()

    def second(function, x):
        if inside:
            return torch.autograd.grad(function(x), x)
        (gradient,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.sin().sum(), x)

    function = penalty if inside else lambda x: x.reshape(-1).abs() * 2
    f = hindcast.aot_function(function, back_off=False)
    for size in ((8, 5), (11, 4), (6, 3), (5, 7), (5, 7)):
        x = torch.randn(size, dtype=torch.float64, requires_grad=True)
        assert torch.allclose(*second(f, x), *second(function, x))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_gradient_in_the_history_of_another(compiled):
    def inner(x, w):
        return (x * w).sin()

    function = hindcast.aot_function(inner, back_off=False) if compiled else inner

    def step(function):
        torch.manual_seed(0)
        x, w = (torch.randn(4, dtype=torch.float64, requires_grad=True) for _ in range(2))
        h = function(x, w)
        of_h, of_x = torch.autograd.grad((h**3).sum(), [h, x], create_graph=True)
        (through,) = torch.autograd.grad((of_x**2).sum(), [of_h], retain_graph=True)
        of_h.register_hook(torch.zeros_like)
        (of_x**2).sum().backward()
        return through, x.grad, w.grad

    expected = step(inner)
    for _ in range(CALLS):
        with hindcast.enable(back_off=False):
            torch.testing.assert_close(step(function), expected)
        hindcast.wait()


def test_the_first_step_of_a_laplacian_needs_no_fallback():
    net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def gradients(points):
        x = points.clone().requires_grad_()
        (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        second = [torch.autograd.grad(slope[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(2)]
        return torch.autograd.grad((second[0] + second[1] - x.sum(1)).square().mean(), list(net.parameters()), allow_unused=True)

    points = torch.rand(16, 2)
    expected = gradients(points)
    hindcast.reset()
    for _ in range(3):
        with hindcast.enable(async_=False, back_off=False):
            seen = gradients(points)
        torch.testing.assert_close(seen, expected)
    stats = hindcast.stats()
    assert not stats["fallbacks_by_reason"] and stats["backwards"] == 12 and stats["hits"] == 12 - stats["misses"] >= 7, stats


def write_columns(x):
    y = torch.zeros(x.shape[0], 3, 2, dtype=x.dtype)
    y[:, 0] = x.tanh()
    y[:, 1:].copy_((x * x)[:, None])
    return y.sin()


def write_whole(x):
    y = x.new_empty(x.shape[0], 2)
    y.copy_(x.sin())
    return y * y


CIRCULAR = torch.nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular", dtype=torch.float64)
WRITES = {
    "columns": write_columns,
    "whole": write_whole,
    "another dtype": lambda x: write_columns(x.float()).double(),
    "circular": lambda x: CIRCULAR(x[..., None].expand(-1, -1, 5) * torch.arange(1.0, 6)).tanh(),
}
FLOAT32_TOLERANCE = {"rtol": 1.3e-6, "atol": 1e-5}  # that of torch.testing


@pytest.mark.parametrize("name", WRITES)
def test_writes_to_slices_are_programs(name):
    function, tolerance = WRITES[name], FLOAT32_TOLERANCE if name == "another dtype" else {}

    def third(x):
        (slope,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(slope.square().sum(), x, create_graph=True)
        return slope, second, *torch.autograd.grad(second.sum(), x)

    hindcast.reset()
    for rows in (4, 4, 3, 4, 3):
        x = torch.rand(rows, 2, dtype=torch.float64, requires_grad=True)  # larger ones are ill-conditioned in float32
        expected = third(x)
        with hindcast.enable(async_=False, back_off=False):
            torch.testing.assert_close(third(x), expected, **tolerance)
    stats = hindcast.stats()
    assert not stats["fallbacks_by_reason"] and stats["hits"], stats


CONJUGATES = {
    "conj": lambda z: (z * z.conj()).real,
    "conj_physical": lambda z: (z * z.conj_physical()).real,
    "product": lambda z: (z[:, None] @ z[None].mH.mT.conj()).real.sum(1),
    "imaginary part": lambda z: (z * z).conj().imag,
}


@pytest.mark.parametrize("guard", [True, False], ids=["enable", "functions"])
@pytest.mark.parametrize("function", CONJUGATES.values(), ids=CONJUGATES)
def test_third_derivatives_of_conjugates(function, guard):
    def real(x):
        return function(torch.complex(x.sin(), x * x.sum()))

    def derivatives(called, x):
        found = [called(x)]
        for _ in range(3):
            found += torch.autograd.grad(found[-1].sin().sum(), x, create_graph=True)
        return found

    compiled = real if guard else hindcast.aot_function(real)
    for _ in range(3):
        x = torch.randn(3, dtype=torch.float64, requires_grad=True)
        expected = derivatives(real, x)
        with hindcast.enable(async_=False, back_off=False) if guard else contextlib.nullcontext():
            torch.testing.assert_close(derivatives(compiled, x), expected)


# Each gradient depends on other arguments than the other one does.
WITH_DIFFERENT_HISTORIES = {
    "product": lambda a, b: (a * b).sum(),
    "one of both": lambda a, b: ((a * b).tanh() * a).sum() + b.cos().sum(),
    "separate": lambda a, b: a.sin().sum() + (b**3).sum(),
    "quotient": lambda a, b: (a / (b * b + 1)).sum(),
    "softmax": lambda a, b: torch.softmax(a * b, 1).square().sum() + a.exp().sum(),
}


def each_derivative(results, leaves, **options):
    """Of those results that have one."""
    roots = [result.sin().sum() for result in results if result is not None and result.requires_grad]
    return torch.autograd.grad(sum(roots), leaves, allow_unused=True, **options) if roots else ()


DERIVATIVES = {
    "of both": lambda first, leaves: [each_derivative(first, leaves)],
    "of each": lambda first, leaves: [each_derivative([one], leaves, retain_graph=True) for one in first],
    "of one": lambda first, leaves: [each_derivative(first[:1], leaves)],
    "retained": lambda first, leaves: [each_derivative(first[1:], leaves, retain_graph=True), each_derivative(first, leaves)],
    "third": lambda first, leaves: [each_derivative(each_derivative(first[:1], leaves, create_graph=True), leaves)],
    "fourth": lambda first, leaves: [
        each_derivative(each_derivative(each_derivative(first, leaves, create_graph=True), leaves, create_graph=True), leaves)
    ],
}


@pytest.mark.parametrize("order", DERIVATIVES)
@pytest.mark.parametrize("name", WITH_DIFFERENT_HISTORIES)
def test_gradients_with_different_histories(name, order):
    compiler = None if order in ("of both", "third") else "eager"

    def program(rows):
        leaves = [torch.randn(rows, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        first = torch.autograd.grad(WITH_DIFFERENT_HISTORIES[name](*leaves), leaves, create_graph=True)
        called = []
        for number, leaf in enumerate(leaves):
            leaf.register_hook(lambda gradient, number=number: called.append(number))
        seen = [[each.detach() for each in first], [each.requires_grad for each in first], *DERIVATIVES[order](first, leaves)]
        return tree_map(lambda each: each.detach() if isinstance(each, torch.Tensor) else each, seen), called, [*map(weakref.ref, first)]

    hindcast.reset()
    gc.collect()
    gc.disable()  # a node that saves another one's result would be a reference cycle
    try:
        for step in range(5):
            torch.manual_seed(step)
            expected, expected_calls, _ = program(4 if step < 3 else 5)
            torch.manual_seed(step)
            with hindcast.enable(compiler, async_=False, back_off=False):
                seen, calls, references = program(4 if step < 3 else 5)
            assert calls == expected_calls and [reference() for reference in references] == [None, None]
            torch.testing.assert_close(tree_leaves(seen), tree_leaves(expected), rtol=1e-9, atol=1e-9)
    finally:
        gc.enable()
    if order in ("of one", "of both"):  # the others differentiate again with hooks
        assert not hindcast.stats()["fallbacks_by_reason"], hindcast.stats()


@pytest.mark.parametrize(
    "function",
    [lambda a, b, c: ((a + b.tanh()) ** 3).sum(), lambda a, b, c: ((a + b.tanh()) * c).sum()],
    ids=["equal histories", "different histories"],
)
def test_a_gradient_that_is_computed_from_another_one(function):
    """As that of b here from that of a. One program cannot give it that history."""

    def program():
        a, b, c = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
        of_a, of_b = torch.autograd.grad(function(a, b, c), [a, b], create_graph=True)
        (of_gradient,) = torch.autograd.grad(of_b.square().sum(), of_a, retain_graph=True)
        of_a.register_hook(lambda gradient: gradient * 2)
        return [of_gradient, *torch.autograd.grad(of_b.square().sum(), [a, b, c], allow_unused=True)]

    for seed in range(4):
        torch.manual_seed(seed)
        expected = program()
        torch.manual_seed(seed)
        with hindcast.enable(async_=False, back_off=False):
            seen = program()
        torch.testing.assert_close(seen, expected)
