"""Planted answers of lesson 90: `course_tools.publish.planted` says how to read them."""

ZERO_GRAD = "optimizer.zero_grad()\n"
NO_ZERO_GRAD = "Gradients of earlier steps still count: zero_grad is missing."
BEFORE_STEP = "not the loss of its batch before the step"
PLAN = "epochs * len(batches)"
ADVANCE = "            schedule.step()\n            losses.append(loss.item())\n"
PER_EPOCH = "            losses.append(loss.item())\n        schedule.step()\n"
CHANGES = "times in 44 steps: the plan counts optimizer steps."
HITS = ".sum().item()"
CE = "F.cross_entropy(network(images), targets)"
CE_TWICE = "F.cross_entropy(network(images).softmax(dim=1), targets)"
RESULT = "network(images).softmax(dim=1)"
BACKWARD = "(loss / len(micro_batches)).backward()"
EACH_LOSS = "            loss = F"
SMOOTHING = "label_smoothing=smoothing"
EVAL = "    model.eval()\n"
FROZEN = "(False).eval()"
SET_EPOCH = "sampler.set_epoch(epoch)"
OWN_SHARE = """mine = torch.randperm(len(dataset))[rank::num_replicas].tolist()
        loader = DataLoader(dataset, batch_size, sampler=mine)"""
OTHER_ORDER = "they have to share out the same order."
IMAGES = '[pictures[f"{number}.png"] for number in range(len(labels))]'
ORDER = "torch.randperm(len(images), generator=generator)"
SPLIT = "torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))"
LEAKED = "images that were trained on before: make one split for all sessions."
ONE_ORDER = "Two sessions train in one order: shuffle anew in each session."
CHOSEN = "setting, epoch, model = chosen"
TEST = 'score(model, "test")'
SCRIPT_END = "return source"
IGNORE = ", ignore_index=PADDING"
TEXT_LOSS = f"F.cross_entropy(logits.flatten(0, 1), targets.flatten(){IGNORE})"
LIBRARY = "next_token_loss(logits, tokens)"
OWN_SHIFT = "F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(){})"
NO_PADDING = "Padding counts as a target."
ADAMW_LR = "lr=lr)"
EVAL_ADAPTERS = "    model.eval()\n"
ONE_LEFT = "One hypothesis is left in the end, and here"
WORDS = {"head": "optimizer", "mode": "model.train", "scale": "std", "best": "best"}


def _fix(faults: str, sentence: str) -> tuple[str, str, str]:
    """Of Kim's four faults only these are repaired."""
    words = [word for fault, word in WORDS.items() if fault not in faults.split()]
    skip = f"if any(word in old + new for word in {words}):\n            continue"
    return "assert old in source", skip, sentence


def _break(old: str, new: str, sentence: str) -> tuple[str, str, str]:
    """The script without its faults, and with another one."""
    return SCRIPT_END, f"return source.replace({old!r}, {new!r})", sentence


WRONG = {
    "repair_padding": [
        (IGNORE, "", NO_PADDING),
        (IGNORE, ", ignore_index=2", NO_PADDING),
        ("targets = tokens[:, :-1], tokens[:, 1:]", "targets = tokens[:, :-1], tokens[:, :-1]",
         "The target of a token is the token itself: it has to be the next one."),
        (IGNORE, f'{IGNORE}, reduction="sum"',
         "The losses of the tokens are summed: the mean over the real ones is due."),
        (TEXT_LOSS, f'{TEXT_LOSS[:-1]}, reduction="sum") / targets.numel()',
         "The sum over the real tokens is divided by all places: count the real ones alone."),
        (TEXT_LOSS, "F.cross_entropy(logits[inputs != PADDING], targets[inputs != PADDING])",
         "The first place of padding is still a target: leave out targets, not inputs."),
        (TEXT_LOSS, "sum(F.cross_entropy(one, y, ignore_index=PADDING) "
         "for one, y in zip(logits, targets)) / len(tokens)",
         "The mean of the texts' means: in a short text each token counts more."),
        ("optimizer.zero_grad()\n", "\n", NO_ZERO_GRAD),
        ("AdamW(", "SGD(", "not those of AdamW on the mean over the real next tokens"),
        ("loss.item()", "loss.item() / 2", "is not the mean over the real next tokens, before"),
        ("return losses", "return losses[-1]", "Return the losses as a list"),
        ("loss.item()", "loss", "A loss still carries its history of gradients"),
    ],
    "repair_labels": [
        ("logits = model(tokens)", "logits = model(tokens[:, :-1])", LIBRARY,
         "next_token_loss(logits, tokens[:, 1:])",
         "The labels are shifted twice: each place predicts the token after the next one."),
        (LIBRARY, "next_token_loss(logits[:, 1:], tokens[:, :-1])",
         "The labels are not shifted: each place predicts its own token."),
        ("logits = model(tokens)", "logits = model(tokens[:, :-1])", LIBRARY,
         "next_token_loss(logits, tokens[:, :-1])",
         "The last token of the longest text is never a target: give the loss all tokens."),
        (LIBRARY, OWN_SHIFT.format(""), "Padding counts as a target: it was right before."),
        ("optimizer.zero_grad()\n", "\n", NO_ZERO_GRAD),
        ("AdamW(", "SGD(", "not those of AdamW on the mean over the real next tokens"),
        ("loss.item()", "2 * loss.item()", "is not the mean over the real next tokens, before"),
    ],
    "repair_adapters": [
        (EVAL_ADAPTERS, "", "no_grad turns gradients off, and nothing else."),
        ("    model.train()\n", "", EVAL_ADAPTERS, "",
         "It is trained in eval mode: while it is trained, dropout must be on."),
        (EVAL_ADAPTERS, "", "    model.train()\n", "    model.eval()\n",
         "It is trained in eval mode: while it is trained, dropout must be on."),
        ("count += len(targets)", "count += 1", "are right is not"),
        ("hits / count", "hits", "That is the number of hits: divide by the number of texts."),
        ("hits / count", "100 * hits / count", "That is a percentage: return a share from 0 to 1."),
        (".sum().item()", ".float().mean().item()", "count += len(targets)", "count += 1",
         "The mean of the batches' accuracies: the last one has fewer texts and counts the same."),
        ("optimizer.zero_grad()\n", "\n", NO_ZERO_GRAD),
        (ADAMW_LR, "lr=2 * lr)", "not those of AdamW on the parameters that are trained"),
        ("loss.item()", "loss.item() / 2", BEFORE_STEP),
        ("return losses, hits / count", "return losses",
         "Return two things: the list of losses and the validation accuracy."),
        ("in val_batches", "in list(val_batches)[:-1]", "One forward pass for each batch is due."),
    ],
    "close_ranks": [
        ('"A": 2, "B": 1', '"A": 1, "B": 2',
         "Curve 1 has one learning rate only, so a better one may exist: A needs another curve."),
        ('"A": 2', '"A": 3', "Curve 2 has already ruled A out: no learning rate closes the gap."),
        ('"B": 1', '"B": 2',
         "Curve 1 has already ruled B out: its gap to validation is that of the earlier job."),
        ('"C": 3, "D": None', '"C": None, "D": 3',
         "C is not left: a mean in which gradients are missing does not have the norm of each."),
        ('"C": 3', '"C": 2', "Curve 2 is not the first that rules out C."),
        ('"A": 2', '"A": None', ONE_LEFT),
        ('"A": 2, ', "", "the four letters A, B, C and D"),
        ('"A": 2', '"A": 4', "Each letter needs the number of a curve, 1, 2 or 3, or None"),
        ('"A": 2', '"A": None', '"D": None', '"D": 3', "A is not the one that is left"),
    ],
    "close_resume": [
        ('"A": 2', '"A": 1',
         "Curve 1 does not show the learning rate: A needs the curve that does."),
        ('"B": 2', '"B": 3',
         "Curve 2 has already ruled B out: only the grey run makes long steps after a restart."),
        ('"B": 2', '"B": 1', "Curve 1 is not the first that rules out B."),
        ('"C": 3, "D": None', '"C": None, "D": 3',
         "C is not left: if validation texts were trained on, their loss would fall."),
        ('"C": 3', '"C": 1', "Curve 1 has no validation loss: C needs the curve that has it."),
        ('"A": 2', '"A": None', ONE_LEFT),
    ],
    "close_stream": [
        ('"A": 2', '"A": 1',
         "Curve 1 has one learning rate only: A needs the curve with lower ones."),
        ('"B": 1', '"B": 2',
         "Curve 1 has already ruled B out: count its peaks in one epoch."),
        ('"B": 1', '"B": 3',
         "Curve 1 has already ruled B out: count its peaks in one epoch."),
        ('"C": None, "D": 3', '"C": 3, "D": None',
         "D is not left: with many wrong labels no kind would be recognised nearly always."),
        ('"D": 3', '"D": 2', "Curve 2 is not the first that rules out D."),
        ('"A": 2', '"A": None', ONE_LEFT),
    ],
    "repair_schedule": [
        (ADVANCE, PER_EPOCH, f"The learning rate changes 3 {CHANGES}"),
        (ADVANCE, PER_EPOCH, PLAN, "epochs", "total_steps // 10", "0",
         f"The learning rate changes 3 {CHANGES}"),
        ("            schedule.step()\n", "", f"The learning rate changes 0 {CHANGES}"),
        (PLAN, "len(batches)", "The plan covers the 11 steps of one epoch, and 44 are taken."),
        (PLAN, f"{PLAN} + 8", "The learning rate is highest at step 5, in the plan at step 4."),
        (PLAN, f"{PLAN} - 1",
         "Step 5 of 44 has the learning rate 0.399351, not 0.399383: the plan ends a step early."),
        ("total_steps // 10", "len(batches)",
         "The learning rate is highest at step 11, in the plan at step 4."),
        ("total_steps // 10", "0",
         "The learning rate is highest at step 0, in the plan at step 4: the warm-up is missing."),
        ("            optimizer.step()\n            schedule", "            schedule",
         "schedule.step()\n", "schedule.step()\n            optimizer.step()\n",
         "Each step has the learning rate that is planned for the next one."),
        ("schedule.step()", "schedule.step(); schedule.step()",
         "The learning rate is highest at step 2, in the plan at step 4: it advances twice."),
        (ZERO_GRAD, "\n", NO_ZERO_GRAD),
        ("SGD(", "torch.optim.Adam(",
         "The learning rates are as planned, the weights are not those of SGD."),
        ("lr=peak_lr", "lr=peak_lr, momentum=0.5", "weights are not those of SGD at the planned"),
        ("loss.item()", "loss", "A loss still carries its history of gradients"),
        ("return losses", "return losses[-len(batches):]", "44 losses are due"),
        ("loss.item()", "F.cross_entropy(model(images), targets).item()", BEFORE_STEP),
        ("return losses", "return sum(losses)", "Return the losses as a list"),
    ],
    "repair_accuracy": [
        (HITS, ".double().mean().item()", "len(targets)", "1",
         "The mean of the batches' accuracies: the last one has fewer points and counts the same."),
        ("hits / count", "100 * hits / count", "That is a percentage: return a share from 0 to 1."),
        ("hits / count", "hits", "That is the number of hits: divide by the number of points."),
        ("loader:", "list(loader)[:-1]:", "The last batch, which is not full, is left out."),
        ("len(targets)", "loader.batch_size", "The last batch is counted as if it were full."),
        (HITS, ".double().mean().item() * loader.batch_size",
         "The hits of the last batch are counted as if it were full."),
        ("loader:", "list(loader)[:1]:", "Only the first batch is counted."),
        ("loader:", "list(loader)[-1:]:", "Only the last batch is counted."),
        ("len(targets)", "1", "The hits are divided by the number of batches."),
        ("==", "!=", "That is the share of errors."),
        (EVAL, "", "in train mode"),
        ("return hits / count", "pass", "Nothing came back"),
        ("hits / count", "round(hits / count, 2)", "19 points are right, 0.5758, not 0.58"),
        ("    return", "    model.train()\n    return", "came in eval mode"),
    ],
    "repair_probabilities": [
        (CE, CE_TWICE, "cross_entropy takes logits and is given probabilities: it takes their "
         "softmax once more."),
        (CE, "F.nll_loss(network(images).softmax(dim=1), targets)", "takes the logarithms"),
        (RESULT, "network(images)", "The logits come back, not the probabilities."),
        ("softmax", "log_softmax", "The logarithms of the probabilities come back."),
        (RESULT, f"{RESULT}.softmax(dim=1)",
         "The returned probabilities have gone through softmax twice."),
        (RESULT, "network(images).sigmoid()",
         "Each logit went through a sigmoid: the classes share a softmax."),
        (RESULT, f"2 * {RESULT}", "does not sum to 1"),
        ("dim=1", "dim=0", "The softmax is over the points, not over the classes."),
        (RESULT, f"{RESULT}.amax(dim=1)", "the shape (12,), not"),
        (CE, f"F.mse_loss({RESULT}, F.one_hot(targets, 4).double())", "the mean of −ln p before"),
        (CE, "F.cross_entropy(network(images), targets, reduction='sum')",
         "The losses of the points are summed: cross-entropy is their mean."),
        (CE, f"F.nll_loss({RESULT}.clamp(min=1e-7).log(), targets)", "the mean of −ln p before"),
        (CE, CE_TWICE, "loss.item()", f"{CE}.item()",
         "The training still takes a softmax of the softmax, whatever loss is reported."),
        (CE, f"{CE}\n        report = loss.item()\n        loss = {CE_TWICE}",
         "losses.append(loss.item())", "losses.append(report)",
         "The training still takes a softmax of the softmax, whatever loss is reported."),
        ("loss.item()", f"{CE}.item()",
         "The losses are those after each step, and those before it are due."),
        ("lr=lr", "lr=lr, momentum=0.9", "weights are not those of SGD"),
        ("    optimizer = ", "    network = copy.deepcopy(network)\n    optimizer = ",
         "The network's weights have not changed: is another network trained?"),
        (RESULT, "(network(images) / 2).softmax(dim=1)", "trained network's"),
        (RESULT, "probabilities.detach()", "loss.backward()",
         f"loss.backward()\n        probabilities = {RESULT}",
         "The probabilities are those from before the last step."),
        ("no_grad", "enable_grad", "still carry their history"),
        ("return losses, ", "return ", "Return two things"),
    ],
    "repair_accumulation": [
        (BACKWARD, "loss.backward()", "Gradients are added, not averaged: the step is as many "
         "times too long as it has micro-batches."),
        ("len(micro_batches)", "size",
         "The last step is divided as if it were complete: count the micro-batches of each step."),
        (ZERO_GRAD, "\n", EACH_LOSS, f"            {ZERO_GRAD}{EACH_LOSS}", BACKWARD,
         "loss.backward()",
         "Only the last micro-batch of a step counts: zero_grad is called before each one."),
        (ZERO_GRAD, "\n", EACH_LOSS, f"            {ZERO_GRAD}{EACH_LOSS}",
         "Only the last micro-batch of each step counts, and that is divided."),
        ("len(micro_batches)", "len(micro_batches) ** 2",
         "The mean over a step is divided once more."),
        ("        optimizer.step()", "        if len(micro_batches) == size:\n"
         "            optimizer.step()",
         "If the last micro-batches are fewer than the others, no step is taken for them."),
        (ZERO_GRAD, "\n", NO_ZERO_GRAD),
        (ZERO_GRAD, "\n", BACKWARD, "loss.backward()", NO_ZERO_GRAD),
        ("len(micro_batches)", "len(targets)",
         "Gradients are divided by the number of points: divide by that of the micro-batches."),
        ("len(micro_batches)", "len(micro_batches) / len(targets)",
         "The mean is divided by the number of points once more."),
        ("len(micro_batches)", "len(micro_batches) ** 0.5",
         "not those of one SGD step for the mean loss of its micro-batches"),
        (BACKWARD, f"{BACKWARD}\n            optimizer.step(); optimizer.zero_grad()",
         "give 2 optimizer steps, here 8 are taken"),
        ("loss.item()", "loss.item() / len(micro_batches)",
         "The losses are divided by the number of micro-batches: return each as it is."),
        ("loss.item()", "loss.item() * len(targets)", "not the mean loss of its micro-batch"),
        ("in micro_batches:", "in [tuple(map(torch.cat, zip(*micro_batches)))]:",
         "go through the model together"),
        (ZERO_GRAD, f"{ZERO_GRAD}        total = 0\n", BACKWARD, "total = total + loss",
         "        optimizer.step()", "        total.backward()\n        optimizer.step()",
         "the activations of both are held"),
    ],
    "repair_smoothing": [
        ('reduction="sum"', f'reduction="sum", {SMOOTHING}',
         "The validation loss is that of smoothed targets: it measures another task."),
        (f", {SMOOTHING}", "",
         "It trains on hard targets: label smoothing is gone from the training."),
        (', reduction="sum"', "", "len(targets)", "1",
         "The mean of the batches' means: the last batch is smaller, weigh by its size."),
        (', reduction="sum"', "", "not the mean cross-entropy over points"),
        (EVAL, "", "The validation points are measured in train mode"),
        ("model.train()", "model.eval()", "The network is trained in eval mode"),
        ("    losses, total", "    before = copy.deepcopy(model)\n    losses, total",
         "total += F.cross_entropy(model", "total += F.cross_entropy(before",
         "The validation loss is that of the network before the training."),
        ("loss.item()", "loss.item() / 2", "the smoothed loss of its batch is due"),
        (ZERO_GRAD, "\n", NO_ZERO_GRAD),
        (SMOOTHING, f"{SMOOTHING} * 4 / 3", "Smoothing is shared among the wrong classes: in "
         "PyTorch the right class gets a part of it too."),
        (EVAL, f"    for x, y in val_batches:\n        {ZERO_GRAD}"
         f"        F.cross_entropy(model(x), y, {SMOOTHING}).backward()\n"
         f"        optimizer.step()\n{EVAL}",
         "Steps are taken on the validation batches too."),
        (SMOOTHING, f"{SMOOTHING} / 2", "not those of SGD on the smoothed loss"),
        ("return losses, ", "return ", "Return two things"),
    ],
    "repair_probe": [
        (FROZEN, "(False).train()", "still moves: 1.running_mean, 1.running_var"),
        (FROZEN, "(False).train()[1].momentum = 0.0", "still moves: 1.num_batches_tracked"),
        (FROZEN, "(False).train()[1].track_running_stats = False",
         "made with each batch's statistics"),
        (FROZEN, "(False)[1].eval()", "features after dropout"),
        (f"requires_grad_{FROZEN}", "eval()", "SGD(head", "SGD(nn.Sequential(backbone, head)",
         "The backbone is to be frozen, and is trained: 0.weight, 0.bias"),
        (f"requires_grad_{FROZEN}", "eval()", "Gradients are left in the backbone"),
        ("head.train()", "head.eval()", "trained in eval mode"),
        ("    optimizer = SGD", "    head = copy.deepcopy(head)\n    optimizer = SGD",
         "The head's weights have not changed: is it trained?"),
        ("backbone(images)", "backbone(images / 2)", "not that of SGD, batch by batch"),
        ("return losses", "return losses[-len(batches) :]", "losses are due"),
        ("loss.item()", "0.0", BEFORE_STEP),
        ("    head.eval()", "    backbone.train()", "came in eval mode, and is in train mode"),
    ],
    "repair_shards": [
        (SET_EPOCH, "pass", "Epochs 0 and 1 have the same order"),
        (SET_EPOCH, "sampler.set_epoch(epoch % 2)", "Epochs 0 and 2 have the same order"),
        ("shuffle=True", "shuffle=False", "Epochs 0 and 1 have the same order"),
        ("seed=seed", "seed=seed + rank", OTHER_ORDER),
        (SET_EPOCH, "sampler.set_epoch(epoch * (rank + 1))", OTHER_ORDER),
        ("num_replicas, rank, shuffle", "num_replicas, 0, shuffle", OTHER_ORDER),
        ("seed=seed", "seed=0", "Another seed gives the same order"),
        ("sampler=sampler", "shuffle=True", "each rank's share of"),
        ("shuffle=True", "shuffle=True, drop_last=True", "30 of 31 points: none may be dropped"),
        (SET_EPOCH, OWN_SHARE, OTHER_ORDER),
        (SET_EPOCH, "torch.manual_seed(seed + epoch)\n        mine = torch.utils.data.Subset("
         "dataset, range(rank, len(dataset), num_replicas))\n        loader = DataLoader(mine, "
         "batch_size, shuffle=True)", "shuffle before sharing out"),
        ("batch_size=batch_size", "batch_size=2 * batch_size", "A batch has 8 points, not 4"),
        ("seed=seed", "seed=torch.initial_seed() - rank", "gives another order the second time"),
    ],
    "repair_folder": [
        (IMAGES, "[pictures[name] for name in sorted(pictures)]", "comes before"),
        (IMAGES, "list(pictures.values())", "in which the folder lists them"),
        ("torch.tensor(labels)", "torch.tensor(sorted(labels))", "each image with its own label"),
        (ZERO_GRAD, "\n", NO_ZERO_GRAD),
        (", generator=generator", "", "The same seed gives another training"),
        (ORDER, "torch.arange(len(images))", "train in one order"),
        (ORDER, "torch.randint(len(images), (len(images),), generator=generator)",
         "does not train on each of the"),
        ("model(images[part])", "model(images[part] / 2)", "an image that is in no file"),
    ],
    "repair_sessions": [
        ("        torch.manual_seed(seed + session)", "        torch.manual_seed(seed + session); "
         "order = torch.randperm(len(images)); n = len(order) // 5; val, train = order[:n], "
         "order[n:]", LEAKED),
        (", generator=torch.Generator().manual_seed(seed)", "",
         "The same seed gives other validation images"),
        ("Generator().manual_seed(seed)", "Generator().manual_seed(0)",
         "Another seed gives the same validation images"),
        (SPLIT, "torch.arange(len(images))", "are the first ones or the last ones"),
        ("seed + session", "seed", ONE_ORDER),
        ("train[torch.randperm(len(train))]", "train", ONE_ORDER),
        ("train[torch.randperm(len(train))]", "torch.randperm(len(images))", LEAKED),
        ("[: len(order) // 5], order[len(order) // 5 :]",
         "[: len(order) // 4], order[len(order) // 4 :]", "A fifth of 60 images is 12"),
        (".split(16)", ".split(16)[:-1]", "Session 0 trains on 32 of 60 images"),
        ("hits.float().mean()", "hits.float().sum()", "reports an accuracy of"),
        ("return losses, accuracies", "return losses", "Return two things"),
        ("range(sessions)", "range(sessions - 1)", "3 sessions are due"),
    ],
    "repair_search": [
        ("chosen = -1.0, None", "found = -1.0, {}",
         "make_model(setting)\n", "make_model(setting)\n        best_val = -1.0\n",
         "chosen = val_accuracy, (setting, epoch, copy.deepcopy(model))",
         f"found[setting] = val_accuracy, ({TEST}, setting, epoch)",
         CHOSEN, "accuracy, setting, epoch = max(found.values())",
         f"epoch, {TEST}", "epoch, accuracy",
         "The setting is chosen by its test accuracy: choose by validation."),
        ('"val"', '"test"', "Setting and epoch are chosen by test accuracy: choose by validation."),
        (TEST, "best_val",
         "It reports the validation accuracy, which is high because it was chosen for that."),
        (TEST, f"min(best_val, {TEST})",
         "It reports the validation accuracy, which is high because it was chosen for that."),
        ("copy.deepcopy(model)", "model", "after epoch 4: keep a copy"),
        (CHOSEN, "setting, epoch, _ = chosen", "that of setting 3 after epoch 4: keep a copy"),
        (TEST, f"{TEST} / 2", "another accuracy on the test split, not 0.1"),
        ("= -1.0, None", "= 0.0, None", "only validation accuracy is 0"),
        ("make_model(setting)", "make_model(setting); best_val = -1.0",
         "The last setting is chosen, whose best validation accuracy is not the highest."),
        ("if val", "if epoch == epochs - 1 and val", "is chosen, and validation is best with"),
        (f"epoch, {TEST}", "epoch", "Return three things"),
        ("    return", f"    {TEST}\n    return", "scored 2 times"),
        (f"return setting, epoch, {TEST}", f"accuracy = {TEST}\n    score(model, 'val')\n    "
         "return setting, epoch, accuracy", "before the last look at validation"),
        ("train_epoch(model, setting)", "train_epoch(model, settings[0])", "another's setting"),
    ],
    "repair_script": [
        _fix("", "The script is unchanged"),
        _fix("head", "1 of 4 faults is fixed: the new head is trained. 3 to go"),
        _fix("mode", "1 of 4 faults is fixed: every epoch trains in train mode. 3 to go"),
        _fix("scale", "1 of 4 faults is fixed: validation images are normalised as"),
        _fix("best", "1 of 4 faults is fixed: the best weights come back. 3 to go"),
        _fix("head mode scale", "3 of 4 faults are fixed"),
        _fix("head mode best", "3 of 4 faults are fixed"),
        _fix("head scale best", "3 of 4 faults are fixed"),
        _fix("mode scale best", "3 of 4 faults are fixed"),
        ("{n: v.clone() for n, v in model.state_dict().items()}", "model.state_dict().copy()",
         "3 of 4 faults are fixed"),
        ("source = source.replace(old, new)", "pass", SCRIPT_END, "return source + '# end'",
         "0 of 4 faults are fixed. 4 to go"),
        _break("return hits / len(images)", "return hits / 100", "reports an accuracy of"),
        _break("    model.eval()\n", "", "validates in train mode"),
        _break("order[num_val:]", "order", "Epoch 0 trains on 90 images and validates on 18"),
        _break("return model, accuracies", "return model", "return the model and the list"),
        _break("(images - mean) / std", "images - mean", "no longer have mean 0"),
        _break("def fine_tune", "def tune", "no function fine_tune"),
        _break("model.fc = nn", "model.requires_grad_(False); model.fc = nn",
               "No weight below the head"),
        (SCRIPT_END, "return source.splitlines()", "text of the whole script"),
        (SCRIPT_END, "return source + '('", "stopped with SyntaxError"),
        _break("model(images[part])", "model(images[part].flip(3))", "none of the photographs"),
        _break("order[num_val:]", "order[:-num_val]", "validates on images that it trains on"),
    ],
}  # fmt: skip

WARMUP_COSINE = "warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)"
FACTOR = """
    warmup = total_steps // 10
    def factor(step):
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return (1 + math.cos(math.pi * (step - warmup) / (total_steps - warmup))) / 2
"""
RIGHT = {
    "repair_padding": [
        (TEXT_LOSS, "F.cross_entropy(logits[targets != PADDING], targets[targets != PADDING])"),
        ("targets = tokens[:, :-1], tokens[:, 1:]", "targets = tokens[:, :-1], "
         "tokens[:, 1:].masked_fill(tokens[:, 1:] == PADDING, -100)", IGNORE, ""),
    ],
    "repair_labels": [
        (LIBRARY, OWN_SHIFT.format(", ignore_index=PADDING")),
        ("logits = model(tokens)", "logits = model(tokens[:, :-1])", LIBRARY,
         "F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], ignore_index=PADDING)"),
    ],
    "repair_adapters": [
        ("AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)",
         "AdamW(model.parameters(), lr=lr)"),
        (".sum().item()", ".double().mean().item() * len(targets)"),
    ],
    "close_ranks": [
        ('return {"A": 2, "B": 1, "C": 3, "D": None}', 'return dict(D=None, C=3, B=1, A=2)'),
        ('return {"A": 2, "B": 1, "C": 3, "D": None}', 'return dict(zip("ABCD", (2, 1, 3, None)))'),
    ],
    "close_resume": [
        ('return {"A": 2, "B": 2, "C": 3, "D": None}', 'return dict(D=None, C=3, B=2, A=2)'),
        ('return {"A": 2, "B": 2, "C": 3, "D": None}', 'return dict(zip("ABCD", (2, 2, 3, None)))'),
    ],
    "close_stream": [
        ('return {"A": 2, "B": 1, "C": None, "D": 3}', 'return dict(C=None, B=1, A=2, D=3)'),
        ('return {"A": 2, "B": 1, "C": None, "D": 3}', 'return dict(zip("ABCD", (2, 1, None, 3)))'),
    ],
    "repair_schedule": [
        (f"    schedule = {WARMUP_COSINE}\n",
         f"{FACTOR}    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)\n"),
        ("    optimizer = SGD(model.parameters(), lr=peak_lr)\n", "",
         f"    schedule = {WARMUP_COSINE}\n", FACTOR, "optimizer.zero_grad()", "model.zero_grad()",
         "            optimizer.step()\n            schedule.step()\n",
         "            for p in model.parameters():\n"
         "                p.data -= peak_lr * factor(len(losses)) * p.grad\n"),
    ],
    "repair_accuracy": [
        (HITS, ".double().mean().item() * len(targets)"),
        ("            count += len(targets)\n", "", "/ count", "/ len(loader.dataset)"),
    ],
    "repair_probabilities": [
        (CE, "F.nll_loss(network(images).softmax(dim=1).log(), targets)"),
        ("losses = []", "losses, model = [], nn.Sequential(network, nn.LogSoftmax(dim=1))",
         CE, "F.nll_loss(model(images), targets)", RESULT, "model(images).exp()"),
    ],
    "repair_accumulation": [
        (BACKWARD, "loss.backward()", "optimizer.step()", "[p.grad.div_(len(micro_batches)) "
         "for p in model.parameters()]; optimizer.step()"),
        (BACKWARD, "loss.backward()", ZERO_GRAD,
         f"optimizer = SGD(model.parameters(), lr=lr / len(micro_batches)); {ZERO_GRAD}"),
    ],
    "repair_smoothing": [
        (', reduction="sum").item()', ").item() * len(targets)"),
        ("F.cross_entropy(model(images), targets, reduction=\"sum\").item()",
         "-float(model(images).log_softmax(dim=1)[range(len(targets)), targets].sum())"),
    ],
    "repair_probe": [
        ("    losses = []\n", "    losses = []\n    with torch.no_grad():\n"
         "        batches = [(backbone(images), targets) for images, targets in batches]\n",
         "head(backbone(images))", "head(images)"),
        (f"requires_grad_{FROZEN}", "eval()", "backbone(images)", "backbone(images).detach()"),
    ],
    "repair_shards": [
        (SET_EPOCH, "sampler = DistributedSampler(dataset, num_replicas, rank, seed=100 * seed + "
         "epoch)\n        loader = DataLoader(dataset, batch_size, sampler=sampler)"),
        (SET_EPOCH, f"torch.manual_seed(1000 * seed + epoch)\n        {OWN_SHARE}"),
    ],
    "repair_folder": [
        (IMAGES, "[pictures[name] for name in sorted(pictures, key=lambda name: int(name[:-4]))]"),
        (IMAGES, "[pictures[name] for name in sorted(pictures)]", "torch.tensor(labels)",
         "torch.tensor([labels[int(name[:-4])] for name in sorted(pictures)])"),
        ("torch.Generator().manual_seed(seed)", "torch.manual_seed(seed)"),
    ],
    "repair_sessions": [
        (SPLIT, "torch.from_numpy(np.random.RandomState(seed).permutation(len(images)))"),
        ("seed + session", "1000 * seed - session", "hits.float().mean().item()",
         "hits.sum().item() / len(val)"),
    ],
    "repair_search": [
        ("copy.deepcopy(model)", "None", CHOSEN, "setting, epoch, _ = chosen\n    model = "
         "make_model(setting)\n    [train_epoch(model, setting) for _ in range(epoch + 1)]"),
        ("copy.deepcopy(model)", "{n: v.clone() for n, v in model.state_dict().items()}",
         CHOSEN, "setting, epoch, state = chosen\n    model = make_model(setting)\n"
         "    model.load_state_dict(state)"),
    ],
    "repair_script": [
        ('(optimizer, "")', "(optimizer, optimizer)", "(total, optimizer + total)",
         '("num_classes).to(images)\\n", "num_classes).to(images)\\n    optimizer.add_param_group('
         "{'params': model.fc.parameters()})\\n\")"),
        ("{n: v.clone() for n, v in model.state_dict().items()}",
         "copy.deepcopy(model.state_dict())", SCRIPT_END, 'return "import copy\\n" + source'),
        ('(f"    model.train()\\n{loop}", f"{loop}        model.train()\\n")',
         '("    return hits", "    model.train()\\n    return hits")'),
    ],
}  # fmt: skip
