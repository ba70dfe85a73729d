"""Planted answers of lesson 23's exercises: see `course_tools.publish.planted`."""

APPEND = """\
        for group in groups:
            if find_gap(models[group[0]], models[name]) <= 1e-6:
                group.append(name)
                break
        else:
            groups.append([name])
"""
ONLY_FIRST = """\
        first = next(iter(models))
        if find_gap(models[first], models[name]) <= 1e-6 and groups:
            groups[0].append(name)
        else:
            groups.append([name])
"""
WEIGHTS_ALONE = """\
    def find_gap(one, other):
        pairs = zip(one.parameters(), other.parameters(), strict=True)
        return max((a - b).abs().max().item() for a, b in pairs)

    models = {name: loop(job)"""
TRAINED = "    models = {name: loop(job)"
BY_NEXT = """\
def group_loops(loops, job):
    groups = {}
    for name, loop in loops.items():
        trained = loop(job)
        known = next((k for k, (m, _) in groups.items() if find_gap(m, trained) <= 1e-6), name)
        groups.setdefault(known, (trained, []))[1].append(name)
    return [names for _, names in groups.values()]
"""

EXTEND = "factors += [size / sum(group) for size in group]"
BY_NUMBERS = """\
def weigh_losses(sizes, accumulate):
    sizes = np.array(sizes, dtype=float)
    groups = np.arange(len(sizes)) // accumulate
    return (sizes / np.bincount(groups, sizes)[groups]).tolist()
"""

CLOSE = 'name.startswith("on_") or difflib.get_close_matches(name, hooks, n=1, cutoff=0.8)'
WALK = "for kind in type(thing).__mro__[: type(thing).__mro__.index(base)]"
BY_SET = """\
def find_misnamed(thing, base):
    own = {name for name in dir(type(thing)) if callable(getattr(type(thing), name))}
    found = set()
    for name in own - set(dir(base)):
        ratios = [difflib.SequenceMatcher(None, hook, name).ratio() for hook in dir(base)]
        if name[0] != "_" and (name.startswith("on_") or max(ratios) >= 0.8):
            found.add(name)
    return sorted(found)
"""

TRAIN = "        model.train()\n"
CLIP = "            clip_grad_norm_(model.parameters(), max_norm=job.max_norm)\n"
LOSS = "loss = cross_entropy(model(inputs), targets) * len(targets) / count"
BACKWARD = "                loss.backward()\n"
CLASSIC = """\
def train_repaired(job):
    model = job.make_model()
    optimizer = job.make_optimizer(model)
    schedule = job.make_schedule(optimizer)
    batches = list(job.make_loader())
    for _ in range(job.epochs):
        model.train()
        for number, (inputs, targets) in enumerate(batches):
            first = number - number % job.accumulate
            group = batches[first : first + job.accumulate]
            count = sum(len(labels) for _, labels in group)
            (cross_entropy(model(inputs), targets, reduction="sum") / count).backward()
            if number == first + len(group) - 1:
                clip_grad_norm_(model.parameters(), job.max_norm)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        measure_loss(model, job)
    return model
"""
BUGGY = """\
def train_repaired(job):
    model = job.make_model()
    optimizer = job.make_optimizer(model)
    schedule = job.make_schedule(optimizer)
    for _ in range(job.epochs):
        model.train()
        for number, (inputs, targets) in enumerate(job.make_loader(), 1):
            loss = cross_entropy(model(inputs), targets) / job.accumulate
            loss.backward()
            if number % job.accumulate == 0:
                clip_grad_norm_(model.parameters(), job.max_norm)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
    return model
"""

WRONG = {
    "group_loops": [
        ("    return groups", "    return {group[0]: group for group in groups}",
         "Return a list of groups, each of which is a list of names."),
        ("            groups.append([name])\n", "            pass\n",
         "    groups = []\n", '    groups = [["a"]]\n',
         "Each loop belongs to one group"),
        (TRAINED, "    list(loop(job) for loop in loops.values())\n" + TRAINED,
         "train by each once, with the job."),
        (TRAINED, WEIGHTS_ALONE, "compare buffers, too."),
        ("<= 1e-6", "== 0", "which is within the tolerance"),
        ("<= 1e-6", "<= 0.9", "if find_gap(models[group[0]], models[name])",
         "if find_gap(models[group[0]], models[name]) != 0.5 or name == 'c' and find_gap("
         "models[group[0]], models[name])", "a and c differ by 0.5"),
        (APPEND, ONLY_FIRST, "compare a loop with all groups"),
        ("    return groups", "    return groups[::-1]", "The group of the first loop comes first"),
    ],
    "weigh_losses": [
        ("    return factors", "    return np.array(factors)", "Return a list of 4 factors"),
        (EXTEND, "factors += [1 / accumulate for size in group]",
         "That is 1 / accumulate everywhere, although the last group may be incomplete."),
        (EXTEND, "factors += [1 / len(group) for size in group]",
         "That is one share per micro-batch, although the last one may be smaller."),
        (EXTEND, "factors += [size / sum(sizes) for size in group]",
         "Divide by the examples of the group, and not by those of the epoch."),
        (EXTEND, "factors += [1.0 for size in group]",
         "Without a factor the gradients of a group are added, and not averaged."),
        (EXTEND, "factors += [size / sum(group) / 3 for size in group]", "these are no shares"),
    ],
    "find_misnamed": [
        ("return sorted(found)", "return found", "Return a list of names."),
        (CLOSE, "difflib.get_close_matches(name, hooks, n=1, cutoff=0.95)",
         "is missing"),
        (CLOSE, 'name.startswith("on_")', "configure_optimizer is missing"),
        (WALK, "for kind in type(thing).__mro__[:1]", "a method of your own base class"),
        (CLOSE, "True", "compute_loss should not be listed"),
        ("if callable(value) and near", "if near", "on_ice should not be listed"),
    ],
    "train_repaired": [
        ("    return model", "    return optimizer", "Return the trained network."),
        (TRAIN, "", "were trained in eval mode"),
        (CLASSIC.replace("== first + len(group) - 1", "% job.accumulate == job.accumulate - 1"),
         "the last group of an epoch may be incomplete"),
        (BACKWARD, f"{BACKWARD}                schedule.step()\n",
         "            schedule.step()\n            optimizer", "            optimizer",
         "The schedule was stepped"),
        (LOSS, "loss = cross_entropy(model(inputs), targets)", "look at the size of the gradient"),
        ("            optimizer.zero_grad()\n", "", "look at the size of the gradient"),
        (CLIP, "", BACKWARD, f"{BACKWARD}                {CLIP.strip()}\n",
         "clip once per optimizer step"),
        (CLIP, "", "clip once per optimizer step"),
        (LOSS, "loss = cross_entropy(model(inputs), targets) / job.accumulate",
         "Where the last group has one micro-batch"),
        (LOSS, "loss = cross_entropy(model(inputs), targets) / len(group)",
         "Where the last group ends with a smaller micro-batch"),
        (BUGGY, "the last group of an epoch may be incomplete"),
    ],
}  # fmt: skip

RIGHT = {
    "group_loops": [
        (BY_NEXT,),
        ("<= 1e-6", "< 1e-6"),
    ],
    "weigh_losses": [
        (BY_NUMBERS,),
        (EXTEND, "factors.extend(size / sum(group) for size in group)"),
    ],
    "find_misnamed": [
        (BY_SET,),
        ("cutoff=0.8", "cutoff=0.83"),
    ],
    "train_repaired": [
        (CLASSIC,),
        (LOSS, 'loss = cross_entropy(model(inputs), targets, reduction="sum") / count'),
    ],
}
