"""Find the bug: planted answers of the lesson's exercises."""

SCHEDULE = """
def repair_schedule(model, batches, epochs, peak_lr):
    optimizer = SGD(model.parameters(), lr=peak_lr)
    total_steps = {total}
    schedule = warmup_cosine(optimizer, total_steps, warmup_steps={warmup})
    losses = []
    for _ in range(epochs):
        for points, targets in batches:
            {zero}
            loss = F.cross_entropy(model(points), targets)
            loss.backward()
            {steps}
            losses.append({loss})
        {epoch}
    return {result}
"""


RIGHT_SCHEDULE = {
    "total": "epochs * len(batches)",
    "warmup": "total_steps // 10",
    "zero": "optimizer.zero_grad()",
    "steps": "optimizer.step(); schedule.step()",
    "loss": "loss.item()",
    "epoch": "pass",
    "result": "losses",
}


ACCURACY = """
def repair_accuracy(model, loader):
    {mode}
    hits, count = 0, 0
    with torch.no_grad():
        for points, targets in loader:
            hits += (model(points).argmax(dim=1) == targets).sum().item()
            count += len(targets)
    return {result}
"""


RIGHT_ACCURACY = {
    "mode": "model.eval()",
    "result": "hits / count",
}


PROBABILITIES = """
def repair_probabilities(network, points, targets, steps, lr):
    model = {model}
    optimizer = SGD(network.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = {loss}
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return losses, {probabilities}
"""


RIGHT_PROBABILITIES = {
    "model": "network",
    "loss": "F.cross_entropy(model(points), targets)",
    "probabilities": "model(points).softmax(dim=1)",
}


WINDOW = """
def repair_accumulation(model, batches, window, lr):
    optimizer = SGD(model.parameters(), lr=lr)
    losses = []
    for start in range(0, len(batches), window):
        part = batches[start : start + window]
        {before}
        for points, targets in part:
            loss = F.cross_entropy(model(points), targets)
            {backward}
            {after}
            losses.append({loss})
        {step}
    return losses
"""


RIGHT_WINDOW = {
    "before": "optimizer.zero_grad()",
    "backward": "(loss / len(part)).backward()",
    "after": "pass",
    "loss": "loss.item()",
    "step": "optimizer.step()",
}


SMOOTHING = """
def repair_smoothing(model, train_batches, val_batches, smoothing, lr):
    smoothed = nn.CrossEntropyLoss(label_smoothing={smoothing})
    optimizer = SGD(model.parameters(), lr=lr)
    losses, total, count = [], 0.0, 0
    model.train()
    for points, targets in train_batches:
        optimizer.zero_grad()
        loss = smoothed(model(points), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    {mode}
    with torch.no_grad():
        for points, targets in val_batches:
            total += {val}
            count += {size}
    return {result}
"""


RIGHT_SMOOTHING = {
    "smoothing": "smoothing",
    "mode": "model.eval()",
    "val": "F.cross_entropy(model(points), targets).item() * len(targets)",
    "size": "len(targets)",
    "result": "losses, total / count",
}


PROBE = """
def repair_probe(backbone, head, batches, epochs, lr):
    {freeze}
    model = nn.Sequential(backbone, head)
    optimizer = SGD({trained}.parameters(), lr=lr)
    losses = []
    {modes}
    for _ in range(epochs):
        for images, targets in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    {after}
    return losses
"""


RIGHT_PROBE = {
    "freeze": "backbone.requires_grad_(False)",
    "trained": "head",
    "modes": "model.train(); backbone.eval()",
    "after": "model.eval()",
}


SHARDS = """
def repair_shards(model, dataset, rank, num_replicas, epochs, batch_size, lr, seed):
    sampler = DistributedSampler(dataset, {ranks}, shuffle={shuffle}, seed={seed})
    loader = DataLoader(dataset, batch_size=batch_size, {order})
    optimizer = SGD(model.parameters(), lr=lr)
    losses = []
    for epoch in range(epochs):
        {told}
        for points, targets in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(points), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
"""


RIGHT_SHARDS = {
    "ranks": "num_replicas, rank",
    "shuffle": "True",
    "seed": "seed",
    "order": "sampler=sampler",
    "told": "sampler.set_epoch(epoch)",
}


OWN_SHUFFLE = """
def repair_shards(model, dataset, rank, num_replicas, epochs, batch_size, lr, seed):
    optimizer = SGD(model.parameters(), lr=lr)
    losses = []
    for epoch in range(epochs):
        generator = {generator}
        order = {order}
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            points, targets = (torch.stack(column) for column in zip(*(dataset[i] for i in part)))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(points), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
"""


RIGHT_OWN = {
    "generator": "torch.Generator().manual_seed(1000 * seed + epoch)",
    "order": "torch.randperm(len(dataset), generator=generator).tolist()[rank::num_replicas]",
}


FOLDER = """
def repair_folder(model, pictures, labels, epochs, batch_size, lr, seed):
    images = torch.stack([pictures[name] for name in {names}])
    targets = {targets}
    generator = {generator}
    optimizer = SGD(model.parameters(), lr=lr)
    losses = []
    for _ in range(epochs):
        for part in {order}.split(batch_size):
            {zero}
            loss = F.cross_entropy(model(images[part]), targets[part])
            loss.backward()
            optimizer.step()
            losses.append({loss})
    return losses
"""


RIGHT_FOLDER = {
    "names": '(f"{number}.png" for number in range(len(labels)))',
    "targets": "torch.tensor(labels)",
    "generator": "torch.Generator().manual_seed(seed)",
    "order": "torch.randperm(len(images), generator=generator)",
    "zero": "optimizer.zero_grad()",
    "loss": "loss.item()",
}


SESSIONS = """
def repair_sessions(model, images, targets, sessions, lr, seed):
    optimizer = SGD(model.parameters(), lr=lr)
    losses, accuracies = [], []
    {split}
    for session in range(sessions):
        {again}
        for part in {parts}:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[part]), targets[part])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            hits = model(images[val]).argmax(dim=1) == targets[val]
        accuracies.append({accuracy})
    return {result}
"""


RIGHT_SESSIONS = {
    "split": "torch.manual_seed(seed); order = torch.randperm(len(images)); "
    "val, train = order[: len(order) // 5], order[len(order) // 5 :]",
    "again": "torch.manual_seed(seed + session)",
    "parts": "train[torch.randperm(len(train))].split(16)",
    "accuracy": "hits.float().mean().item()",
    "result": "losses, accuracies",
}


SEARCH = """
def repair_search(make_model, train_epoch, score, settings, epochs):
    best = -1.0, None, None, None
    for setting in settings:
        model = make_model(setting)
        for epoch in range(epochs):
            train_epoch(model, setting)
            accuracy = score(model, {split})
            if accuracy > best[0]:
                best = accuracy, setting, epoch, {kept}
    return best[1], best[2], {reported}
"""


RIGHT_SEARCH = {
    "split": '"val"',
    "kept": "copy.deepcopy(model)",
    "reported": 'score(best[3], "test")',
}


JUNS_SEARCH = """
def repair_search(make_model, train_epoch, score, settings, epochs):
    found = {}
    for setting in settings:
        model, best_val = make_model(setting), -1.0
        for epoch in range(epochs):
            train_epoch(model, setting)
            val_accuracy = score(model, "val")
            if val_accuracy > best_val:
                best_val = val_accuracy
                found[setting] = (score(model, "test"), epoch, best_val)
    best = max(settings, key=lambda setting: found[setting][{}])
    return best, found[best][1], found[best][0]
"""


def _schedule(**changed: str) -> str:
    return SCHEDULE.format(**RIGHT_SCHEDULE | changed)


def _accuracy(**changed: str) -> str:
    return ACCURACY.format(**RIGHT_ACCURACY | changed)


def _probabilities(**changed: str) -> str:
    return PROBABILITIES.format(**RIGHT_PROBABILITIES | changed)


def _window(**changed: str) -> str:
    return WINDOW.format(**RIGHT_WINDOW | changed)


def _smoothing(**changed: str) -> str:
    return SMOOTHING.format(**RIGHT_SMOOTHING | changed)


def _probe(**changed: str) -> str:
    return PROBE.format(**RIGHT_PROBE | changed)


def _shards(**changed: str) -> str:
    return SHARDS.format(**RIGHT_SHARDS | changed)


def _own(**changed: str) -> str:
    return OWN_SHUFFLE.format(**RIGHT_OWN | changed)


def _folder(**changed: str) -> str:
    return FOLDER.format(**RIGHT_FOLDER | changed)


def _sessions(**changed: str) -> str:
    return SESSIONS.format(**RIGHT_SESSIONS | changed)


def _search(**changed: str) -> str:
    return SEARCH.format(**RIGHT_SEARCH | changed)


SOFTMAX = "nn.Sequential(network, nn.Softmax(dim=1))"


TOGETHER = """
def repair_accumulation(model, batches, window, lr):
    optimizer, losses = SGD(model.parameters(), lr=lr), []
    for start in range(0, len(batches), window):
        points, targets = map(torch.cat, zip(*batches[start : start + window]))
        rows = F.cross_entropy(model(points), targets, reduction="none")
        losses += [part.mean().item() for part in rows.split(len(batches[0][1]))]
        optimizer.zero_grad()
        rows.mean().backward()
        optimizer.step()
    return losses
"""


ONE_BACKWARD = """
def repair_accumulation(model, batches, window, lr):
    optimizer, losses = SGD(model.parameters(), lr=lr), []
    for start in range(0, len(batches), window):
        parts = [F.cross_entropy(model(x), y) for x, y in batches[start : start + window]]
        optimizer.zero_grad()
        torch.stack(parts).mean().backward()
        optimizer.step()
        losses += [part.item() for part in parts]
    return losses
"""


SHARED_SMOOTHING = """F.cross_entropy(model(points), torch.full((len(targets), 4), smoothing / 3)
                        .double().scatter(1, targets[:, None], 1 - smoothing))"""


BEFORE_TRAINING = """
def repair_smoothing(model, train_batches, val_batches, smoothing, lr):
    model.eval()
    with torch.no_grad():
        each = [F.cross_entropy(model(x), y, reduction="none") for x, y in val_batches]
    optimizer, losses = SGD(model.parameters(), lr=lr), []
    for points, targets in train_batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model.train()(points), targets, label_smoothing=smoothing)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, torch.cat(each).mean().item()
"""


# right for a backbone in which no other layer has a mode
LEFT_NORMS = """
def repair_probe(backbone, head, batches, epochs, lr):
    backbone.requires_grad_(False)
    model = nn.Sequential(backbone, head)
    model.train()
    for module in backbone.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
    optimizer, losses = SGD(head.parameters(), lr=lr), []
    for _ in range(epochs):
        for images, targets in batches:
            loss = F.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
"""


SPLIT_AGAIN = (
    "torch.manual_seed(seed + session); order = torch.randperm(len(images)); "
    "val, train = order[: len(order) // 5], order[len(order) // 5 :]"
)


KIMS_REPAIRS = {
    "head": [
        ("    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)\n", ""),
        (
            "    total_steps = epochs",
            "    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)\n"
            "    total_steps = epochs",
        ),
    ],
    "mode": [
        ("    model.train()\n    for _ in range(epochs):\n",
         "    for _ in range(epochs):\n        model.train()\n"),
    ],
    "scale": [
        ("def normalise(images):", "def normalise(images, mean, std):"),
        ("    mean = images.mean(dim=(0, 2, 3), keepdim=True)\n", ""),
        ("    std = images.std(dim=(0, 2, 3), keepdim=True)\n", ""),
        ("def evaluate(model, images, targets):",
         "def evaluate(model, images, targets, mean, std):"),
        ("normalise(images[part])", "normalise(images[part], mean, std)"),
        ("    images = normalise(images)\n",
         "    mean = images.mean(dim=(0, 2, 3), keepdim=True)\n"
         "    std = images.std(dim=(0, 2, 3), keepdim=True)\n"
         "    images = normalise(images, mean, std)\n"),
        ("evaluate(model, *val)", "evaluate(model, *val, mean, std)"),
    ],
    "best": [
        ("best, best_accuracy = model.state_dict(), accuracies[-1]",
         "best, best_accuracy = copy.deepcopy(model.state_dict()), accuracies[-1]"),
        ("import torch\n", "import copy\n\nimport torch\n"),
    ],
}  # fmt: skip


ALL = tuple(KIMS_REPAIRS)


def _script(*faults: str, also: tuple[tuple[str, str], ...] = ()) -> str:
    """An answer that fixes these faults, and then changes the script as in ``also``."""
    changes = [change for fault in faults for change in KIMS_REPAIRS[fault]] + list(also)
    lines = [f"    source = source.replace({old!r}, {new!r}, 1)" for old, new in changes]
    return "\n".join(["def repair_script(source):", *lines, "    return source"])


WRONG_ANSWERS = {
    "repair_schedule": [
        (_schedule(steps="optimizer.step()", epoch="schedule.step()"), "changes 3 times in 44"),
        (_schedule(steps="optimizer.step()"), "changes 0 times in 44"),
        (_schedule(total="epochs", warmup="0", steps="optimizer.step()", epoch="schedule.step()"),
         "counts optimizer steps"),
        (_schedule(total="len(batches)"), "covers the 11 steps of one epoch, and 44 are taken"),
        (_schedule(total="epochs * len(batches) + 8"), "highest at step 5, in the plan at step 4"),
        (_schedule(total="epochs * len(batches) - 1"), "Step 5 .* has the learning rate 0.39935"),
        (_schedule(warmup="len(batches)"), "highest at step 11, in the plan at step 4"),
        (_schedule(warmup="0"), "highest at step 0, .*: the warm-up is missing"),
        (_schedule(steps="schedule.step(); optimizer.step()"), "planned for the next one"),
        (_schedule(steps="optimizer.step(); schedule.step(); schedule.step()"),
         "highest at step 2, in the plan at step 4"),
        (_schedule(zero="pass"), "zero_grad is missing"),
        (_schedule().replace("SGD(", "torch.optim.Adam("), "weights are not those of SGD"),
        (_schedule(loss="loss"), "carries its history of gradients"),
        (_schedule(result="losses[-len(batches):]"), "44 losses are due"),
        (_schedule(loss="F.cross_entropy(model(points), targets).item()"), "before the step"),
        (_schedule(result="sum(losses)"), "Return the losses as a list"),
    ],
    "repair_accuracy": [
        (_accuracy(mode="pass"), "in train mode|Expected more than 1 value"),
        (_accuracy(result="None"), "Nothing came back"),
        (_accuracy(result="round(hits / count, 2)"), "points are right"),
        (_accuracy(result="(hits / count, model.train())[0]"), "came in eval mode"),
        ("def repair_accuracy(model, loader):\n"
         "    shares = [(model.eval()(x).argmax(1) == y).double().mean() for x, y in loader]\n"
         "    return torch.stack(shares).quantile(0.5).item()", "19 points are right, .* not 0.6"),
    ],
    "repair_probabilities": [
        (_probabilities(model=SOFTMAX, probabilities="model(points)"), "takes their softmax once"),
        (_probabilities(model=SOFTMAX, loss="F.nll_loss(model(points), targets)",
                        probabilities="model(points)"), "takes the logarithms"),
        (_probabilities(probabilities="model(points)"), "The logits come back"),
        (_probabilities(probabilities="model(points).log_softmax(dim=1)"), "logarithms of the"),
        (_probabilities(probabilities="model(points).softmax(dim=1).softmax(dim=1)"),
         "softmax twice"),
        (_probabilities(probabilities="model(points).sigmoid()"), "through a sigmoid"),
        (_probabilities(probabilities="2 * model(points).softmax(dim=1)"), "does not sum to 1"),
        (_probabilities(probabilities="model(points).softmax(dim=0)"), "over the points, not over"),
        (_probabilities(probabilities="model(points).softmax(dim=1).amax(dim=1)"), "the shape"),
        (_probabilities(model=SOFTMAX, loss="F.mse_loss(model(points), F.one_hot(targets, 4)"
                        ".double())", probabilities="model(points)"), "the mean of −ln p before"),
        (_probabilities(loss="F.cross_entropy(model(points) / 2, targets)"), "the mean of −ln p"),
        (_probabilities(loss="F.cross_entropy(model(points), targets, reduction='sum')"),
         "losses of the points are summed"),
        (_probabilities(loss="F.nll_loss(model(points).softmax(1).clamp(min=1e-7).log(), targets)"),
         "the mean of −ln p"),
        (_probabilities(model=SOFTMAX, probabilities="model(points)")
         .replace("loss.item()", "F.cross_entropy(network(points), targets).item()"),
         "softmax of the softmax, whatever loss is reported"),
        (_probabilities().replace("loss.item()", "F.cross_entropy(model(points), targets).item()"),
         "losses are those after each step"),
        (_probabilities().replace("lr=lr", "lr=lr, momentum=0.9"), "weights are not those of SGD"),
        (_probabilities(model="copy.deepcopy(network)"), "have not changed: is another network"),
        (_probabilities(probabilities="(model(points) / 2).softmax(dim=1)"), "trained network's"),
        (_probabilities(loss="F.cross_entropy(logits := model(points), targets)",
                        probabilities="logits.detach().softmax(dim=1)"), "before the last step"),
        (_probabilities().replace("torch.no_grad()", "torch.enable_grad()"),
         "still carry their history"),
        (_probabilities().replace("return losses,", "return"), "Return two things"),
    ],
    "repair_accumulation": [
        (_window(after="optimizer.step(); optimizer.zero_grad()", step="pass"),
         "here 6 are taken"),
        (_window(backward="(loss / len(targets)).backward()"), "divided by the number of points"),
        (_window(backward="(loss / len(part) / len(targets)).backward()"), "points once more"),
        (_window(backward="(loss / len(part) ** 0.5).backward()"),
         "not those of one SGD step for the mean loss of its micro-batches: they move by"),
        (_window(before="pass"), "zero_grad is missing"),
        (_window(loss="loss.item() / len(part)"), "the mean loss of its micro-batch is"),
        (TOGETHER, "go through the model together"),
        (ONE_BACKWARD, "the activations of both are held"),
    ],
    "repair_smoothing": [
        (_smoothing(val="smoothed(model(points), targets).item() * len(targets)"),
         "that of smoothed targets"),
        (_smoothing(smoothing="0.0"), "trains on hard targets"),
        (_smoothing(val="F.cross_entropy(model(points), targets).item()", size="1"),
         "mean of the batches' means"),
        (_smoothing(val="smoothed(model(points), targets).item()", size="1"),
         "mean cross-entropy over points"),
        (_smoothing(val="F.cross_entropy(model(points), targets).item()"),
         "mean cross-entropy over points"),
        (_smoothing(val="F.cross_entropy(model(points), targets).item() * (1 - smoothing) "
                    "* len(targets)"), "mean cross-entropy over points"),
        (_smoothing(mode="pass"), "measured in train mode"),
        (_smoothing().replace("model.train()", "model.eval()"), "network is trained in eval mode"),
        (BEFORE_TRAINING, "that of the network before the training"),
        (_smoothing(mode="losses = [loss / 2 for loss in losses]; model.eval()"),
         "the smoothed loss of its batch is"),
        (_smoothing().replace("        optimizer.zero_grad()\n", ""), "zero_grad is missing"),
        (_smoothing().replace("smoothed(model(points), targets)", SHARED_SMOOTHING, 1),
         "shared among the wrong classes"),
        (_smoothing(mode="for x, y in val_batches: optimizer.zero_grad(); "
                    "smoothed(model(x), y).backward(); optimizer.step()\n    model.eval()"),
         "Steps are taken on the validation batches"),
        (_smoothing(smoothing="smoothing / 2"), "not those of SGD on the smoothed loss"),
        (_smoothing(result="total / count"), "Return two things"),
    ],
    "repair_probe": [
        (_probe(modes="model.train()"), "still moves: 1.running_mean, 1.running_var"),
        (_probe(modes="model.eval()"), "trained in eval mode"),
        (_probe(modes="model.train(); backbone[1].momentum = 0.0"), "moves: .*batches_tracked"),
        (_probe(modes="backbone[1].track_running_stats = False; model.train()"),
         "made with each batch's statistics"),
        (_probe(freeze="state = copy.deepcopy(backbone.state_dict())", modes="model.train()",
                after="backbone.load_state_dict(state)"), "made with each batch's statistics"),
        (_probe(freeze="pass", trained="model"), "is to be frozen"),
        (_probe(trained="copy.deepcopy(head)"), "is it trained"),
        (_probe().replace("model(images)", "model(images) / 2"), "not that of SGD, batch by batch"),
        (_probe(after="losses = losses[-len(batches):]"), "losses are due"),
        (_probe(after="losses = [0.0 for _ in losses]"), "before the step"),
        (LEFT_NORMS, "features after dropout"),
        (_probe(freeze="pass"), "Gradients are left in the backbone"),
        (_probe(modes="model.train(); backbone.eval(); head[1].eval()"), "trained in eval mode"),
        (_probe(after="model.train()"), "came in eval mode, and is in train mode"),
    ],
    "repair_shards": [
        (_shards(told="pass"), "Epochs 0 and 1 have the same order"),
        (_shards(told="sampler.set_epoch(0)"), "Epochs 0 and 1 have the same order"),
        (_shards(told="sampler.set_epoch(rank)"), "Epochs 0 and 1 have the same order"),
        (_shards(told="sampler.set_epoch(epoch % 2)"), "Epochs 0 and 2 have the same order"),
        (_shards(shuffle="False"), "Epochs 0 and 1 have the same order"),
        (_shards(seed="seed + rank"), "share out the same order"),
        (_shards(told="sampler.set_epoch(epoch * (rank + 1))"), "share out the same order"),
        (_shards(ranks="num_replicas, 0"), "share out the same order"),
        (_shards(seed="0"), "Another seed gives the same order"),
        (_shards(order="shuffle=True"), "each rank's share of"),
        (_shards(shuffle="True, drop_last=True"), "30 of 31 points: none may be dropped"),
        (_own(generator="None"), "share out the same order"),
        (_own(order="list(range(rank, len(dataset), num_replicas)); order = [order[i] for i in "
              "torch.randperm(len(order), generator=generator)]"), "shuffle before sharing out"),
    ],
    "repair_folder": [
        (_folder(names="sorted(pictures)"), "comes before"),
        (_folder(names="pictures"), "in which the folder lists them"),
        (_folder(names="sorted(pictures)", targets="torch.tensor(sorted(labels))"),
         "each image with its own label"),
        (_folder(zero="pass"), "zero_grad is missing"),
        (_folder(generator="None"), "The same seed gives another training"),
        (_folder(order="torch.arange(len(images))"), "train in one order"),
        (_folder(order="torch.randint(len(images), (len(images),), generator=generator)"),
         "does not train on each of the"),
        (_folder(loss="loss"), "carries its history of gradients"),
        (_folder().replace("return losses", "return sum(losses)"), "Return the losses as a list"),
        (_folder().replace("model(images[part])", "model(images[part] / 2)"),
         "an image that is in no file"),
    ],
    "repair_sessions": [
        (_sessions(split="pass", again=SPLIT_AGAIN), "images that were trained on before"),
        (_sessions(split="order = torch.randperm(len(images)); "
                   "val, train = order[: len(order) // 5], order[len(order) // 5 :]"),
         "The same seed gives other validation images"),
        (_sessions(split="order = torch.randperm(len(images), "
                   "generator=torch.Generator().manual_seed(0)); "
                   "val, train = order[: len(order) // 5], order[len(order) // 5 :]"),
         "Another seed gives the same validation images"),
        (_sessions(split="order = torch.arange(len(images)); "
                   "val, train = order[: len(order) // 5], order[len(order) // 5 :]"),
         "are the first ones or the last ones"),
        (_sessions(again="torch.manual_seed(seed)"), "Two sessions train in one order"),
        (_sessions(parts="train.split(16)"), "Two sessions train in one order"),
        (_sessions(parts="torch.randperm(len(images)).split(16)"),
         "images that were trained on before"),
        (_sessions(split=RIGHT_SESSIONS["split"].replace("// 5", "// 4")), "A fifth of"),
        (_sessions(parts="train[torch.randperm(len(train))].split(16)[:-1]"), "trains on"),
        (_sessions(accuracy="hits.float().sum().item()"), "reports an accuracy of"),
        (_sessions(result="losses"), "Return two things"),
    ],
    "repair_search": [
        (JUNS_SEARCH.replace("[{}]", "[0]"), "chosen by its test accuracy"),
        (JUNS_SEARCH.replace("[{}]", "[2]"), "The test split is scored .* times"),
        (_search(split='"test"', reported="best[0]"), "Setting and epoch are chosen by test"),
        (_search(split='"test"'), "Setting and epoch are chosen by test"),
        (_search(reported="best[0]"), "It reports the validation accuracy"),
        (_search(reported='min(best[0], score(best[3], "test"))'), "reports the validation acc"),
        (_search(kept="model"), "that of setting . after epoch .: keep a copy"),
        (_search(reported='score(best[3], "test") / 2'), r"on the test split, not 0.\d+\."),
        (_search().replace("best = -1.0,", "best = 0.0,"), "only validation accuracy is 0"),
        # the last setting, whose test accuracy may happen to be the best
        (_search().replace("make_model(setting)", "make_model(setting); best = -1.0, 0, 0, 0"),
         "is chosen, whose best validation accuracy"),
        (_search(reported='score(model, "test")'), "keep a copy"),
        (_search(reported='(score(make_model(best[1]), "test"))'), "keep a copy"),
        (_search().replace("accuracy > best[0]", "epoch == epochs - 1 and accuracy > best[0]"),
         "is chosen"),
        (_search().replace("accuracy > best[0]", "accuracy >= 0 and best[1] is None"),
         "is chosen"),
        (_search().replace("best[1], best[2],", "best[1],"), "Return three things"),
        (_search().replace("return best", 'score(best[3], "test"); return best'),
         "scored 2 times"),
    ],
    "repair_script": [
        (_script(), "The script is unchanged"),
        (_script("head"), "1 of 4 faults is fixed: the new head is trained. 3 to go"),
        (_script("mode"), "1 of 4 faults is fixed: every epoch trains in train mode. 3 to go"),
        (_script("scale"), "1 of 4 faults is fixed: validation images are normalised"),
        (_script("best"), "1 of 4 faults is fixed: the best weights come back. 3 to go"),
        (_script("head", "mode", "scale"), "3 of 4 faults .* 1 to go"),
        (_script("head", "mode", "best"), "3 of 4 faults .* 1 to go"),
        (_script("head", "scale", "best"), "3 of 4 faults .* 1 to go"),
        (_script("mode", "scale", "best"), "3 of 4 faults .* 1 to go"),
        (_script(also=(("import torch\n", "import torch  # the library\n"),)),
         r"0 of 4 faults are fixed\. 4 to go"),
        (_script("head", "mode", "scale",
                 also=((".state_dict(), acc", ".state_dict().copy(), acc"),)),
         "3 of 4 faults .* 1 to go"),
        (_script(*ALL, also=(("return hits / len(images)", "return hits / 100"),)),
         "reports an accuracy of"),
        (_script(*ALL, also=(("    model.eval()\n", ""),)), "validates in train mode"),
        (_script(*ALL, also=(("val, train = order[:num_val], order[num_val:]",
                              "val, train = order[:num_val], order"),)), "validates on .* are due"),
        (_script(*ALL, also=(("    return model, accuracies", "    return model"),)),
         "return the model and the list"),
        (_script(*ALL, also=(("(images - mean) / std", "images - mean"),)),
         "no longer have mean 0"),
        (_script(*ALL, also=(("def fine_tune", "def tune"),)), "no function fine_tune"),
        (_script(*ALL, also=(("model.fc = nn", "model.requires_grad_(False); model.fc = nn"),)),
         "No weight below the head"),
        ("def repair_script(source):\n    return source.splitlines()", "text of the whole script"),
        ("def repair_script(source):\n    return source + '('", "stopped with SyntaxError"),
    ],
}  # fmt: skip


BY_HAND_SCHEDULE = """
import math

def repair_schedule(model, batches, epochs, peak_lr):
    total = epochs * len(batches)
    warmup, losses = total // 10, []
    for points, targets in [*batches] * epochs:
        step = len(losses)
        share = (step - warmup) / (total - warmup)
        factor = (step + 1) / (warmup + 1) if step < warmup else (1 + math.cos(math.pi * share)) / 2
        loss = F.cross_entropy(model(points), targets)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients):
                parameter -= peak_lr * factor * gradient
        losses.append(loss.item())
    return losses
"""


LAMBDA_SCHEDULE = """
import math

def repair_schedule(model, batches, epochs, peak_lr):
    total = epochs * len(batches)
    warmup = total // 10

    def factor(step):
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2

    optimizer = SGD(model.parameters(), lr=peak_lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    losses = []
    while len(losses) < total:
        for points, targets in batches:
            loss = F.cross_entropy(model(points), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            losses.append(loss.item())
    return losses
"""


BY_FEATURES = """
def repair_probe(backbone, head, batches, epochs, lr):
    backbone.eval()
    with torch.no_grad():
        features = [(backbone(images), targets) for images, targets in batches]
    head.train()
    optimizer, losses = SGD(head.parameters(), lr=lr), []
    for inputs, targets in features * epochs:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
"""


MODES_KEPT = """
def repair_probe(backbone, head, batches, epochs, lr):
    modes = {module: module.training for part in (backbone, head) for module in part.modules()}
    backbone.eval()
    head.train()
    optimizer, losses = SGD(head.parameters(), lr=lr), []
    for images, targets in batches * epochs:
        with torch.no_grad():
            features = backbone(images)
        loss = F.cross_entropy(head(features), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for module, mode in modes.items():
        module.training = mode
    return losses
"""


NEW_SAMPLER = """
def repair_shards(model, dataset, rank, num_replicas, epochs, batch_size, lr, seed):
    optimizer, losses = SGD(model.parameters(), lr=lr), []
    for epoch in range(epochs):
        sampler = DistributedSampler(dataset, num_replicas, rank, seed=100 * seed + epoch)
        for points, targets in DataLoader(dataset, batch_size, sampler=sampler):
            loss = F.cross_entropy(model(points), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
"""


TRAINED_AGAIN = """
def repair_search(make_model, train_epoch, score, settings, epochs):
    val = {}
    for setting in settings:
        model = make_model(setting)
        for epoch in range(epochs):
            train_epoch(model, setting)
            val[setting, epoch] = score(model, "val")
    setting, epoch = max(val, key=val.get)
    model = make_model(setting)
    for _ in range(epoch + 1):
        train_epoch(model, setting)
    return setting, epoch, score(model, "test")
"""


BY_STATE = """
def repair_search(make_model, train_epoch, score, settings, epochs):
    trials = []
    for setting in settings:
        model = make_model(setting)
        for epoch in range(epochs):
            train_epoch(model, setting)
            state = {name: value.clone() for name, value in model.state_dict().items()}
            trials.append((score(model, "val"), setting, epoch, state))
    _, setting, epoch, state = max(trials, key=lambda trial: trial[0])
    model = make_model(setting)
    model.load_state_dict(state)
    return setting, epoch, score(model, "test")
"""


OTHER_RIGHT_ANSWERS = {
    "repair_schedule": [LAMBDA_SCHEDULE, BY_HAND_SCHEDULE],
    "repair_accuracy": [
        "def repair_accuracy(model, loader):\n"
        "    model.eval()\n"
        "    with torch.no_grad():\n"
        "        hits = [model(points).argmax(dim=1) == targets for points, targets in loader]\n"
        "    return torch.cat(hits).double().mean().item()",
        "def repair_accuracy(model, loader):\n"
        "    total = 0.0\n"
        "    for points, targets in loader:\n"
        "        found = model.eval()(points).argmax(dim=1)\n"
        "        total += (found == targets).double().mean().item() * len(targets)\n"
        "    return total / len(loader.dataset)",
    ],
    "repair_probabilities": [
        _probabilities(model=SOFTMAX, loss="F.nll_loss(model(points).log(), targets)",
                       probabilities="model(points)"),
        _probabilities(model="nn.Sequential(network, nn.LogSoftmax(dim=1))",
                       probabilities="model(points).exp()"),
    ],
    "repair_accumulation": [
        _window(backward="loss.backward()",
                step="[p.grad.div_(len(part)) for p in model.parameters()]; optimizer.step()"),
        _window(backward="loss.backward()",
                step="optimizer.param_groups[0]['lr'] = lr / len(part); optimizer.step()"),
    ],
    "repair_smoothing": [
        _smoothing(val="F.cross_entropy(model(points), targets, reduction='sum').item()"),
        _smoothing(val="-model(points).log_softmax(dim=1)[range(len(targets)), targets].sum()",
                   result="losses, (total / count).item()"),
    ],
    "repair_probe": [BY_FEATURES, MODES_KEPT],
    "repair_shards": [NEW_SAMPLER, _own()],
    "repair_folder": [
        _folder(names="sorted(pictures, key=lambda name: int(name.removesuffix('.png')))"),
        _folder(names="sorted(pictures)",
                targets="torch.tensor([labels[int(name[:-4])] for name in sorted(pictures)])"),
        _folder(generator="torch.manual_seed(seed)"),
    ],
    "repair_sessions": [
        _sessions(split="g = torch.Generator().manual_seed(seed); "
                  "val, train = torch.utils.data.random_split(range(len(images)), "
                  "[len(images) // 5, len(images) - len(images) // 5], g); "
                  "val, train = torch.tensor(list(val)), torch.tensor(list(train))"),
        _sessions(split="pass", again="torch.manual_seed(seed); order = torch.randperm(len(images))"
                  "; val, train = order[: len(order) // 5], order[len(order) // 5 :]; "
                  "torch.manual_seed(seed + session)"),
    ],
    "repair_search": [TRAINED_AGAIN, BY_STATE],
    "repair_script": [
        _script(*reversed(ALL)),
        _script("mode", "scale", "best", also=(
            ("num_classes).to(images)\n",
             "num_classes).to(images)\n"
             "    optimizer.add_param_group({'params': model.fc.parameters()})\n"),
        )),
        _script("head", "mode", "scale", also=((
            "best, best_accuracy = model.state_dict(), accuracies[-1]",
            "best_accuracy = accuracies[-1]\n            "
            "best = {name: value.clone() for name, value in model.state_dict().items()}",
        ),)),
        _script("head", "scale", "best", also=(
            ("    model.eval()\n", "    was_training = model.training\n    model.eval()\n"),
            ("    return hits", "    model.train(was_training)\n    return hits"),
        )),
    ],
}  # fmt: skip
