"""The steps of rows train_step/... and second/... by JAX: the loss, its gradients, clipping and Adam under one jit."""

import math

import jax
import jax.numpy as jnp

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


def linear(x, layer):
    weight, bias = layer
    return x @ weight.T + bias


def layers_of(leaves):
    return list(zip(leaves[::2], leaves[1::2]))


def of_wanted(log_probs, index):
    return jnp.take_along_axis(log_probs, index[:, None], 1)[:, 0]


def mlp(leaves, x, target):
    for i, layer in enumerate(layers_of(leaves)):
        x = linear(x if i == 0 else jax.nn.relu(x), layer)
    return -of_wanted(jax.nn.log_softmax(x), target).mean()


def with_tanh(leaves, x):
    for i, layer in enumerate(layers_of(leaves)):
        x = linear(x if i == 0 else jnp.tanh(x), layer)
    return x


def ppo(leaves, seen, action, old_log_prob, advantage):
    log_probs = jax.nn.log_softmax(with_tanh(leaves, seen))
    ratio = jnp.exp(of_wanted(log_probs, action) - old_log_prob)
    surrogate = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(1)
    return -(surrogate + 0.01 * entropy).mean()


def lstm(leaves, x, target):
    of_input, of_state = layers_of(leaves)

    def cell(carried, x):
        state, memory = carried
        forget, write, fresh, show = jnp.split(linear(x, of_input) + linear(state, of_state), 4, 1)
        memory = jax.nn.sigmoid(forget) * memory + jax.nn.sigmoid(write) * jnp.tanh(fresh)
        state = jax.nn.sigmoid(show) * jnp.tanh(memory)
        return (state, memory), state

    nothing = jnp.zeros((x.shape[0], x.shape[2]))
    _, states = jax.lax.scan(cell, (nothing, nothing), x.swapaxes(0, 1))
    return ((states.swapaxes(0, 1) - target) ** 2).mean()


def pinn(leaves, points, wanted):
    def laplacian(point):
        slope = jax.grad(lambda x: with_tanh(leaves, x)[0])
        axes = jnp.eye(point.shape[0])
        return sum(jax.jvp(slope, (point,), (axis,))[1] @ axis for axis in axes)

    return ((jax.vmap(laplacian)(points) - wanted) ** 2).mean()


def gradient_penalty(leaves, real, made, share):
    def critic(x):
        for i, layer in enumerate(layers_of(leaves)):
            x = linear(x if i == 0 else jax.nn.silu(x), layer)
        return x

    slope = jax.grad(lambda x: critic(x).sum())(share * real + (1 - share) * made)
    return (critic(made) - critic(real)).mean() + 10 * ((jnp.linalg.norm(slope, axis=1) - 1) ** 2).mean()


def maml(leaves, x, wanted, steps=3, rate=0.1):
    def loss(weights):
        return ((with_tanh(weights, x) - wanted) ** 2).mean()

    weights = leaves
    for _ in range(steps):
        weights = [weight - rate * slope for weight, slope in zip(weights, jax.grad(loss)(weights))]
    return loss(weights)


def schnet(leaves, positions, kind, to, of, centers, energies, forces, blocks=3):
    kinds, *layers = leaves[0], *layers_of(leaves[1:])
    filter_nets, updates = layers[:2 * blocks], layers[2 * blocks:4 * blocks]
    readout = layers[4 * blocks:]
    molecules, atoms = len(energies), len(kind) // len(energies)

    def energy_of(positions):
        apart = positions[to] - positions[of]
        distance = jnp.sqrt((apart * apart).sum(1) + 1e-6)
        near = jnp.exp(-2 * (distance[:, None] - centers) ** 2)
        x = kinds[kind]
        for i in range(0, 2 * blocks, 2):
            weights = linear(jax.nn.softplus(linear(near, filter_nets[i])), filter_nets[i + 1])
            messages = linear(x, updates[i])[of] * weights / atoms
            x = x + jax.nn.softplus(linear(jnp.zeros_like(x).at[to].add(messages), updates[i + 1]))
        energy = linear(jax.nn.softplus(linear(x, readout[0])), readout[1]).reshape(molecules, atoms).mean(1)
        return energy.sum(), energy

    slope, energy = jax.grad(energy_of, has_aux=True)(positions)
    return ((energy - energies) ** 2).mean() + ((-slope - forces) ** 2).mean()


LOSSES = {"mlp": mlp, "ppo": ppo, "lstm": lstm, "pinn": pinn, "gradient_penalty": gradient_penalty, "maml": maml,
          "schnet": schnet}  # by the second part of a row's name


def first_state(leaves):
    """Parameters, Adam's two moments, and the number of steps."""
    return leaves, [jnp.zeros_like(leaf) for leaf in leaves], [jnp.zeros_like(leaf) for leaf in leaves], jnp.float32(0)


def behind(steps, beta):
    """1 - beta**steps, which in float32 would lose four digits of the first steps."""
    return -jnp.expm1(steps * math.log(beta))


def compiled(loss_of, max_norm):
    """(state, rate, data...) -> (state, loss); the old state's memory is the new one's."""

    def step(state, rate, *data):
        leaves, means, squares, steps = state
        loss, gradients = jax.value_and_grad(loss_of)(leaves, *data)
        norm = jnp.sqrt(sum(jnp.vdot(gradient, gradient) for gradient in gradients))
        scale = jnp.minimum(1.0, max_norm / (norm + 1e-6))
        gradients = [gradient * scale for gradient in gradients]
        steps = steps + 1
        means = [BETA1 * mean + (1 - BETA1) * gradient for mean, gradient in zip(means, gradients)]
        squares = [BETA2 * square + (1 - BETA2) * gradient * gradient for square, gradient in zip(squares, gradients)]
        step_size, correction = rate / behind(steps, BETA1), 1 / jnp.sqrt(behind(steps, BETA2))
        leaves = [leaf - step_size * mean / (jnp.sqrt(square) * correction + EPSILON)
                  for leaf, mean, square in zip(leaves, means, squares)]
        return (leaves, means, squares, steps), loss

    return jax.jit(step, donate_argnums=0)


class JaxLane:
    def __init__(self, name, row, blocked):
        self.first_values = [leaf.detach().numpy() for leaf in row.leaves]
        self.data = [jnp.asarray(constant.numpy()) for constant in row.constants]
        self.step = compiled(LOSSES[name.split("/")[1]], row.max_norm)
        self.blocked = blocked
        self.start_anew()

    def start_anew(self):
        self.state = first_state([jnp.array(values) for values in self.first_values])

    def run(self, rate, steps):
        """The last loss, when all steps are done. Blocked: waits for each, like a program that reads the loss."""
        for _ in range(steps):
            self.state, loss = self.step(self.state, rate, *self.data)
            if self.blocked:
                loss.block_until_ready()
        jax.block_until_ready(self.state)
        return loss
