"""Objects that a compiled function creates and returns: each call creates new ones, as the function would."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: nothing here needs the network

import copy
import dataclasses
import gc
import weakref

import hindcast
import pytest
import torch
import transformers
from side_by_side import assert_same, leaf

CALLS = 4


class Cache:
    def __init__(self, *tensors):
        self.layers = [Layer(tensor) for tensor in tensors]
        self.kind = Layer
        self.size = len(tensors)


class Layer:
    def __init__(self, keys):
        self.keys = keys
        self.dtype = keys.dtype


class Watched:
    seen = []

    def __init__(self, value):
        self.value = value
        Watched.seen.append(weakref.ref(self))


@dataclasses.dataclass(frozen=True)
class Output:
    loss: torch.Tensor
    cache: Cache


config = Layer(torch.zeros(2))


def with_cache(x):
    return Output((x * 2).sum(), Cache(x.exp(), x.sin()))


def with_one_twice(x):
    cache = Cache(x * 2)
    cache.same = cache.layers[0]
    return cache, cache.layers, cache


def with_a_circle(x):
    cache = Cache(x * 2)
    cache.layers[0].owner = cache
    return cache


def with_an_object_from_outside(x):
    cache = Cache(x * 2)
    cache.config = config
    return cache, config


def tensors_of(value, seen=None):
    """All tensors and numbers, in the order of traversal."""
    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [each for item in value for each in tensors_of(item, seen)]
    if isinstance(value, dict):
        return [each for item in value.items() for each in tensors_of(item, seen)]
    if hasattr(value, "__dict__") and not isinstance(value, type):
        if id(value) in seen:
            return []
        seen.add(id(value))
        return [type(value).__name__, *tensors_of(vars(value), seen)]
    return [value]


def run(function, x):
    x = x.detach().clone().requires_grad_()
    result = function(x)
    found = tensors_of(result)
    loss = sum((each * each).sum() for each in found if isinstance(each, torch.Tensor) and each.requires_grad)
    return result, [each.detach() if isinstance(each, torch.Tensor) else each for each in found], torch.autograd.grad(loss, x)


@pytest.mark.parametrize("function", [with_cache, with_one_twice, with_a_circle, with_an_object_from_outside])
def test_each_call_makes_its_own(function):
    f = hindcast.aot_function(function, "eager", "eager", async_=False)
    results = []
    for call in range(CALLS):
        x = torch.randn(3)
        result, seen, gradient = run(f, x)
        assert_same((seen, gradient), run(function, x)[1:], f"call {call}")
        results.append(result)
    assert f.stats()["hits"] == CALLS - 1, f.stats()
    caches = [result if isinstance(result, Cache) else result.cache if isinstance(result, Output) else result[0] for result in results]
    assert len(set(map(id, caches))) == CALLS and len({id(cache.layers[0]) for cache in caches}) == CALLS


def test_one_object_stays_one():
    f = hindcast.aot_function(with_one_twice, "eager", "eager", async_=False)
    for _ in range(CALLS):
        first, layers, last = run(f, torch.randn(3))[0]
        assert first is last and first.same is first.layers[0] is layers[0]


def test_what_is_from_outside_stays_itself():
    f = hindcast.aot_function(with_an_object_from_outside, "eager", "eager", async_=False)
    for _ in range(CALLS):
        cache, other = run(f, torch.randn(3))[0]
        assert cache.config is config and other is config and type(cache) is Cache


def test_an_object_that_the_function_keeps_is_no_new_one():
    kept = []

    def function(x):
        cache = Cache(x * 2)
        kept[:] = [cache]
        return cache

    f = hindcast.aot_function(function, "eager", "eager", async_=False)
    for _ in range(CALLS):
        x = torch.randn(3)
        result, seen, gradient = run(f, x)
        assert result is kept[0]
        assert_same((seen, gradient), run(function, x)[1:])


def test_an_object_that_somebody_watches_runs_eagerly():
    f = hindcast.aot_function(lambda x: Watched(x * 2), "eager", "eager", async_=False)
    for call in range(1, CALLS + 1):
        result = f(torch.randn(3, requires_grad=True))
        assert len(Watched.seen) == call and Watched.seen[-1]() is result
    assert f.stats()["eager"] == CALLS


def test_what_hangs_in_a_circle_is_not_kept():
    def function(x):
        y = x * 2

        def walk(steps):  # it refers to itself, so `y` lives until the garbage collector runs
            return y if steps == 0 else walk(steps - 1)

        return walk(2).sin()

    f = hindcast.aot_function(function, "eager", "eager", async_=False)
    for _ in range(CALLS):
        x = leaf(3)
        assert_same(torch.autograd.grad(f(x).sum(), x), torch.autograd.grad(function(x).sum(), x))
    assert f.stats()["hits"] == CALLS - 1, f.stats()


def test_an_argument_stays_itself():
    f = hindcast.aot_function(lambda x, cache: (x * 2, cache), "eager", "eager", async_=False)
    for _ in range(3):
        cache = Cache()
        x = leaf(3)
        for _ in range(2):
            result = f(x, cache)
            assert result[1] is cache
            result[0].sum().backward()


def test_a_copy_of_a_result_is_free():
    f = hindcast.aot_function(with_cache, "eager", "eager", async_=False)
    for _ in range(CALLS):
        cache = f(torch.randn(3)).cache
        cache.layers.append(Layer(torch.ones(1)))
        cache.more = 1
        copy.copy(cache).size = 7
    assert len(f(torch.randn(3)).cache.layers) == 2 and not hasattr(f(torch.randn(3)).cache, "more")


def gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_positions=12, n_embd=16, n_layer=2, n_head=2, vocab_size=64, bos_token_id=0, eos_token_id=0)
    )


def llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=64)
    )


@pytest.mark.parametrize("make", [gpt2, llama])
def test_a_language_model_returns_its_cache(make):
    torch.manual_seed(0)
    model = make().eval()  # disables dropout
    words = torch.randint(64, (2, 12))
    compiled = hindcast.aot_module(model, "eager", "eager", async_=False)

    def step(net):
        model.zero_grad()
        output = net(input_ids=words, labels=words, use_cache=True)
        keys = [layer.keys for layer in output.past_key_values.layers]
        (output.loss + sum(key.square().sum() for key in keys)).backward()
        return output.loss.detach(), [key.detach() for key in keys], [parameter.grad.clone() for parameter in model.parameters()]

    for call in range(CALLS):
        assert_same(step(compiled), step(model), f"call {call}")
    assert compiled.aot_stats()["hits"] == CALLS - 1, compiled.aot_stats()

    # The cache is a real one: the model can continue with it.
    with torch.no_grad():
        after = [net(input_ids=words[:, :6], use_cache=True).past_key_values for net in (compiled, compiled, model)]
        following = [model(input_ids=words[:, 6:7], past_key_values=cache).logits for cache in after]
    assert_same(following[1], following[2])


def test_sets_are_made_anew():
    class Cache:
        pass

    outside = {0}

    def function(x):
        cache = Cache()
        cache.made, cache.outside, cache.double = {7}, outside, x * 2
        return cache, {8}

    f = hindcast.aot_function(function, async_=False)
    for _ in range(4):
        x = torch.randn(3)
        cache, made = f(x)
        assert cache.made == {7} and made == {8} and cache.outside is outside
        torch.testing.assert_close(cache.double, x * 2)
        cache.made.add(1)
        made.add(1)


def test_a_kept_tensor_costs_few_collections():
    """A full collection in a program with PyTorch takes some 0.1 s."""

    class Running(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = torch.zeros(4)

        def forward(self, x):
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            return (x - self.mean).square().mean()

    collections = []

    def note(phase, info):
        if phase == "start" and info["generation"] == 2:
            collections.append(info)

    ours, stock = hindcast.aot_module(Running()), Running()
    gc.callbacks.append(note)
    try:
        for number in range(40):
            x = torch.full((3, 4), float(number), requires_grad=True)
            torch.testing.assert_close(ours(x), stock(x))
    finally:
        gc.callbacks.remove(note)
    assert len(collections) < 12


class Sub(torch.Tensor):
    pass


def test_tensors_of_a_subclass_that_the_function_makes():
    for function in (lambda x: x.as_subclass(Sub).sin() + 1, lambda x: {"a": x * 2, "b": (x + 1).as_subclass(Sub)}["b"] * 3):
        f = hindcast.aot_function(function, back_off=False)
        for _ in range(CALLS):
            x = leaf(4)
            ours, stock = f(x), function(x)
            assert type(ours) is Sub
            torch.testing.assert_close(ours, stock)
            torch.testing.assert_close(torch.autograd.grad(ours.sum(), x), torch.autograd.grad(stock.sum(), x))


@pytest.mark.skipif(not hasattr(torch.Tensor, "has_names"), reason="LibTorch 2.13 has no named tensors")
@pytest.mark.filterwarnings("ignore:Named tensors")
def test_named_arguments():
    f = hindcast.aot_function(lambda x: x * 2, back_off=False)
    for is_named in (True, False, False, True, True, False):
        x = torch.ones(2, 3, names=("N", "C") if is_named else None)
        assert f(x).names == x.names
    assert f.stats()["hits"] == 2
