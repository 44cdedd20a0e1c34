"""Functions that keep their arguments, in attributes (``layer.weight = w``) and in containers: what they hold, and what later calls see of it."""

import collections
import gc
import types
import weakref

import pytest
import torch
from torch import nn

import hindcast


def without_parameters(module):
    """Turns the module's parameters into plain attributes, which a function sets. Returns their names, and leaves in their place."""
    names = [name for name, _ in module.named_parameters()]
    leaves = []
    for name in names:
        owner, attribute = owner_of(module, name)
        leaves.append(getattr(owner, attribute).detach().requires_grad_())
        delattr(owner, attribute)
    return names, leaves


def owner_of(module, name):
    path, _, attribute = name.rpartition(".")
    return module.get_submodule(path), attribute


def attributes(module, names):
    return [getattr(*owner_of(module, name)) for name in names]


def net_and_function():
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    names, leaves = without_parameters(net)

    def loss(x, *weights):
        for name, weight in zip(names, weights):
            setattr(*owner_of(net, name), weight)
        return net(x).square().sum()

    return net, names, leaves, loss


def gradients(loss, x, weights):
    return torch.autograd.grad(loss(x, *weights), weights)


def test_calls_run_programs_and_set_the_attributes():
    net, names, leaves, loss = net_and_function()
    x = torch.randn(4, 3)
    expected = gradients(loss, x, leaves)
    compiled = hindcast.aot_function(loss, fallback=False)
    for _ in range(4):
        for seen, wanted in zip(gradients(compiled, x, leaves), expected):
            torch.testing.assert_close(seen, wanted)
        assert all(one is other for one, other in zip(attributes(net, names), leaves))
    assert compiled.stats()["hits"] == 3


def test_of_other_weights_the_attributes_are_those():
    net, names, leaves, loss = net_and_function()
    compiled = hindcast.aot_function(loss)
    x = torch.randn(4, 3)
    for _ in range(3):
        gradients(compiled, x, leaves)
    for _ in range(6):
        others = [leaf.detach().mul(1.5).requires_grad_() for leaf in leaves]
        expected = gradients(loss, x, others)
        gradients(compiled, x, leaves)
        for seen, wanted in zip(gradients(compiled, x, others), expected):
            torch.testing.assert_close(seen, wanted)
        assert all(one is other for one, other in zip(attributes(net, names), others))


def test_weights_that_are_made_anew():
    net, names, leaves, loss = net_and_function()
    compiled = hindcast.aot_function(loss)
    x = torch.randn(4, 3)
    for step in range(5):
        fast = [leaf - 0.1 * step * torch.ones_like(leaf) for leaf in leaves]
        seen = torch.autograd.grad(compiled(x, *fast), leaves)
        assert all(one is other for one, other in zip(attributes(net, names), fast))
        for one, wanted in zip(seen, torch.autograd.grad(loss(x, *fast), leaves)):
            torch.testing.assert_close(one, wanted)


def test_what_a_call_reads_before_it_sets_is_of_the_call_before():
    memory = types.SimpleNamespace(last=torch.zeros(3))

    def difference(x):
        result = (x - memory.last) * 2
        memory.last = x
        return result

    compiled = hindcast.aot_function(difference)
    before = torch.zeros(3)
    for step in range(50):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), (x - before) * 2)
        assert memory.last is x
        before = x


def test_exchanged_and_deleted_attributes():
    holder = types.SimpleNamespace(a=None, b=None)

    def exchange(x, y):
        holder.a, holder.b = y, x
        holder.c = x
        del holder.c
        return holder.a * 2 + holder.b

    compiled = hindcast.aot_function(exchange)
    x, y = torch.randn(4), torch.randn(4)
    for one, other in ((x, y), (x, y), (x, y), (y, x), (x, y), (y, x)):
        torch.testing.assert_close(compiled(one, other), other * 2 + one)
        assert holder.a is other and holder.b is one and not hasattr(holder, "c")


def test_behind_an_error_the_attribute_is_the_argument():
    holder = types.SimpleNamespace(x=None)

    def fail(x):
        holder.x = x
        raise ValueError("behind it")

    compiled = hindcast.aot_function(fail)
    for _ in range(3):
        x = torch.randn(4)
        with pytest.raises(ValueError, match="behind it"):
            compiled(x)
        assert holder.x is x


def test_containers_have_what_was_written_to_them_before_an_error():
    def function(x, named, listed, nested):
        named["argument"] = x
        named["made"] = x * 2
        del named["old"]
        listed.append(x.sin())
        nested["list"].append(3)
        if x.shape[0] % 2:
            raise KeyError("odd")
        return x.exp()

    compiled = hindcast.aot_function(function)
    for rows in (2, 3, 2, 5, 3, 4):
        outcomes = []
        for call in (compiled, function):
            x = torch.linspace(0, 1, rows, requires_grad=True)
            named, listed, nested = {"old": 1}, [], {"list": [1]}
            inner = nested["list"]
            try:
                call(x, named, listed, nested)
            except KeyError:
                pass
            assert named["argument"] is x and nested["list"] is inner
            (named["made"].sum() + listed[0].sum()).backward()
            outcomes.append([list(named), named["made"], listed, nested, x.grad])
        torch.testing.assert_close(outcomes[0][1:], outcomes[1][1:])
        assert outcomes[0][0] == outcomes[1][0]


def test_parameters_and_buffers_that_are_set():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3))
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x):
            self.seen = x
            return self.weight * self.seen

    net = Net()
    compiled = hindcast.aot_module(net)
    x = torch.randn(3)
    for _ in range(4):
        result = compiled(x)
        torch.testing.assert_close(result, net.weight * x)
        assert net.seen is x and net._buffers["seen"] is x
        result.sum().backward()
    assert compiled.aot_stats()["hits"] > 0
    assert compiled.state_dict()["seen"].equal(x)

    other = nn.Linear(3, 2)

    def put(weight, x):
        other.weight = weight
        return other(x)

    put_compiled = hindcast.aot_function(put)
    weight = nn.Parameter(torch.randn(2, 3))
    for _ in range(4):
        torch.testing.assert_close(put_compiled(weight, x), nn.functional.linear(x, weight, other.bias))
        assert other.weight is weight and dict(other.named_parameters())["weight"] is weight


def test_containers_hold_the_arguments():
    history, by_name, last = [], {}, types.SimpleNamespace(pair=None)

    def keep(x, y):
        history.append(x)
        by_name["y"] = y
        last.pair = [x, y]
        return [x, (x * y).sum()]

    compiled = hindcast.aot_function(keep)
    for call in range(1, 5):
        x, y = torch.randn(3, requires_grad=True), torch.randn(3)
        same, result = compiled(x, y)
        result.backward()
        torch.testing.assert_close(x.grad, y)
        assert same is x and len(history) == call
        assert history[-1] is x and by_name["y"] is y and last.pair[0] is x and last.pair[1] is y


def test_what_a_result_holds_is_the_callers():
    compiled = hindcast.aot_function(lambda x, y: {"same": x, "pair": [y, x + y]})
    for _ in range(4):
        x, y = torch.randn(3), torch.randn(3)
        result = compiled(x, y)
        assert result["same"] is x and result["pair"][0] is y
        torch.testing.assert_close(result["pair"][1], x + y)
    assert compiled.stats()["hits"] == 3


def test_a_parameter_is_one_in_the_function():
    seen = []

    def function(weight, x):
        seen.append(isinstance(weight, nn.Parameter))
        return weight * x

    compiled = hindcast.aot_function(function)
    compiled(nn.Parameter(torch.ones(3)), torch.ones(3))
    compiled(torch.ones(3), torch.ones(3))
    assert seen == [True, False]


def test_an_argument_that_is_the_result_is_not_kept():
    for function in (lambda x: x, lambda x: (x, x.view(-1)), lambda x, y=None: [x]):
        compiled = hindcast.aot_function(function)
        for _ in range(4):
            compiled(torch.randn(3))
        assert compiled.stats()["hits"] == 3


class WithSetter:
    log = []
    _cache = None

    @property
    def x(self):
        return self._x

    @x.setter
    def x(self, value):
        self._x, self._cache = value, None
        self.log.append(len(self.log))

    def total(self):
        if self._cache is None:
            self._cache = float(self._x.sum())
        return self._cache


class ModuleWithSetter(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 0

    @property
    def x(self):
        return self._x

    @x.setter
    def x(self, value):
        self.count += 1
        self._x = value


class Counting:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return getattr(instance, self.name)

    def __set__(self, instance, value):
        instance.sets.append(1)
        instance.__dict__[self.name] = value


class ModuleWithDescriptor(nn.Module):
    x = Counting()

    def __init__(self):
        super().__init__()
        self.sets = []


def test_setters_run_in_each_call():
    holder = WithSetter()
    WithSetter.log.clear()

    def function(x):
        holder.x = x
        return x * 2

    compiled = hindcast.aot_function(function)
    for number in range(1, 7):
        compiled(torch.full((3,), float(number)))
        assert holder.total() == 3 * number and len(WithSetter.log) == number


@pytest.mark.parametrize("make", [ModuleWithSetter, ModuleWithDescriptor])
def test_setters_of_modules_run_in_each_call(make):
    module = make()

    def function(x):
        module.x = x
        return x * 2

    compiled = hindcast.aot_function(function)
    for number in range(1, 7):
        x = torch.randn(3)
        compiled(x)
        assert module.x is x and (module.count if make is ModuleWithSetter else len(module.sets)) == number


def previous_by_getattr(holder):
    def function(x):
        previous = getattr(holder, "_x", None)
        setattr(holder, "_x", x)
        return x * 2 if previous is None else x * 2 + previous

    return function


def first_by_hasattr(holder):
    def function(x):
        if not hasattr(holder, "first"):
            setattr(holder, "first", x)
        return x + holder.first

    return function


def by_vars(holder):
    def function(x):
        previous = vars(holder).get("w", 0)
        vars(holder)["w"] = x
        return x * 2 + previous

    return function


@pytest.mark.parametrize("make", [types.SimpleNamespace, nn.Module])
@pytest.mark.parametrize("of", [previous_by_getattr, first_by_hasattr, by_vars])
def test_attributes_that_come_into_being(make, of):
    mine, theirs = make(), make()
    compiled, plain = hindcast.aot_function(of(mine)), of(theirs)
    for number in range(1, 7):
        x = torch.full((2,), float(number))
        torch.testing.assert_close(compiled(x), plain(x))


def test_an_attribute_of_the_function_itself():
    def make():
        def function(x):
            result = x * 2 + getattr(function, "previous", 0)
            function.previous = x
            return result

        return function

    compiled, plain = hindcast.aot_function(make()), make()
    for number in range(1, 7):
        x = torch.full((2,), float(number))
        torch.testing.assert_close(compiled(x), plain(x))


kept_in_a_global = []
last_of_all = None


@pytest.mark.parametrize("needs_grad", [False, True])
def test_what_is_kept_and_not_saved(needs_grad):
    def function(x):
        global last_of_all
        kept_in_a_global.append(x)
        last_of_all = x
        return x * 2

    compiled = hindcast.aot_function(function)
    for _ in range(4):
        x = torch.ones(3, requires_grad=needs_grad)
        compiled(x)
        assert kept_in_a_global[-1] is x and last_of_all is x


def test_buffers_are_registered():
    module = nn.Module()

    def function(buffer):
        module.b = buffer
        return buffer * 2

    compiled = hindcast.aot_function(function)
    buffer = nn.Buffer(torch.ones(2))
    for _ in range(3):
        compiled(buffer)
        assert dict(module.named_buffers())["b"] is buffer


def reorders(given, x):
    given.update(b=given.pop("b"), a=given.pop("a"))
    return given["a"] + x


CHANGES_OF_DICTS = {
    "returns it": lambda given, x: given,
    "returns it in another": lambda given, x: {"of": given, "x": x * 2},
    "replaces a value": lambda given, x: given.update(b=x * 3) or [given, given],
    "adds a name": lambda given, x: given.update(more=x + 1) or given["a"] * x,
    "removes a name": lambda given, x: (given.pop("b"), given),
    "reorders it": reorders,
}


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, lambda **items: collections.defaultdict(list, items)])
@pytest.mark.parametrize("name", CHANGES_OF_DICTS)
def test_dicts_that_a_function_returns_or_changes(name, kind):
    def outcome(call, step):
        given = kind(a=torch.ones(2), b=torch.arange(2.0))
        result = call(given, torch.full((2,), float(step)))
        places = [place for place, each in enumerate(torch.utils._pytree.tree_leaves([result], lambda leaf: leaf is given)) if each is given]
        values = [(key, torch.as_tensor(each).tolist()) for key, each in given.items()]
        tensors = [each.tolist() for each in torch.utils._pytree.tree_leaves(result)]
        return type(result), places, values, tensors

    function = CHANGES_OF_DICTS[name]
    f = hindcast.aot_function(function, "eager", "eager")
    for step in range(4):
        assert outcome(f, step) == outcome(function, step)


State = collections.namedtuple("State", "hidden cell")


@pytest.mark.parametrize("kind", [tuple, lambda tensors: State(*tensors)])
def test_a_tuple_among_the_arguments_that_is_returned_is_the_callers_own(kind):
    def function(x, state, batch):
        hidden, _ = state
        return x + hidden, state, (batch["states"][0], state), (*state,)

    f = hindcast.aot_function(function, "eager", "eager")
    for _ in range(4):
        state, states = kind((torch.ones(2), torch.zeros(2))), [kind((torch.ones(3), torch.zeros(3)))]
        y, same, (nested, again), other = f(torch.arange(2.0), state, {"states": states})
        assert same is state and again is state and nested is states[0]
        assert other is not state and other[0] is state[0] and y.tolist() == [1, 2]
    assert f.stats()["hits"] == 3


def test_an_argument_lives_no_longer_than_without_hindcast():
    class Scale:
        by = 2.0

    f = hindcast.aot_function(lambda x, scale: x * scale.by)
    gc.collect()
    gc.disable()
    try:
        alive = []
        for _ in range(5):
            scale = Scale()
            alive.append(weakref.ref(scale))
            f(torch.ones(3), scale)
            del scale
        assert [each() for each in alive] == [None] * 5
    finally:
        gc.enable()


def test_a_written_argument_lives_no_longer_than_without_hindcast():
    """Its history leads to the trace, which must not hold it."""
    f = hindcast.aot_function(lambda x: x.mul_(2))
    gc.collect()
    gc.disable()
    try:
        alive = []
        for _ in range(4):
            x = torch.ones(3, requires_grad=True) * 1
            alive.append(weakref.ref(x))
            f(x)
            del x
        assert [each() for each in alive] == [None] * 4
    finally:
        gc.enable()
