"""Planted answers of lesson 09: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_experiments

# Parts of the solutions.
RANDPERM = "torch.randperm(length, generator=generator).tolist()"
PADDED = "itertools.islice(itertools.cycle(order), total)"
DEAL = "list(padded)[rank::size]"
GRADIENTS = "[p.grad for p in parameters if p.grad is not None]"
COPY = "gradient.copy_(part.view_as(gradient))"
LISTED = (f"gradients = {GRADIENTS}",
          f"parameters = list(parameters)\n    gradients = {GRADIENTS}")  # fmt: skip
EXCHANGE = "group.all_reduce(parameter.grad)\n                parameter.grad /= size"
COUNT = "counts += torch.tensor([(logits.argmax(1) == targets).sum(), len(targets)])"
TOTAL = "group.all_reduce(counts)"

PAD = "pad with the beginning"
OWN_GENERATOR = "torch.Generator of your own"
RANDPERM_SEED = "is the permutation that of torch.randperm, seeded with seed + epoch?"
OWN = "still this rank's own: copy the bucket back."
PLACES = "at the wrong places: each part of the bucket belongs to the gradient it came from."

# Bugs of the function in the lesson, and a broadcast that an answer leaves out.
UNSENT = ("group.broadcast(tensor)", "pass")
UNTOLD = ("sampler.set_epoch(epoch)", "pass")
UNDIVIDED = ("                parameter.grad /= size\n", "")
OWN_START = "each rank starts from its own: broadcast rank 0's at the start."
SAME_EPOCH = "every epoch has the same order: tell the sampler the epoch."
OWN_GRADIENT = "each rank steps with its own gradient: sum them between backward and step."
NOT_ONE_PROCESS = "not those of one process: look"

WRONG = {
    "measure_scaling": plant_experiments("measure_scaling"),
    "shard_indices": [
        ("seed + epoch", "seed", "the epoch is not in the seed."),
        ("seed + epoch", "epoch", "the argument seed is ignored."),
        ("seed + epoch", "seed + epoch + rank",
         "the rank is in the seed, ranks must draw the same permutation."),
        ("seed + epoch", "1000 * seed + epoch", RANDPERM_SEED),
        ("seed + epoch", "torch.Generator().seed()", "is the generator seeded"),
        (DEAL, "list(padded)[rank * total // size :][: total // size]",
         "a rank takes a block: take every size-th index."),
        (DEAL, "list(padded)[0::size]", "all ranks get the same images: begin at rank."),
        (DEAL, "list(padded)[rank + 1 :: size]",
         "its first index is that of position 1 in the permutation, not 0."),
        (RANDPERM, "list(range(length))", "nothing is shuffled"),
        (PADDED, "list(range(total))[rank::size]", DEAL, "[padded[place] % length for place in "
         "torch.randperm(len(padded), generator=generator)]",
         "only shuffled within the rank"),
        (RANDPERM, "torch.randperm(length).tolist()", OWN_GENERATOR),
        ("generator = torch.Generator()", "torch", "generator=generator", "", OWN_GENERATOR),
        (RANDPERM, "np.random.default_rng(seed + epoch).permutation(length).tolist()",
         RANDPERM_SEED),
        (RANDPERM, "torch.randperm(-(-length // size) * size, generator=generator)"
         ".remainder(length).tolist()", RANDPERM_SEED),
        (PADDED, "order[: length // size * size]", "rank 0 of 4, epoch 3, seed 0: pad to 6, not"),
        (PADDED, "order", "rank 1 of 4, epoch 3, seed 0: pad to 6, not to 5"),
        (DEAL, "list(padded)", "pad to 6, not to 24"),
        (PADDED, "order + order[: total - length]", "rank 6 of 8, epoch 2, seed 1: pad to 1, not"),
        (PADDED, "order + order[: size - length % size]", "pad to 4, not to 5"),
        (PADDED, "order + [0] * (total - length)", PAD),
        (PADDED, "order + order[-1:] * (total - length)", PAD),
        (PADDED, "order + order[length - total :]", PAD),
        (PADDED, "order + list(range(total - length))", PAD),
        (DEAL, "(order[rank::size] * 2)[: total // size]", PAD),
        (DEAL, "torch.tensor(list(padded))[rank::size]", "Return a list of ints"),
        (f"return {DEAL}", "", "stopped with TypeError"),
    ],
    "average_gradients": [
        (COPY, "gradient = part.view_as(gradient)", OWN),
        (f"gradients = {GRADIENTS}", f"parameters, again = list(parameters), parameters\n"
         f"    gradients = {GRADIENTS}", "zip(gradients, parts, strict=True)",
         f"zip({GRADIENTS.replace('parameters', 'again')}, parts)", OWN),
        (COPY, "gradient /= size",
         "this rank's own, divided: the sum is never copied back."),
        ("    bucket /= size\n", "", "summed, not averaged: divide by size."),
        ("/= size", "/= size**2",
         "divided by size twice: before the all-reduce or after it is right."),
        ("gradient.copy_(", "gradient.add_(", "added to this rank's own: replace those."),
        ("bucket /= size", "bucket /= len(gradients)", "are 0.75 times the mean over 3 ranks"),
        ("bucket /= size", "bucket[:] = bucket.mean()", "not the mean over the ranks"),
        ("for gradient in gradients])\n    all", "for gradient in gradients[::-1]])\n    all",
         PLACES),
        ("gradient.flatten()", "(gradient.T if gradient.ndim == 2 else gradient).flatten()",
         PLACES),
        (COPY, COPY.replace("part", "bucket[: gradient.numel()]"), PLACES),
        ("all_reduce(bucket)", "[all_reduce(gradient) for gradient in gradients]",
         "is called 4 times"),
        ("all_reduce(bucket)", "pass", "is called 0 times: make one bucket"),
        ("all_reduce(bucket)", "all_reduce(gradients)", "takes one tensor"),
        ("all_reduce(bucket)", "bucket = all_reduce(bucket)", "stopped with TypeError"),
        (GRADIENTS, "[p.detach() for p in parameters]", "gets the weights, not the gradients"),
        (GRADIENTS, "[torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]",
         "has 38 elements, the gradients have 29"),
        (GRADIENTS, f"{GRADIENTS}[:-1]", "has 17 elements, the gradients have 29"),
        (GRADIENTS, "[p.grad for p in parameters]", "stopped with AttributeError"),
        ("gradient.flatten()", "gradient.flatten().float()", "another dtype"),
        (COPY, "gradient.data = part.flatten()", "shape (3, 4) has the shape (12,)"),
        (*LISTED, COPY, f"{COPY}\n    for p in parameters:\n        p.data -= 1",
         "The weights change"),
        (*LISTED, COPY, f"{COPY}\n    for p in parameters:\n        p.grad = None",
         "(3, 4) is None afterwards"),
        (*LISTED, COPY, f"{COPY}\n    for p in parameters:\n        p.grad = p.new_zeros(p.shape)",
         "that is None must stay None"),
    ],
    "train_rank": [
        (*UNSENT, OWN_START),
        (*UNSENT, *UNTOLD, OWN_START),
        (*UNSENT, *UNDIVIDED, OWN_START),
        (*UNSENT, *UNTOLD, *UNDIVIDED, OWN_START),
        ("model.state_dict().values()", "model.buffers()", OWN_START),
        ("model.state_dict().values()", "model.parameters()",
         "each rank keeps its own buffers: broadcast them too."),
        ("        group.broadcast", "        if tensor.is_floating_point(): group.broadcast",
         "each rank keeps its own integer buffer: broadcast buffers of every dtype."),
        ("group.broadcast(tensor)", "group.all_reduce(tensor); tensor.copy_(tensor / size)",
         NOT_ONE_PROCESS),
        ("        group.broadcast", "        if rank == 0: group.broadcast",
         "Rank 0 waits in broadcast of shape (5,), rank 1 waits in all_reduce of shape (5,)"),
        (*UNTOLD, SAME_EPOCH),
        (*UNTOLD, *UNDIVIDED, SAME_EPOCH),
        ("set_epoch(epoch)", "set_epoch(epoch + 1)",
         "the sampler is told epochs 1, 2, … and not 0, 1, …: begin with 0."),
        ("rank=rank", "rank=0", "all ranks follow rank 0's images alone."),
        ("seed=0", "shuffle=False", "the sampler does not shuffle."),
        ("seed=0", "seed=rank",
         "each rank permutes the images in its own way: seed and epoch are the same on all ranks."),
        ("sampler=sampler", "sampler=sampler, drop_last=True",
         "the last batch of an epoch, which is not full, is left out."),
        ("range(epochs)", "range(epochs - 1)", NOT_ONE_PROCESS),
        (EXCHANGE, "pass", OWN_GRADIENT),
        ("(parameter.grad)", "(parameter.grad.clone())", OWN_GRADIENT),
        (EXCHANGE, "parameter.grad = parameter.grad.clone()", COUNT, f"{COUNT}\n        for weight "
         "in model.parameters():\n            group.all_reduce(weight.data)\n            "
         "weight.data /= size", "the ranks average their weights once an epoch: average the "
         "gradients of each step."),
        ("            optimizer.zero_grad()\n", "",
         "gradients of earlier steps still count: zero_grad is missing."),
        (*UNDIVIDED, "the steps are size times too long: gradients are summed, not averaged, or lr "
         "is multiplied."),
        ("/= size", "/= size**2", "gradients are divided by size twice."),
        ("/= size", "/= 2", NOT_ONE_PROCESS),
        ("SGD(model.parameters(), lr)", "SGD(model.parameters(), 0.1)",
         "the learning rate is 0.1, whatever the argument lr is."),
        ("SGD(model.parameters(), lr)", "SGD(model.parameters(), lr, momentum=0.9)",
         NOT_ONE_PROCESS),
        (EXCHANGE, f"if rank == 0: {EXCHANGE.replace(chr(10), '; ')}",
         "Rank 0 waits in all_reduce of shape (5,), rank 1 waits in all_reduce of shape (2,)"),
        ("in model.parameters()", "in list(model.parameters())[:: 2 * rank - 1]",
         "Rank 0 waits in all_reduce of shape (3,), rank 1 waits in all_reduce of shape (5,)"),
        (COUNT, "counts += torch.stack([(logits.argmax(1) == targets).float().mean(), "
         "torch.tensor(1)])", "the mean of the batches' accuracies: add the counts."),
        (TOTAL, "pass", "the accuracy of its own images."),
        ("counts = torch.zeros(2)", "counts = counts if epoch else torch.zeros(2)",
         "the accuracy of all epochs."),
        ("counts[1]", "len(dataset)", "hits / images of the data set, but the sampler pads."),
        ("logits.argmax", "model(images).argmax",
         "counted with logits from after each step, not with those of the step."),
        (TOTAL, f"counts = torch.zeros(2)\n    for images, targets in DataLoader(dataset, "
         f"batch_size, sampler=sampler):\n        logits = model(images)\n        {COUNT}\n"
         f"    {TOTAL}",
         "counted with the trained weights, not with the logits of the training steps."),
        (".item()", ".item() / size",
         "divided by size, but hits and images are summed over the ranks alike."),
        (".item()", ".item() * 100", "Rank 0 returns"),
        (TOTAL, "group.all_reduce(counts[:1])", "Rank 0 returns"),
        (COUNT, f"if len(targets) == batch_size: {COUNT}", "Rank 0 returns"),
        (".item()", "", "returns no float, but a Tensor"),
        (".item()", ".item() if rank == 0 else None", "Rank 1 returns no float"),
        (TOTAL, f"if rank == 0: {TOTAL}", "Rank 0 waits in all_reduce of shape (2,), rank 1 has"),
        (TOTAL, f"{TOTAL}\n    if rank == 1: {TOTAL}", "Rank 0 has ended, rank 1"),
        (TOTAL, "assert rank == 0", "stopped with AssertionError"),
        (TOTAL, "group.all_reduce(counts[0].item())", "stopped with AttributeError"),
    ],
}  # fmt: skip

RIGHT = {
    "measure_scaling": [
        ("partial(AdamW, lr=config.peak_lr)", "partial(SGD, lr=0.02, momentum=0.9)",
         "partial(AdamW, lr=2 * config.peak_lr)", "partial(SGD, lr=0.08, momentum=0.9)",
         "seeds=(0, 1, 2)", "seeds=(7, 8, 9, 10)"),
        """
def measure_scaling(config, data):
    columns = []
    for devices in (1, 2):
        load = lambda data, seed: data.train_loader(seed, devices * config.batch_size)
        runs = [fit(config, data, seed=seed, make_loader=load) for seed in (7, 8, 9)]
        columns.append([run.metrics["val_accuracy"] for run in runs])
    gain = paired_difference(*columns)
    return [*columns, gain.low, gain.high]
""",
    ],
    "shard_indices": [
        # dealt out by position, without a padded list
        (f"padded = {PADDED}", "places = range(rank, total, size)",
         DEAL, "[order[place % length] for place in places]"),
        # a row of a table belongs to each position
        (f"padded = {PADDED}", "rows = np.resize(order, (total // size, size))",
         DEAL, "rows[:, rank].tolist()"),
    ],
    "average_gradients": [
        # another order of the bucket, divided before, parts of the bucket become the gradients
        """
def average_gradients(parameters, all_reduce, size):
    parameters = [p for p in parameters if p.grad is not None][::-1]
    bucket = torch.cat([p.grad.flatten() / size for p in parameters])
    start = 0
    for p in parameters:
        p.grad = bucket[start : start + p.numel()].view(p.shape)
        start += p.numel()
    all_reduce(bucket)
""",
        """
def average_gradients(parameters, all_reduce, size):
    gradients = [p.grad for p in parameters if p.grad is not None]
    vector = torch.nn.utils.parameters_to_vector(gradients)
    all_reduce(vector.div_(size))
    torch.nn.utils.vector_to_parameters(vector, gradients)
""",
    ],
    "train_rank": [
        # hooks average each gradient during backward; the hits are added up in each step
        (EXCHANGE, "parameter.data -= lr * parameter.grad", "            optimizer.step()\n", "",
         "    optimizer = SGD(model.parameters(), lr)", """
    def average(parameter):
        parameter.grad /= size
        group.all_reduce(parameter.grad)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(average)""",
         "optimizer.zero_grad", "model.zero_grad", f"    {TOTAL}\n", "", COUNT,
         f"step = {COUNT[10:]}\n            group.all_reduce(step)\n            counts += step"),
        # one message a step, with all gradients and the share of hits; and one at the start
        """
def train_rank(model, dataset, rank, size, epochs, batch_size, group, lr=0.1):
    state = list(model.state_dict().values())
    vector = torch.cat([tensor.flatten() for tensor in state])
    group.broadcast(vector)
    for tensor, part in zip(state, vector.split([tensor.numel() for tensor in state])):
        tensor.copy_(part.view_as(tensor))
    parameters = list(model.parameters())
    sampler = DistributedSampler(dataset, size, rank)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        hits = 0.0
        for images, targets in DataLoader(dataset, batch_size, sampler=sampler):
            logits = model(images)
            gradients = torch.autograd.grad(F.cross_entropy(logits, targets), parameters)
            share = (logits.argmax(dim=1) == targets).double().sum() / len(sampler)
            message = torch.cat([*(g.flatten() for g in gradients), share.view(1)]) / size
            group.all_reduce(message)
            *parts, share = message.split([*(p.numel() for p in parameters), 1])
            for parameter, part in zip(parameters, parts):
                parameter.data -= lr * part.view_as(parameter)
            hits += share.item()
    return hits
""",
    ],
}  # fmt: skip
