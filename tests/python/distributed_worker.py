"""One of two processes that train together. Arguments: rank, and a file to meet at; prints JSON."""

import contextlib
import json
import os
import sys

import hindcast
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

DDP_SETTINGS = {
    "plain": {},
    "static_graph": {"static_graph": True},
    "find_unused_parameters": {"find_unused_parameters": True},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    "no_sync": {},
}
SMALL_BUCKETS = 1e-4  # MB: a bucket for each layer


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(2, 2)

    def forward(self, x, use_third=True):
        y = self.second(self.first(x).tanh())
        return self.third(y) if use_third else y


def train_ddp(setting, rank):
    """The parameters after four steps on this rank's own data."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Net(), bucket_cap_mb=SMALL_BUCKETS, **DDP_SETTINGS[setting])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + rank)
    for step in range(4):
        accumulate = setting == "no_sync" and step % 2 == 0
        with model.no_sync() if accumulate else contextlib.nullcontext():
            model(torch.randn(3, 4), setting != "find_unused_parameters").square().sum().backward()
        if not accumulate:
            optimizer.step()
            optimizer.zero_grad()
    return [p.tolist() for p in model.parameters()]


def train_fsdp(setting, rank):
    """The whole parameters after four steps; each rank holds half of them."""
    torch.manual_seed(0)
    model = Net()
    mesh = dist.init_device_mesh("cpu", (2,))
    for layer in (*model.children(), model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + rank)
    for _ in range(4):
        model(torch.randn(3, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.full_tensor().tolist() for p in model.parameters()]


def order_of_events():
    """When the buckets' all-reduces start, and when the first layer's backward ends, in the last of three steps."""
    torch.manual_seed(0)
    net = Net()
    model = DistributedDataParallel(net, bucket_cap_mb=SMALL_BUCKETS)

    def all_reduce(state, bucket):
        events.append("all-reduce")
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0] / 2)

    model.register_comm_hook(None, all_reduce)
    for _ in range(3):
        events = []
        x = torch.ones(3, 4, requires_grad=True)
        x.register_hook(lambda grad: events.append("first layer"))
        model(x).square().sum().backward()
    return events


def main():
    rank = int(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
    results = {}
    for setting in (*DDP_SETTINGS, "fsdp"):
        train = train_fsdp if setting == "fsdp" else train_ddp
        stock = train(setting, rank)
        hindcast.reset()
        with hindcast.enable("eager"):
            results[setting] = {"stock": stock, "hindcast": train(setting, rank), "hits": hindcast.stats()["hits"]}
    hindcast.reset()
    with hindcast.enable("eager"):
        results["order"] = {"events": order_of_events(), "hits": hindcast.stats()["hits"]}
    print(json.dumps(results), flush=True)
    dist.destroy_process_group()
    # Gloo's threads outlive their group. If one frees a Python tensor or function at interpreter exit, PyTorch aborts, even without
    # hindcast: "terminate called without an active exception". test_processes.py tests how processes with hindcast end.
    os._exit(0)


if __name__ == "__main__":
    main()
