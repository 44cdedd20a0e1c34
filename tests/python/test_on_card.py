"""Features of a card only: streams, its allocator, graphs that the program captures, autocast to float16, operators of cuDNN."""

import copy
import io
import threading

import hindcast
import pytest
import torch
import torch.nn.functional as F
from device_of_tests import DEVICE
from torch import nn
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="needs a card, and HINDCAST_TEST_DEVICE=cuda")

STEPS = 8


@pytest.fixture(autouse=True)
def exact_products():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True


def near(seen, expected, rtol=1e-4, atol=1e-5):
    torch.testing.assert_close(seen, expected, rtol=rtol, atol=atol)


class Mlp(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.first, self.second, self.norm, self.dropout = nn.Linear(32, 64), nn.Linear(64, 16), nn.LayerNorm(64), dropout

    def forward(self, x):
        x = F.gelu(self.first(x))
        if self.dropout:
            x = F.dropout(x, self.dropout, self.training)
        return self.second(self.norm(x) * 0.5)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 8, 3, stride=2)
        self.norm = nn.BatchNorm2d(16)

    def forward(self, x):
        return self.second(F.relu(self.norm(self.first(x)))).mean((2, 3))


class Attention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.mix, self.out, self.causal = nn.Linear(32, 96), nn.Linear(32, 32), causal

    def forward(self, x):
        q, k, v = self.mix(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return x + self.out(y.transpose(1, 2).reshape(x.shape))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.body = nn.Embedding(50, 32), Attention(causal=True)

    def forward(self, tokens):
        return F.linear(self.body(self.embedding(tokens)), self.embedding.weight)


MODELS = {
    "mlp": (Mlp, lambda: torch.randn(24, 32)),
    "convolutions": (Convolutions, lambda: torch.randn(4, 3, 12, 12)),
    "channels_last": (lambda: Convolutions().to(memory_format=torch.channels_last),
                      lambda: torch.randn(4, 3, 12, 12).to(memory_format=torch.channels_last)),
    "attention": (lambda: Attention(causal=False), lambda: torch.randn(3, 10, 32)),
    "language": (Language, lambda: torch.randint(50, (3, 10))),
    "lstm": (lambda: nn.LSTM(32, 16, batch_first=True), lambda: torch.randn(3, 10, 32)),
    "gru": (lambda: nn.GRU(32, 16, num_layers=2), lambda: torch.randn(10, 3, 32)),
}


def loss_of(result):
    result = result[0] if isinstance(result, tuple) else result
    return result.float().square().mean()


def trained(model, call, inputs, guard, autocast=None, scaler=None):
    """Losses, and the parameters and buffers after some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for x in inputs:
        with guard():
            with torch.autocast("cuda", autocast or torch.float16, enabled=autocast is not None):
                loss = loss_of(call(x))
            if scaler is None:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses, {name: value.detach().clone() for name, value in model.state_dict().items()}


GUARDS = {
    "kernels": lambda: hindcast.enable(async_=False),
    "graphs": lambda: hindcast.enable(async_=False, cuda_graphs=True),
}
DOORS = {
    "enable": (lambda model: model, GUARDS["kernels"]),
    "enable_with_graphs": (lambda model: model, GUARDS["graphs"]),
    "function": (lambda model: hindcast.aot_module(model, async_=False), GUARDS["kernels"]),
    "function_alone": (lambda model: hindcast.aot_module(model, async_=False, partition_fn=hindcast.partition.min_cut), torch.enable_grad),
    "torch_compile": (lambda model: torch.compile(model, backend="hindcast"), torch.enable_grad),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("autocast", [None, torch.float16, torch.bfloat16], ids=["float32", "float16", "bfloat16"])
def test_a_model_trains_as_eagerly(name, door, autocast):
    make, make_input = MODELS[name]
    torch.manual_seed(0)
    model = make()
    inputs = [make_input() for _ in range(STEPS)]
    wrap, guard = DOORS[door]
    stock, ours = copy.deepcopy(model), copy.deepcopy(model)
    scale = autocast == torch.float16
    scalers = [torch.amp.GradScaler("cuda", init_scale=256.0) if scale else None for _ in range(2)]
    expected = trained(stock, stock, inputs, torch.enable_grad, autocast, scalers[0])
    seen = trained(ours, wrap(ours), inputs, guard, autocast, scalers[1])
    tolerance = {} if autocast is None else {"rtol": 2e-2, "atol": 2e-2}
    near(seen, expected, **tolerance)


@pytest.mark.parametrize("door", ["enable", "function", "function_alone"])
def test_streams_of_the_program(door):
    torch.manual_seed(0)
    model = Mlp()
    wrap, guard = DOORS[door]
    ours = copy.deepcopy(model)
    call = wrap(ours)
    streams = [torch.cuda.Stream() for _ in range(2)]
    for step in range(2 * STEPS):
        x = torch.randn(512, 32)
        for one, function in ((model, model), (ours, call)):
            one.zero_grad()
            stream = streams[step % 2]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream), guard() if one is ours else torch.enable_grad():
                y = x * 1.5
                loss = loss_of(function(y))
                loss.backward()
            torch.cuda.current_stream().wait_stream(stream)
        near([p.grad for p in ours.parameters()], [p.grad for p in model.parameters()])


@pytest.mark.parametrize("door", ["enable", "function", "function_alone"])
def test_a_graph_that_the_program_captures(door):
    torch.manual_seed(0)
    model = Mlp()
    ours = copy.deepcopy(model)
    wrap, guard = DOORS[door]
    call = wrap(ours)
    x = torch.randn(24, 32)

    def step():
        ours.zero_grad(set_to_none=True)
        with guard():
            loss = loss_of(call(x))
            loss.backward()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(6):
            step()
    torch.cuda.current_stream().wait_stream(side)
    hindcast.wait()
    graph = torch.cuda.CUDAGraph()
    ours.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()
    for _ in range(3):
        x.copy_(torch.randn(24, 32))
        graph.replay()
        model.zero_grad()
        expected = loss_of(model(x))
        expected.backward()
        near(loss, expected)
        near([p.grad for p in ours.parameters()], [p.grad for p in model.parameters()])


@pytest.mark.parametrize("door", DOORS)
def test_memory_does_not_grow(door):
    model = Mlp(dropout=0.1)
    wrap, guard = DOORS[door]
    call = wrap(model)

    def steps(count):
        for i in range(count):
            with guard():
                loss_of(call(torch.randn(24 + i % 3, 32))).backward()
            model.zero_grad()
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    before = steps(60)
    assert steps(120) <= before + (1 << 20)


@pytest.mark.parametrize("how", ["module", "functional", "function_of_arguments"])
def test_a_module_that_moves_between_devices(how):
    torch.manual_seed(0)
    model = Mlp().cpu()
    ours = copy.deepcopy(model)
    call = hindcast.aot_module(ours, async_=False) if how == "module" else hindcast.aot_function(lambda x: ours(x), async_=False)
    if how == "function_of_arguments":
        names = [name for name, _ in ours.named_parameters()]
        function = hindcast.aot_function(lambda x, *p: torch.func.functional_call(ours, dict(zip(names, p)), x), async_=False)
        call = lambda x: function(x, *ours.parameters())  # noqa: E731
    for step, device in enumerate(["cpu", "cpu", "cpu", "cuda", "cuda", "cpu", "cuda", "cuda", "cpu"]):
        model.to(device)
        ours.to(device)
        x = torch.randn(7 + step % 2, 32, device=device)
        model.zero_grad()
        ours.zero_grad()
        loss_of(model(x)).backward()
        loss_of(call(x)).backward()
        near([p.grad for p in ours.parameters()], [p.grad for p in model.parameters()])


def test_devices_within_a_function():
    weight = torch.randn(32, dtype=torch.float64, requires_grad=True)

    def function(x, scale, index):
        y = x.to("cuda", non_blocking=True) * scale * weight
        return y[index].cpu() * 2, y.sum() * torch.tensor(3.0, device="cpu")

    f = hindcast.aot_function(function, async_=False)
    for step in range(STEPS):
        x = torch.randn(5 + step % 2, 32, dtype=torch.float64, device="cpu", requires_grad=True)
        scale, index = torch.tensor(0.5 + step, device="cpu"), torch.tensor([0, 2, 1], device="cpu")
        seen = []
        for call in (function, f):
            first, second = call(x, scale, index)
            seen.append([first.detach(), second.detach(), *torch.autograd.grad(first.sum() + second.cpu(), [x, weight])])
        near(seen[1], seen[0])


def test_numbers_that_are_read_from_the_card():
    def function(x):
        rows = (x.sum(1) > 0).nonzero().squeeze(1)
        y = x[rows].tanh()
        return y.sum() * 2 if y.sum().item() > 0 else y.square().sum()

    f = hindcast.aot_function(function, async_=False)
    for step in range(2 * STEPS):
        x = torch.randn(6, 4, requires_grad=True)
        near(torch.autograd.grad(f(x), x)[0], torch.autograd.grad(function(x), x)[0])


def pinn(parameters, x):
    x = x.detach().requires_grad_()
    y = torch.tanh(x @ parameters[0]) @ parameters[1]
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    curved = torch.autograd.grad(slope[:, 0].sum(), x, create_graph=True)[0]
    return (curved[:, 0] - x[:, 1]).square().mean()


def penalty(parameters, x):
    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad((F.silu(x @ parameters[0]) @ parameters[1]).sum(), x, create_graph=True)
    return ((slope.norm(2, 1) - 1) ** 2).mean()


def meta(parameters, x):
    def loss(w):
        return F.layer_norm(torch.tanh(x @ w[0]) @ w[1], (3,)).sin().square().mean()

    slopes = torch.autograd.grad(loss(parameters), parameters, create_graph=True)
    return loss([w - 0.1 * slope for w, slope in zip(parameters, slopes)])


@pytest.mark.parametrize("door", ["enable", "enable_with_graphs", "function", "train_step", "train_step_graph"])
@pytest.mark.parametrize("function", [pinn, penalty, meta])
def test_losses_that_contain_gradients(function, door):
    torch.manual_seed(0)
    parameters = [torch.randn(2, 16, dtype=torch.float64).requires_grad_(), torch.randn(16, 3, dtype=torch.float64).requires_grad_()]
    ours = [p.detach().clone().requires_grad_() for p in parameters]
    call, guard = (lambda x: function(ours, x)), torch.enable_grad
    if door.startswith("enable"):
        guard = GUARDS["graphs" if door == "enable_with_graphs" else "kernels"]
    elif door == "function":
        call = hindcast.aot_function(call, async_=False)
    optimizers = [torch.optim.Adam(p, lr=0.01) for p in (parameters, ours)]
    step = None
    if door.startswith("train_step"):
        step = hindcast.train_step(optimizers[1], call, async_=False, cuda_graphs=door == "train_step_graph")
    for _ in range(3 * STEPS):
        x = torch.randn(12, 2, dtype=torch.float64)
        optimizers[0].zero_grad()
        function(parameters, x).backward()
        optimizers[0].step()
        if step:
            step(x)
        else:
            optimizers[1].zero_grad()
            with guard():
                call(x).backward()
            optimizers[1].step()
        near(ours, parameters, rtol=1e-7, atol=1e-9)
        count_on_the_host(optimizers[1])
    if door == "train_step_graph":
        assert step.stats()["cuda_graph_launches"] > 0, step.why_no_cuda_graph


@pytest.mark.parametrize("settings", [{}, {"fused": True}, {"foreach": True}, {"capturable": True}], ids=str)
@pytest.mark.parametrize("scaled", [False, True])
def test_train_step(settings, scaled):
    torch.manual_seed(0)
    model = Mlp()
    ours = copy.deepcopy(model)
    optimizers = [torch.optim.AdamW(each.parameters(), lr=1e-3, **settings) for each in (model, ours)]
    scalers = [torch.amp.GradScaler("cuda", init_scale=64.0, growth_interval=3) for _ in range(2)]

    def loss(x, y):
        return F.mse_loss(ours(x), y)

    step = hindcast.train_step(optimizers[1], loss, clip_grad_norm=hindcast.ClipGradNorm(0.5), scaler=scalers[1] if scaled else None,
                               async_=False)
    for _ in range(STEPS):
        x, y = torch.randn(24, 32), torch.randn(24, 16)
        optimizers[0].zero_grad()
        expected = F.mse_loss(model(x), y)
        if scaled:
            scalers[0].scale(expected).backward()
            scalers[0].unscale_(optimizers[0])
        else:
            expected.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        if scaled:
            scalers[0].step(optimizers[0])
            scalers[0].update()
        else:
            optimizers[0].step()
        near(step(x, y), expected.detach())
        near(list(ours.parameters()), list(model.parameters()), rtol=1e-3, atol=1e-4)


def count_on_the_host(optimizer):
    """Moves step counts to the host, as without a default device: no kernel uses a count on the card."""
    for state in optimizer.state.values():
        if "step" in state:
            state["step"] = state["step"].cpu()


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop])
@pytest.mark.parametrize("name", ["mlp", "attention", "convolutions"])
def test_a_whole_step_is_one_graph(name, optimizer):
    make, make_input = MODELS[name]
    torch.manual_seed(0)
    model = make()
    ours = copy.deepcopy(model)
    optimizers = [optimizer(each.parameters(), lr=1e-3) for each in (model, ours)]
    step = hindcast.train_step(optimizers[1], lambda x: loss_of(ours(x)), clip_grad_norm=hindcast.ClipGradNorm(0.5), cuda_graphs=True,
                               async_=False)
    for i in range(3 * STEPS):
        for each in optimizers:
            each.param_groups[0]["lr"] = 1e-3 / (1 + i)
        x = make_input()
        optimizers[0].zero_grad()
        expected = loss_of(model(x))
        expected.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizers[0].step()
        near(step(x), expected.detach(), rtol=1e-3, atol=1e-4)
        near(step.update.grad_norm, norm, rtol=1e-3, atol=1e-4)
        if name == "mlp":  # others have biases with zero gradients up to rounding, which Adam turns into whole moves
            near(ours.state_dict(), model.state_dict(), rtol=1e-3, atol=1e-4)
        count_on_the_host(optimizers[1])
    assert step.stats()["cuda_graph_launches"] > 0, step.why_no_cuda_graph


def test_dropout_and_checkpoints():
    torch.manual_seed(0)
    model = Mlp(dropout=0.5)
    compiled = hindcast.aot_module(model, async_=False, fallback_random=True)
    for call in (model, compiled):
        for step in range(4):
            x = torch.randn(24, 32, requires_grad=True)
            grads = []
            for body in (call, lambda x, call=call: checkpoint(call, x, use_reentrant=False)):
                torch.manual_seed(step)
                grads.append(torch.autograd.grad(body(x).sum(), [x, *model.parameters()]))
            near(grads[1], grads[0])


def test_random_numbers_are_eagers_with_fallback_random():
    def function(x):
        return F.dropout(x, 0.3) + torch.rand_like(x) * x + torch.randn(x.shape) * x

    f = hindcast.aot_function(function, async_=False, fallback_random=True)
    for step in range(STEPS):
        x = torch.randn(33, 17, requires_grad=True)
        seen = []
        for call in (function, f):
            torch.manual_seed(step)
            y = call(x)
            seen.append([y.detach(), torch.autograd.grad(y.sum(), x)[0], torch.rand(3)])
        near(seen[1], seen[0])


def test_threads_with_streams_of_their_own():
    torch.manual_seed(0)
    model = Mlp()
    compiled = hindcast.aot_module(model, async_=False)
    errors = []

    def work(number):
        try:
            torch.set_default_device("cuda")
            with torch.cuda.stream(torch.cuda.Stream()):
                for step in range(STEPS):
                    x = torch.randn(16 + number, 32)
                    expected = torch.autograd.grad(loss_of(model(x)), list(model.parameters()))
                    with hindcast.enable(async_=False):
                        near(torch.autograd.grad(loss_of(compiled(x)), list(model.parameters())), expected)
                torch.cuda.current_stream().synchronize()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_no_memory_left():
    f = hindcast.aot_function(lambda x: (x.sin() * x.cos()).expand(1 << 20, -1).contiguous().sum(), async_=False)
    small = torch.randn(4, requires_grad=True)
    f(small).backward()
    with pytest.raises(torch.OutOfMemoryError):
        f(torch.randn(1 << 20, requires_grad=True))
    for _ in range(3):
        x = torch.randn(4, requires_grad=True)
        near(torch.autograd.grad(f(x), x)[0], (1 << 20) * torch.cos(2 * x.detach()))


def test_saved_and_loaded():
    model = hindcast.aot_module(Mlp(), async_=False)
    x = torch.randn(3, 32)
    expected = model(x)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    near(torch.load(file, weights_only=False)(x), expected)


def test_complex_numbers_and_transforms():
    def function(x, y):
        z = torch.fft.rfft(x) * torch.fft.rfft(y).conj()
        return torch.fft.irfft(z, n=x.shape[-1]).abs().sum() + torch.view_as_real(z).square().mean() + torch.linalg.norm(z)

    f = hindcast.aot_function(function, async_=False)
    for _ in range(STEPS):
        x, y = torch.randn(5, 16, requires_grad=True), torch.randn(5, 16, requires_grad=True)
        near(torch.autograd.grad(f(x, y), [x, y]), torch.autograd.grad(function(x, y), [x, y]), rtol=1e-3, atol=1e-4)


def test_hooks_and_gradients_that_accumulate():
    torch.manual_seed(0)
    model = Mlp()
    ours = copy.deepcopy(model)
    seen = {id(model): [], id(ours): []}
    for each in (model, ours):
        each.first.weight.register_hook(lambda g, each=each: seen[id(each)].append(g.norm()) or g * 0.5)
        each.second.weight.register_post_accumulate_grad_hook(lambda p, each=each: seen[id(each)].append(p.grad.norm()))
    for step in range(STEPS):
        x = torch.randn(24, 32)
        loss_of(model(x)).backward()
        with hindcast.enable(async_=False, cuda_graphs=step % 2 == 0):
            loss_of(ours(x)).backward()
    near([p.grad for p in ours.parameters()], [p.grad for p in model.parameters()])
    near(seen[id(ours)], seen[id(model)])
