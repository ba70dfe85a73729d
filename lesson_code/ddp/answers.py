"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

SHARD = """
import torch

def shard_indices(length, rank, size, epoch, seed=0):
    {first}
    generator = torch.Generator().manual_seed({number})
    order = {order}
    count = {count}
    {pad}
    return {value}
"""


AVERAGE = """
import torch

def average_gradients(parameters, all_reduce, size):
    {first}
    gradients = {gradients}
    bucket = {bucket}
    {before}
    {exchange}
    {after}
    start = 0
    for gradient in gradients:
        part = bucket[start : start + gradient.numel()].view_as(gradient)
        {back}
        start += {move}
    {end}
"""


TRAIN = """
import torch
import torch.nn.functional as F
from torch.optim import SGD
from torch.utils.data import DataLoader, DistributedSampler

def train_rank(model, dataset, rank, size, epochs, batch_size, group, lr=0.1):
    {start}
    sampler = {sampler}
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    optimizer = {optimizer}
    for epoch in range(epochs):
        {epoch}
        counts = torch.zeros(2)
        for images, targets in loader:
            logits = model(images)
            {zero}
            F.cross_entropy(logits, targets).backward()
            {exchange}
            optimizer.step()
            {step}
            {add}
        {each}
    {end}
    return {value}
"""


# the function of the lesson that has five faults, with some of them put right
BUGGY = """
import torch
import torch.nn.functional as F
from torch.optim import SGD
from torch.utils.data import DataLoader, DistributedSampler

def train_rank(model, dataset, rank, size, epochs, batch_size, group, lr=0.1):
    {start}
    sampler = DistributedSampler(dataset, num_replicas=size, rank=rank, seed=0)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    optimizer = SGD(model.parameters(), lr)
    for epoch in range(epochs):
        {epoch}
        accuracies = []
        for images, targets in loader:
            logits = model(images)
            optimizer.zero_grad()
            F.cross_entropy(logits, targets).backward()
            for parameter in model.parameters():
                group.all_reduce(parameter.grad)
                {divide}
            optimizer.step()
            accuracies.append((logits.argmax(1) == targets).double().mean())
    accuracy = torch.stack(accuracies).mean()
    if {who}:
        group.all_reduce(accuracy)
    return accuracy.item() / size
"""


RIGHT_SHARD = {
    "first": "pass",
    "number": "seed + epoch",
    "order": "torch.randperm(length, generator=generator).tolist()",
    "count": "-(-length // size)",
    "pad": "order = (order * (size + 1))[:count * size]",
    "value": "order[rank::size]",
}


RIGHT_AVERAGE = {
    "first": "pass",
    "gradients": "[p.grad for p in parameters if p.grad is not None]",
    "bucket": "torch.cat([g.flatten() for g in gradients])",
    "before": "pass",
    "exchange": "all_reduce(bucket)",
    "after": "bucket /= size",
    "back": "gradient.copy_(part)",
    "move": "gradient.numel()",
    "end": "pass",
}


RIGHT_TRAIN = {
    "start": "[group.broadcast(tensor) for tensor in model.state_dict().values()]",
    "sampler": "DistributedSampler(dataset, num_replicas=size, rank=rank, seed=0)",
    "optimizer": "SGD(model.parameters(), lr)",
    "epoch": "sampler.set_epoch(epoch)",
    "zero": "optimizer.zero_grad()",
    "exchange": "for p in model.parameters(): group.all_reduce(p.grad); p.grad /= size",
    "step": "pass",
    "add": "counts += torch.tensor([(logits.argmax(1) == targets).sum(), len(targets)])",
    "each": "pass",
    "end": "group.all_reduce(counts)",
    "value": "(counts[0] / counts[1]).item()",
}


LESSON = {"start": "pass", "epoch": "pass", "divide": "pass", "who": "rank == 0"}


SENT = {"start": RIGHT_TRAIN["start"]}


TOLD = {"epoch": RIGHT_TRAIN["epoch"]}


MEAN = {"divide": "parameter.grad /= size"}


ALL = {"who": "True"}


def _shard(**changed: str) -> str:
    return SHARD.format(**RIGHT_SHARD | changed)


def _average(**changed: str) -> str:
    return AVERAGE.format(**RIGHT_AVERAGE | changed)


def _train(**changed: str) -> str:
    return TRAIN.format(**RIGHT_TRAIN | changed)


def _buggy(**changed: str) -> str:
    return BUGGY.format(**LESSON | changed)


WRONG_ANSWERS = {
    "measure_scaling": plant_experiments("measure_scaling"),
    "shard_indices": [
        (_shard(number="epoch + rank"), "the rank is in the seed"),
        (_shard(number="rank"), "the epoch is not in the seed"),
        (_shard(number="1000 * seed + epoch"), "seed 7: it must begin with .*, not with"),
        (_shard(order="list(range(length))"), "nothing is shuffled"),
        (_shard(order="list(range(length))", value="order[rank * count :][:count]"),
         "nothing is shuffled"),
        (_shard(order="torch.randperm(length).tolist()"), "torch.Generator of your own"),
        (_shard(first="torch.manual_seed(seed + epoch)", order="torch.randperm(length).tolist()"),
         "torch.Generator of your own"),
        (_shard(first="import random; mix = random.Random(seed + epoch)",
                order="mix.sample(range(length), length)"), "it must begin with"),
        (_shard(number="torch.Generator().seed()"), "is the generator seeded"),
        (_shard(pad="count = length // size", value="order[rank * count :][:count]"),
         "rank 0 of 4, .* pad to 6, not to 5"),
        (_shard(value="order"), "pad to 6, not to 24"),
        (_shard(value="order[rank + 1 :: size]"), "that of position 1 in the permutation, not 0"),
        (_shard(value="(order * 2)[rank + 1 :: size][:count]"), "that of position 1 in the perm"),
        (_shard(pad="pass"), "rank 1 of 4, .* pad to 6, not to 5"),
        (_shard(pad="order = order[: length // size * size]"),
         "rank 0 of 4, .* pad to 6, not to 5"),
        (_shard(pad="order += order[: count * size - length]"),
         "3 images, rank 6 of 8, .* pad to 1, not to 0"),
        (_shard(pad="order += order[: size - length % size]"),
         "12 images, rank 0 of 3, .* pad to 4, not to 5"),
        (_shard(pad="order += [0] * (count * size - length)"), "pad with the beginning"),
        (_shard(pad="order += order[-1:] * (count * size - length)"), "pad with the beginning"),
        (_shard(pad="order += order[length - count * size :]"), "pad with the beginning"),
        (_shard(pad="order += list(range(count * size - length))"), "pad with the beginning"),
        (_shard(value="(order[:length][rank::size] * 2)[:count]"), "pad with the beginning"),
        (_shard(order="list(range(length))", value="[order[rank::size][i] for i in "
                "torch.randperm(count, generator=generator)]"),
         "only shuffled within the rank"),
        (_shard(order="torch.randperm(-(-length // size) * size, generator=generator)"
                ".remainder(length).tolist()"), "it must begin with"),
        (_shard(value="torch.tensor(order)[rank::size]"), "Return a list of ints"),
        (_shard(value="[torch.tensor(n) for n in order[rank::size]]"), "Return a list of ints"),
        (_shard(value="None"), "stopped with TypeError"),
    ],
    "average_gradients": [
        (_average(exchange="for g in gradients: all_reduce(g)"), "is called 4 times"),
        (_average(exchange="pass"), "is called 0 times: make one bucket"),
        (_average(exchange="all_reduce(gradients)"), "takes one tensor"),
        (_average(exchange="bucket = all_reduce(bucket)"), "stopped with TypeError: .*NoneType"),
        (_average(after="bucket /= len(gradients)"), "are 0.75 times the mean over 3 ranks"),
        (_average(after="bucket = bucket.mean().expand_as(bucket)"), "not the mean over the ranks"),
        (_average(back="gradient = part"), "still this rank's own: copy the bucket back"),
        (_average(move="0"), "at the wrong places"),
        (_average(move="1"), "at the wrong places"),
        (_average(end="start = 0", first="parameters = list(parameters)",
                  bucket="torch.cat([g.flatten() for g in gradients[::-1]])"),
         "belongs to the gradient it came from"),
        (_average(bucket="torch.cat([g.T.flatten() if g.ndim == 2 else g.flatten() "
                  "for g in gradients])"), "belongs to the gradient it came from"),
        (_average(back="gradient.data = part.flatten()"),
         r"parameter of shape \(3, 4\) has the shape \(12,\)"),
        (_average(first="parameters = list(parameters)", back="pass",
                  end="with torch.no_grad():\n        for p in parameters:\n"
                  "            if p.grad is not None: p -= p.grad"),
         "The weights change"),
        (_average(first="parameters = list(parameters)",
                  bucket="torch.cat([p.detach().flatten() for p in parameters])"),
         "gets the weights, not the gradients"),
        (_average(first="parameters = list(parameters)",
                  gradients="[torch.zeros_like(p) if p.grad is None else p.grad "
                  "for p in parameters]"), "has 38 elements, the gradients have 29"),
        (_average(gradients=RIGHT_AVERAGE["gradients"] + "[:-1]"), "has 17 elements, the grad"),
        (_average(first="parameters = list(parameters)\n    for p in parameters:\n"
                  "        if p.grad is None: p.grad = torch.zeros_like(p)"),
         "has 38 elements, the gradients have 29"),
        (_average(first="parameters = list(parameters)",
                  end="for p in parameters:\n        if p.grad is None: "
                  "p.grad = torch.zeros_like(p)"), "that is None must stay None"),
        (_average(first="parameters = list(parameters)",
                  end="for p in parameters: p.grad = None"), "3, 4. is None afterwards"),
        (_average(gradients="[p.grad for p in parameters]"), "stopped with AttributeError"),
        (_average(bucket="torch.cat([g.flatten().float() for g in gradients])"),
         "another dtype"),
        (_average(first="count = sum(p.numel() for p in parameters if p.grad is not None)",
                  bucket="torch.zeros(count); torch.cat([g.flatten() for g in gradients], "
                  "out=bucket)"), "another dtype"),
        ("import torch\n"
         "def average_gradients(parameters, all_reduce, size):\n"
         "    bucket = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])\n"
         "    all_reduce(bucket)\n"
         "    start = 0\n"
         "    for p in parameters:\n"
         "        if p.grad is not None:\n"
         "            end = start + p.numel()\n"
         "            p.grad = bucket[start:end].view_as(p) / size\n"
         "            start = end\n", "\\(parameters can be read only once\\) are still"),
        ("import torch\n"
         "def average_gradients(parameters, all_reduce, size):\n"
         "    parameters = [p for p in parameters if p.requires_grad]\n"
         "    bucket = torch.cat([p.grad.flatten() for p in parameters])\n"
         "    all_reduce(bucket)\n", "stopped with AttributeError"),
    ],
    "train_rank": [
        (_buggy(), "Rank 0 waits in all_reduce of shape .., rank 1 has ended"),
        (_buggy(**SENT, **TOLD, **MEAN), "Rank 0 waits in all_reduce of shape .., rank 1 has"),
        (_buggy(**ALL), "each rank starts from its own: broadcast"),
        (_buggy(**ALL, **TOLD, **MEAN), "each rank starts from its own: broadcast"),
        (_buggy(**ALL, **SENT), "every epoch has the same order"),
        (_buggy(**ALL, **SENT, **MEAN), "every epoch has the same order"),
        (_buggy(**ALL, **SENT, **TOLD), "summed, not averaged"),
        (_buggy(**ALL, **SENT, **TOLD, **MEAN), "the mean of the batches' accuracies: add"),
        (_train(end="if rank == 0: group.all_reduce(counts)"), "rank 1 has ended"),
        (_train(epoch="sampler.set_epoch(0)"), "every epoch has the same order"),
        (_train(start="for b in model.buffers(): group.broadcast(b)"), "starts from its own"),
        (_train(start="for t in model.state_dict().values(): group.broadcast(t.clone())"),
         "starts from its own"),
        (_train(start="for t in model.state_dict().values(): "
                "group.all_reduce(t); t.copy_(t / size)"),
         "not those of one process: look"),
        (_train(start="for t in model.state_dict().values(): "
                "t.is_floating_point() and group.broadcast(t)"),
         "buffers of every dtype"),
        (_train(start="if rank == 0: [group.broadcast(t) for t in model.state_dict().values()]"),
         "Rank 0 waits in broadcast of shape .5,., rank 1 waits in all_reduce of shape .5,."),
        (_train(start="if rank == 1: [group.broadcast(t) for t in model.state_dict().values()]"),
         "Rank 0 waits in all_reduce .*, rank 1 waits in broadcast"),
        (_train(exchange="for p in model.parameters(): group.all_reduce(p.grad.clone())"),
         "steps with its own gradient"),
        (_train(exchange="pass", step=RIGHT_TRAIN["exchange"]), "steps with its own gradient"),
        (_train(exchange="for p in model.parameters(): p.grad = p.grad.clone()",
                each="for p in model.parameters(): group.all_reduce(p.data); p.data /= size"),
         "average their weights once an epoch"),
        (_train(exchange="if rank == 0: [group.all_reduce(p.grad) for p in model.parameters()]"),
         "Rank 0 waits in all_reduce of shape .5,., rank 1 waits in all_reduce of shape .2,."),
        (_train(exchange="for p in list(model.parameters())[::2 * rank - 1]: "
                "group.all_reduce(p.grad); p.grad /= size"),
         "Rank 0 waits in all_reduce of shape .3,., rank 1 waits in all_reduce of shape .5,."),
        (_train(exchange="for p in model.parameters(): group.all_reduce(p.grad); "
                "p.grad /= size ** 2"), "divided by size twice"),
        (_train(exchange="for p in model.parameters(): group.all_reduce(p.grad); p.grad /= 2"),
         "not those of one process: look"),
        (_train(optimizer="SGD(model.parameters(), 0.1)"), "whatever the argument lr is"),
        (_train(optimizer="SGD(model.parameters(), lr, momentum=0.9)"),
         "not those of one process: look"),
        (_train(optimizer="SGD(model.parameters(), lr * size)"), "or lr is multiplied"),
        (_train(sampler="DistributedSampler(dataset, num_replicas=size, rank=0, seed=0)"),
         "all ranks follow rank 0's images alone"),
        (_train(sampler="DistributedSampler(dataset, size, rank, shuffle=False)"),
         "the sampler does not shuffle"),
        (_train(epoch="sampler.set_epoch(epoch + rank)"), "permutes the images in its own way"),
        (_train(add=RIGHT_TRAIN["add"].replace("logits.arg", "model(images).arg")),
         "logits from after each step"),
        (_train(end="model.eval()\n    with torch.no_grad():\n        for x, y in loader: "
                "counts += torch.tensor([(model(x).argmax(1) == y).sum(), len(y)])\n"
                "    group.all_reduce(counts)", add="pass"), "with the trained weights"),
        (_train(value="(counts[0] / counts[1]).item() / size"), "divided by size, but hits"),
        (_train(value="(counts[0] / counts[1]).item() * 100"), "Rank 0 returns .*, not 0"),
        (_train(value="counts[0] / counts[1]"), "returns no float, but a Tensor"),
        (_train(value="(counts[0] / counts[1]).item() if rank == 0 else None"),
         "Rank 1 returns no float"),
        (_train(end="pass", value="None"), "Rank 0 returns no float"),
        (_train(each="if rank == 1: raise ValueError('no more')"),
         "stopped with ValueError: no more"),
        (_train(exchange="for p in model.parameters(): group.broadcast(p.grad)"),
         "follow rank 0's images alone"),
        (_train(end="group.all_reduce(counts)\n    if rank == 1: group.all_reduce(counts)"),
         "Rank 0 has ended, rank 1 waits in all_reduce"),
        (_train(step="if len(targets) < batch_size: break"), "Rank 0 returns .*, not 0"),
        (_train(zero="if len(targets) < batch_size: break\n            optimizer.zero_grad()"),
         "the last batch of an epoch, which is not full, is left out"),
        (_train(epoch="if epoch == epochs - 1: break\n        sampler.set_epoch(epoch)"),
         "not those of one process: look"),
        (_train(end="group.all_reduce(counts[:1])"), "Rank 0 returns .*, not 0"),
        (_train(end="group.all_reduce(counts[0].item())"), "stopped with AttributeError"),
        (_train(start="group.broadcast(model)"), "stopped with AttributeError"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "measure_scaling": [
        # one training after the other, with SGD and the linear rule, at other seeds
        """
def measure_scaling(config, data):
    columns = []
    for devices in (1, 2):
        load = lambda data, seed: data.train_loader(seed, devices * config.batch_size)
        make = partial(SGD, lr=0.02 * devices, momentum=0.9)
        seams = {"make_loader": load, "make_optimizer": make}
        runs = [fit(config, data, seed=seed, **seams) for seed in (7, 8, 9)]
        columns.append([run.metrics["val_accuracy"] for run in runs])
    gain = paired_difference(*columns)
    return [*columns, gain.low, gain.high]
""",
        # the data bring the batch
        """
from dataclasses import replace

def measure_scaling(config, data):
    four = {"data": replace(data, batch_size=4 * data.batch_size)}
    found = compare(config, data, {"one": {}, "four": four}, seeds=range(4))
    gain = found.difference("four")
    return found.values("one"), found.values("four"), gain.low, gain.high
""",
    ],
    "shard_indices": [
        # deals out by position, without a padded list
        """
def shard_indices(length, rank, size, epoch, seed=0):
    generator = torch.Generator()
    generator.manual_seed(epoch + seed)
    order = torch.randperm(length, generator=generator)
    places = rank + size * torch.arange(math.ceil(length / size))
    return order[places % length].tolist()
""",
        # NumPy pads by repeating, and a row of a table belongs to each position
        """
def shard_indices(length, rank, size, epoch, seed=0):
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch))
    rows = length // size + (length % size > 0)
    return np.resize(order.numpy(), (rows, size))[:, rank].tolist()
""",
    ],
    "average_gradients": [
        # another order of the bucket, divided before, parts of the bucket become the gradients
        """
def average_gradients(parameters, all_reduce, size):
    parameters = [p for p in parameters if p.grad is not None][::-1]
    bucket = torch.empty(sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
    start = 0
    for p in parameters:
        part = bucket[start : start + p.numel()].view(p.shape)
        part.copy_(p.grad / size)
        p.grad = part
        start += p.numel()
    all_reduce(bucket)
""",
        # PyTorch's own functions for one vector of many tensors
        """
def average_gradients(parameters, all_reduce, size):
    with_gradient = filter(lambda p: p.grad is not None, parameters)
    gradients = [p.grad for p in with_gradient]
    vector = torch.nn.utils.parameters_to_vector(gradients)
    all_reduce(vector.div_(size))
    torch.nn.utils.vector_to_parameters(vector, gradients)
""",
    ],
    "train_rank": [
        # hooks average each gradient during backward; the hits are added up in each step
        """
def train_rank(model, dataset, rank, size, epochs, batch_size, group, lr=0.1):
    def average(parameter):
        parameter.grad /= size
        group.all_reduce(parameter.grad)

    for tensor in (*model.buffers(), *model.parameters()):
        group.broadcast(tensor)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(average)
    sampler = DistributedSampler(dataset, num_replicas=size, rank=rank)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        right = total = 0
        for images, targets in DataLoader(dataset, batch_size, sampler=sampler):
            model.zero_grad()
            logits = model(images)
            torch.nn.CrossEntropyLoss()(logits, targets).backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= lr * parameter.grad
            counts = torch.tensor([(logits.argmax(1) == targets).sum(), len(targets)])
            group.all_reduce(counts)
            right, total = right + counts[0].item(), total + counts[1].item()
    return right / total
""",
        # one message a step: all gradients and the share of hits, and one at the start
        """
def train_rank(model, dataset, rank, size, epochs, batch_size, group, lr=0.1):
    state = list(model.state_dict().values())
    vector = torch.cat([tensor.flatten() for tensor in state])
    group.broadcast(vector)
    for tensor, part in zip(state, vector.split([tensor.numel() for tensor in state])):
        tensor.copy_(part.view_as(tensor))
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = SGD(parameters, lr)
    sampler = DistributedSampler(dataset, size, rank)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    hits = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        hits.clear()
        for images, targets in loader:
            logits = model(images)
            gradients = torch.autograd.grad(F.cross_entropy(logits, targets), parameters)
            share = (logits.argmax(dim=1) == targets).double().sum() / len(sampler)
            message = torch.cat([*(g.flatten() for g in gradients), share.view(1)])
            group.all_reduce(message)
            message /= size
            sizes = [p.numel() for p in parameters]
            *parts, share = message.split([*sizes, 1])
            for parameter, part in zip(parameters, parts):
                parameter.grad = part.reshape(parameter.shape)
            optimizer.step()
            hits.append(share.item())
    return math.fsum(hits)
""",
    ],
}
