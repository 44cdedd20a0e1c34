"""PyTorch's own database of operators: each compiled and compared with itself, forward and gradients, to the bit through ATen. A partial
run (HINDCAST_TEST_PART) takes some samples of each operator."""

import itertools
import warnings
from types import SimpleNamespace

import hindcast
import pytest
import torch
from device_of_tests import ADDS_IN_ANY_ORDER, DEVICE
from part_of_run import part_of_run
from side_by_side import assert_same
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_methods_invocations as database

# A program cannot contain the seed that an operator of the database sets: the test sets it.
database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

SAMPLES = 3
CALLS = 3  # a trace, and two hits
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.int64, torch.bool)

# What a program cannot express, by reason. The function itself runs instead.
EAGER_BY_REASON = {
    "sizes of results depend on the data": "linalg.lstsq linalg.lstsq.grad_oriented unique unique_consecutive",
    "reads a tensor's memory": "nn.functional.ctc_loss tensor_split",
    "changes geometry in place": "resize_ resize_as_",
    "takes tensors that are not strided": "sparse.mm.reduce sparse.sampled_addmm",
    "asks for the storage offset of an argument": "as_strided_copy as_strided.partial_views istft stft",
}
EAGER = {name for names in EAGER_BY_REASON.values() for name in names.split()}


def name_of(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def operators():
    """All operators, each with the dtype to test."""
    found = []
    for op in database.op_db:
        dtype = next((dtype for dtype in DTYPES if dtype in op.supported_dtypes(DEVICE)), None)
        if dtype is not None and not op.name.startswith(("empty", "new_empty")):  # each call returns different values
            found.append(pytest.param(op, dtype, id=name_of(op)))
    return found


is_in_part = part_of_run()


def samples_of(op, dtype, requires_grad):
    """The samples that this run takes, as (number, sample)."""
    samples = itertools.islice(op.sample_inputs(DEVICE, dtype, requires_grad=requires_grad), SAMPLES)
    offset = sum(name_of(op).encode())  # many operators have one sample: each run takes some of these too
    return [(i, sample) for i, sample in enumerate(samples) if is_in_part(i + offset)]


def own(tensor):
    return tensor.detach().clone().requires_grad_(tensor.requires_grad) if isinstance(tensor, torch.Tensor) else tensor


def dense(tensor):
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def detached(value):
    if not isinstance(value, torch.Tensor):
        return value
    value = dense(value.detach())
    return value.cfloat() if value.dtype == torch.chalf else value  # chalf has no comparisons


def needs_gradient(value):
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and value.requires_grad


def weighted(tensor):
    numbers = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return (numbers.double() * torch.linspace(1, 2, numbers.numel(), dtype=torch.double).view(numbers.shape)).sum()


def outcome(function, sample):
    """Results, whether they need gradients, gradients of the arguments, and the arguments afterwards."""
    args, kwargs = tree_map(own, ((sample.input, *sample.args), sample.kwargs))
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    torch.manual_seed(0)
    try:
        results = tree_leaves(function(*args, **kwargs))
        needing = [r for r in tree_leaves(sample.output_process_fn_grad(results)) if needs_gradient(r)]
        if needing:
            sum(map(weighted, needing)).backward()
    except Exception as error:
        return type(error), str(error)
    gradients = [None if leaf.grad is None else dense(leaf.grad).contiguous() for leaf in leaves]
    return tree_map(detached, (results, list(map(needs_gradient, results)), gradients, leaves))


def is_error(outcome):
    return isinstance(outcome[0], type)


def assert_equal(seen, expected, where):
    for i, (one, other) in enumerate(zip(seen, expected, strict=True)):
        if isinstance(other, (list, tuple)):
            assert_equal(one, other, f"{where}[{i}]")
        elif isinstance(other, torch.Tensor) and other.numel() and (other.is_floating_point() or other.is_complex()):
            assert one.isnan().equal(other.isnan()), where
            if ADDS_IN_ANY_ORDER and one.dtype == other.dtype and torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True):
                continue
            assert_same(one.masked_fill(one.isnan(), 0), other.masked_fill(other.isnan(), 0), where)
        else:
            assert_same(one, other, where)


@pytest.mark.parametrize("op, dtype", operators())
@pytest.mark.filterwarnings("ignore")
def test_an_operator(op, dtype):
    needs_gradients = op.supports_autograd and dtype.is_floating_point
    for i, sample in samples_of(op, dtype, needs_gradients):
        expected = outcome(op.op, sample)
        for partition in (hindcast.partition.standard, hindcast.partition.min_cut):
            f = hindcast.aot_function(op.op, "eager", "eager", partition, async_=False)
            for call in range(CALLS):
                assert_equal(outcome(f, sample), expected, f"sample {i}, {partition}, call {call}")
            assert f.stats()["hits"] == CALLS - 1 or is_error(expected) or name_of(op) in EAGER, f"sample {i}, {partition}: {f.stats()}"


# Its noise is partly uninitialised memory, so that no two recomputations are alike.
NOT_RECOMPUTED = {"nn.functional.rrelu"}


def recomputed_operators():
    all_ = [each.values for each in operators()]
    return [op for op, dtype in all_ if dtype is torch.float32 and op.supports_autograd and name_of(op) not in NOT_RECOMPUTED]


@pytest.mark.parametrize("op", recomputed_operators(), ids=name_of)
@pytest.mark.filterwarnings("ignore")
def test_an_operator_in_a_checkpoint(op):
    def function(*args, **kwargs):
        return checkpoint(op.op, *args, use_reentrant=False, **kwargs)

    for i, sample in samples_of(op, torch.float32, requires_grad=True):
        expected = outcome(function, sample)
        f = hindcast.aot_function(function, "eager", "eager", async_=False)
        for call in range(CALLS):
            assert_equal(outcome(f, sample), expected, f"sample {i}, call {call}")


def grown(sample, dim, times):
    """The sample with `dim` repeated in all tensors that are as long there as the first one; None: no such dim."""
    tensors = [leaf for leaf in tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(leaf, torch.Tensor)]
    if not tensors or tensors[0].dim() == 0:
        return None
    length = tensors[0].size(dim)

    def grow(leaf):
        if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0 or leaf.size(dim) != length:
            return leaf
        return torch.cat([leaf.detach()] * times, dim).requires_grad_(leaf.requires_grad)

    return SimpleNamespace(
        input=tree_map(grow, sample.input),
        args=tree_map(grow, sample.args),
        kwargs=tree_map(grow, sample.kwargs),
        output_process_fn_grad=sample.output_process_fn_grad,
    )


# With symbolic sizes the function needs more than programs can express.
EAGER_WHERE_SIZES_CHANGE = {"repeat_interleave", "as_strided_scatter", "as_strided"}


@pytest.mark.parametrize("op, dtype", [each for each in operators() if each.values[1] is torch.float32])
@pytest.mark.filterwarnings("ignore")
def test_an_operator_at_other_sizes(op, dtype):
    if name_of(op).startswith(("linalg.lstsq", "unique")):
        pytest.skip("no two calls are alike, or it takes long")
    for (i, sample), dim in itertools.product(samples_of(op, dtype, op.supports_autograd), (0, -1)):
        try:
            variants = [grown(sample, dim, times) for times in range(1, 5)]
        except (TypeError, RuntimeError):
            continue
        expected = [outcome(op.op, variant) for variant in variants if variant is not None]
        if not expected or any(map(is_error, expected)):
            continue
        f = hindcast.aot_function(op.op, "eager", "eager", async_=False)
        for call, (variant, one) in enumerate(zip(variants * 2, expected * 2)):
            assert_equal(outcome(f, variant), one, f"sample {i}, dimension {dim}, call {call}")
        known = name_of(op) in EAGER or name_of(op) in EAGER_WHERE_SIZES_CHANGE
        assert f.stats()["eager"] == 0 or known, f"sample {i}, dimension {dim}: {f.stats()}"
