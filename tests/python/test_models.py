"""Models of torchvision and transformers, tiny, with random weights from their configs, trained for a few steps."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: nothing here needs the network

import hindcast
import pytest
import torch
import torchvision
import transformers
from side_by_side import assert_same

STEPS = 5
BATCH, LENGTH, WORDS, CLASSES = 4, 12, 64, 4

text = {"vocab_size": WORDS, "num_labels": CLASSES}


def images(size):
    return torch.randn(BATCH, 3, size, size)


def words():
    return torch.randint(WORDS, (BATCH, LENGTH))


def classes():
    return torch.randint(CLASSES, (BATCH,))


def scored(scores, target):
    return torch.nn.functional.cross_entropy(scores, target)


def resnet18():
    model, x, y = torchvision.models.resnet18(num_classes=CLASSES), images(32), classes()
    return model, lambda to: scored(model(to(x)), y)


def vit():
    model = torchvision.models.VisionTransformer(
        image_size=16, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, dropout=0.1, num_classes=CLASSES
    )
    torch.nn.init.normal_(model.heads.head.weight, std=0.1)  # initially zeros, which would block gradients
    x, y = images(16), classes()
    return model, lambda to: scored(model(to(x)), y)


def gpt2():
    config = transformers.GPT2Config(n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0, **text)
    model, x = transformers.GPT2LMHeadModel(config), words()
    return model, lambda to: model(input_ids=x, labels=x).loss


def bert():
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=LENGTH, **text
    )
    model, x, y = transformers.BertForSequenceClassification(config), words(), classes()
    mask = torch.ones_like(x)
    mask[1, LENGTH // 2 :] = 0
    return model, lambda to: model(input_ids=x, attention_mask=mask, labels=y).loss


def t5():
    config = transformers.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0, **text)
    model, x = transformers.T5ForConditionalGeneration(config), words()
    return model, lambda to: model(input_ids=x, labels=x[:, :7].contiguous()).loss


MODELS = {make.__name__: make for make in (resnet18, vit, gpt2, bert, t5)}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}


def made(name, dtype=torch.float32):
    """A model and its loss, with the same weights, data and dropout for each `dtype`."""
    torch.manual_seed(0)
    model, loss_of = MODELS[name]()
    model.train().to(dtype)
    torch.manual_seed(1)
    return model, lambda: loss_of(lambda x: x.to(dtype))


def train(name, optimizer, dtype=torch.float32):
    """The losses of all steps, and the parameters after the last."""
    model, loss = made(name, dtype)
    stepper = OPTIMIZERS[optimizer](model.parameters())
    losses = []
    for _ in range(STEPS):
        stepper.zero_grad()
        result = loss()
        result.backward()
        stepper.step()
        losses.append(result.item())
    return losses, [parameter.detach() for parameter in model.parameters()]


def gradient(name, dtype=torch.float32, times=1):
    """The gradients as one vector, from the last of `times` equal backwards."""
    model, loss = made(name, dtype)
    for _ in range(times):
        torch.manual_seed(1)
        model.zero_grad()
        loss().backward()
    return torch.cat([parameter.grad.flatten().double() for parameter in model.parameters()])


def assert_replayed(steps, fused_graphs=0):
    stats = hindcast.stats()
    assert stats["hits"] == steps - 1 and stats["misses"] == 1, hindcast.report()
    assert stats["fallbacks"] == 0 and not stats["opaque_nodes"], hindcast.report()
    assert stats["fused_graphs"] == fused_graphs, hindcast.report()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_losses_and_parameters_are_equal_to_the_bit(name, optimizer):
    expected = train(name, optimizer)
    with hindcast.enable("eager"):
        assert_same(train(name, optimizer), expected)
    assert_replayed(STEPS)
    assert len(set(expected[0])) == STEPS, "nothing was learned"


@pytest.mark.parametrize("name", MODELS)
def test_kernels_round_less_than_float32_does(name):
    """float64 shows how much stock's own gradient is rounded: 2e-7 to 5e-6 of it here. If a ReLU's input is zero up to rounding, as in
    ResNet, it is much more; both engines share the forward, so that does not count between them."""
    stock = gradient(name)
    rounding = (stock - gradient(name, torch.float64)).norm()
    with hindcast.enable("fused", async_=False):
        difference = (gradient(name, times=3) - stock).norm()
    assert_replayed(3, fused_graphs=1)
    assert difference <= 2 * rounding  # each of the two engines rounds
    assert difference <= 5e-6 * stock.norm()


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_close_with_kernels(name):
    """As close as float32's are to float64's. Not with AdamW: it divides a gradient by its own size, and so makes whole steps of mere
    rounding, as in the gradient of a bias of keys, with either engine."""
    stock, _ = train(name, "sgd")
    exact, _ = train(name, "sgd", torch.float64)
    with hindcast.enable("fused", async_=False):
        losses, _ = train(name, "sgd")
    assert_replayed(STEPS, fused_graphs=1)
    assert losses == pytest.approx(stock, rel=1e-6, abs=max(map(abs, map(float.__sub__, stock, exact))))
