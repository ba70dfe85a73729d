"""Distributed data parallel: a process for each part of the data."""

import copy
import multiprocessing
import os
import socket
from datetime import timedelta
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

NOT_COMBINED = "it trains in several processes, a combination in one"


LIMIT_S = 20  # a guard against a hang, not a measurement


def make_images(count=90):
    """Examples of three classes that are not learned at once; 90 leave a shorter last batch."""
    generator = torch.Generator().manual_seed(5)
    images = torch.randn(count, 6, generator=generator)
    return TensorDataset(images, images[:, ::2].argmax(dim=1))


def end_group():
    """The card's own group of one process, or none."""
    if dist.is_initialized():
        dist.destroy_process_group()


def run_rank(rank, port, card, results):
    """One of two processes that train by the card's function; it sends what it ends with."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", timeout=timedelta(seconds=LIMIT_S))
    torch.manual_seed(rank)  # other weights on each rank: rank 0's count
    model, normalised = nn.Linear(6, 3), nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
    options = {"epochs": 3, "global_batch": 16, "lr": 0.05, "seed": 4}
    card["train"](normalised, make_images(), make_images(37), "cpu", **options)
    accuracy = card["train"](model, make_images(), make_images(37), "cpu", **options)
    statistics = normalised[0].running_mean.tolist()
    results.put((rank, accuracy, model.weight.tolist(), torch.initial_seed(), statistics))
    results.close()
    results.join_thread()
    os._exit(0)  # gloo aborts now and then in its own end


def train_on_two_ranks(card):
    """What each of two forked processes ends with, in the order of the ranks."""
    end_group()  # the card's own of one process: a fork does not inherit its threads
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [context.Process(target=run_rank, args=(r, port, card, results)) for r in range(2)]
    try:
        for process in ranks:
            process.start()
        found = [results.get(timeout=2 * LIMIT_S) for _ in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.join()
    return sorted(found)


def train_whole_batches():
    """The same training in one process: its model, and the accuracy on other images."""
    torch.manual_seed(0)
    model, dataset = nn.Linear(6, 3), make_images()
    optimizer = SGD(model.parameters(), 0.05, momentum=0.9)
    for epoch in range(3):
        shards = [DistributedSampler(dataset, 2, rank, seed=4) for rank in range(2)]
        for shard in shards:
            shard.set_epoch(epoch)
        loaders = [DataLoader(dataset, 8, sampler=shard, drop_last=True) for shard in shards]
        for batches in zip(*loaders, strict=True):
            images, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
            optimizer.zero_grad()
            F.cross_entropy(model(images), targets).backward()
            optimizer.step()
    images, targets = make_images(37).tensors
    return model, (model(images).argmax(dim=1) == targets).double().mean().item()


def check_pytorch_card(card):
    """Two processes end with the weights and the accuracy of one that sees the whole batches."""
    found = train_on_two_ranks(card)
    expected, accuracy = train_whole_batches()
    for _, share, weights, _, _ in found:
        torch.testing.assert_close(torch.tensor(weights), expected.weight.data)
        assert abs(share - accuracy) < 1e-6, "counts of all ranks, without padding"
    assert found[0][3] != found[1][3], "each rank draws numbers of its own"
    assert found[0][4] == found[1][4], "all ranks validate with rank 0's statistics"
    saved = torch.load("model.pt")
    torch.testing.assert_close(saved["weight"], expected.weight.data)


def check_lightning_card(card):
    """Its step has the plain loss, its accuracy is counted, and its ranks draw other numbers."""
    model = nn.Linear(6, 3)
    lit = card["LitShared"](copy.deepcopy(model), 3, lr=0.25)
    images, targets = make_images().tensors
    torch.testing.assert_close(
        lit.training_step((images, targets), 0), F.cross_entropy(model(images), targets)
    )
    logged = {}
    lit.log = logged.__setitem__
    for part in (slice(0, 80), slice(80, 90)):  # counts, not a mean of means
        lit.validation_step((images[part], targets[part]), 0)
    expected = (model(images).argmax(dim=1) == targets).float().mean()
    torch.testing.assert_close(logged["val_accuracy"].compute(), expected)
    (group,) = lit.configure_optimizers().param_groups
    assert (group["lr"], group["momentum"]) == (0.25, 0.9)
    seeds = []
    for rank in range(2):
        with mock.patch.object(card["LitShared"], "global_rank", rank):
            lit.on_fit_start()
        seeds.append(torch.initial_seed())
    assert seeds[0] != seeds[1]
    assert card["trainer"].world_size == 1
    assert card["trainer"].global_step == 6, "two epochs of three batches"
