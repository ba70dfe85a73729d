"""Checks of lesson 90. Here: answers that draw no random numbers, compared with stored outputs."""

import math
from collections.abc import Callable, Iterator
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, TensorDataset

from course_utils.checking.checking import CheckFailed, checks_exercise, fail, require
from course_utils.checking.oracles import Batches, flatten_parameters, is_pair, record_modes
from course_utils.checking.outputs import Output
from lesson_code.find_the_bug.checks.cases import (
    check_close_ranks,
    check_close_resume,
    check_close_stream,
)
from lesson_code.find_the_bug.checks.data import (
    OTHER_LOSSES,
    check_repair_folder,
    check_repair_sessions,
    check_repair_shards,
    read_losses,
)
from lesson_code.find_the_bug.checks.language import (
    check_repair_adapters,
    check_repair_labels,
    check_repair_padding,
)
from lesson_code.find_the_bug.checks.script import check_repair_script, load_script, read_script

__all__ = [
    "check_close_ranks",
    "check_close_resume",
    "check_close_stream",
    "check_repair_accumulation",
    "check_repair_accuracy",
    "check_repair_adapters",
    "check_repair_folder",
    "check_repair_labels",
    "check_repair_padding",
    "check_repair_probabilities",
    "check_repair_probe",
    "check_repair_schedule",
    "check_repair_script",
    "check_repair_search",
    "check_repair_sessions",
    "check_repair_shards",
    "check_repair_smoothing",
    "load_script",
    "read_script",
]

LR = 0.3
PEAK_LR = 0.4
MICRO_BATCH = 4  # points in each
TOGETHER = "Micro-batches go through the model together: what saves memory is one after the other."
HELD = (
    "A micro-batch goes through the model before the backward pass of the last one: "
    "the activations of both are held."
)
OTHER_STEP = "The weights are not those of one SGD step for the mean loss of its micro-batches."


def _draw_batches(*sizes: int) -> Batches:
    """Batches of points (N, 3), float64, and targets (N,) of four classes."""
    return [(torch.randn(n, 3, dtype=torch.float64), torch.randint(4, (n,))) for n in sizes]


def _make_network() -> nn.Module:
    """From points (N, 3) to logits (N, 4), float64."""
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4)).double()


def _record_learning_rates(answer: Callable, *arguments: object) -> tuple[object, list[float]]:
    """What the answer returns, and the learning rate of each step that an optimizer takes in it."""
    learning_rates: list[float] = []

    def note(optimizer: Optimizer, *_: object) -> None:
        learning_rates.append(float(optimizer.param_groups[0]["lr"]))

    handle = register_optimizer_step_pre_hook(note)  # of all optimizers: an answer makes its own
    try:
        return answer(*arguments), learning_rates
    finally:
        handle.remove()


# ---- The optimizer's steps.


@checks_exercise()
def check_repair_schedule(answer: Callable) -> Iterator[Output]:
    """``answer(model, batches, epochs, peak_lr) -> losses``: warm-up and cosine over all steps."""
    for count, epochs in ((11, 4), (7, 6), (2, 4)):
        torch.manual_seed(count)
        model, batches = _make_network(), _draw_batches(*(8,) * count)
        found, learning_rates = _record_learning_rates(answer, model, batches, epochs, PEAK_LR)
        what = "The weights are not those of SGD at the planned learning rates"
        if learning_rates:  # those of steps without an optimizer are not seen
            peak = max(learning_rates)
            what += f": {len(learning_rates)} steps take {len(set(learning_rates))} different ones"
            what += f", the highest is {peak:.4g} at step {learning_rates.index(peak)}"
        yield Output(flatten_parameters(model), f"{what}.")
        yield Output(read_losses(found, epochs * count), OTHER_LOSSES)


class _Graph:
    """Lives as long as the graph of a forward pass, by a hook of that graph."""


def _watch_graphs(model: nn.Module) -> None:
    """Fail in a forward pass of several micro-batches, or while the graph of another one waits."""
    waiting: WeakSet[_Graph] = WeakSet()

    def note(_: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> None:
        require(len(inputs[0]) <= MICRO_BATCH, TOGETHER)
        require(not waiting, HELD)
        if outputs.requires_grad:
            graph = _Graph()
            waiting.add(graph)
            outputs.register_hook(lambda _: waiting.discard(graph))

    model.register_forward_hook(note)


@checks_exercise()
def check_repair_accumulation(answer: Callable) -> Iterator[Output]:
    """``answer(model, batches, size, lr) -> losses``: a step takes ``size`` micro-batches."""
    for count, size in ((6, 3), (7, 3), (5, 1), (3, 8)):  # a last step may have fewer
        torch.manual_seed(count)
        model, micro_batches = _make_network(), _draw_batches(*(MICRO_BATCH,) * count)
        _watch_graphs(model)
        found, learning_rates = _record_learning_rates(answer, model, micro_batches, size, LR)
        windows = f"{count} micro-batches with {size} accumulation steps"
        due, taken = math.ceil(count / size), len(learning_rates)
        require(taken <= due, f"{windows} give {due} optimizer steps, here {taken} are taken.")
        yield Output(flatten_parameters(model), OTHER_STEP, case=f"{windows}:")
        what = "A returned loss is not the mean loss of its micro-batch before the step."
        yield Output(read_losses(found, count), what)


# ---- What is measured, and what is reported.


@checks_exercise()
def check_repair_accuracy(answer: Callable) -> Iterator[Output]:
    """``answer(model, loader) -> share``: each point counts once, whatever the batch size."""
    for count, size, training in ((33, 10, True), (33, 16, False), (24, 8, True), (5, 9, False)):
        torch.manual_seed(size)
        # Dropout and statistics of other data: in train mode the outputs differ.
        norm = nn.BatchNorm1d(8)
        model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(), norm, nn.Linear(8, 4)).double()
        norm.get_buffer("running_mean").uniform_(-1, 1)
        points, _ = _draw_batches(count)[0]
        predictions = model.train(False)(points).argmax(dim=1)  # (N,)
        # Some points get another class than the model's, in each batch another share of them.
        is_wrong = torch.arange(count) ** 2 % 7 < 2
        dataset = TensorDataset(points, torch.where(is_wrong, (predictions + 1) % 4, predictions))
        model.train(training)
        modes = record_modes(model)
        found = answer(model, DataLoader(dataset, batch_size=size))
        require(not any(modes), "The model is in train mode while it is measured: model.eval().")
        left = not training and any(part.training for part in model.modules())
        require(not left, "The model came in eval mode, and is in train mode afterwards.")
        require(found is not None, "Nothing came back: is there a return?")
        right, share = count - int(is_wrong.sum()), float(found)
        what = f"{right} points are right, {right / count:.4f}, not {share:.4f}."
        yield Output(share, what, case=f"{count} points in batches of {size}:", tolerance=1e-6)


@checks_exercise()
def check_repair_smoothing(answer: Callable) -> Iterator[Output]:
    """``answer(model, train, val, smoothing, lr) -> (losses, validation loss)``."""
    for smoothing, val_sizes in ((0.3, (8, 3)), (0.1, (5, 5, 1)), (0.0, (9, 4))):
        torch.manual_seed(len(val_sizes))
        model, train, val = _make_network(), _draw_batches(*(8,) * 4), _draw_batches(*val_sizes)
        modes = record_modes(model)
        found = answer(model, list(train), list(val), smoothing, LR)
        due = "Return two things: the list of training losses and the validation loss."
        require(is_pair(found), due)
        losses, reported = read_losses(found[0], len(train)), float(found[1])
        what = "The weights are not those of SGD on the smoothed loss of each training batch."
        yield Output(flatten_parameters(model), what)
        what = "For each step, the smoothed loss of its batch is due, before the step"
        yield Output(losses, f"{what}: here the first is {losses[0]:.6g}.")
        what = "is not the mean cross-entropy over points of the trained network."
        yield Output(reported, f"{reported:.4f} {what}", tolerance=1e-6)
        require(all(modes[: len(train)]), "The network is trained in eval mode.")
        measured = modes[len(train) :]
        require(not any(measured), "The validation points are measured in train mode.")


class _Run(nn.Module):
    """A model that knows how it was trained; as a module it can be copied in every usual way."""

    place: Tensor  # (2,): its setting and its last epoch, −1 before the first

    def __init__(self, setting: int) -> None:
        super().__init__()
        self.register_buffer("place", torch.tensor([setting, -1]))


def _list_choices(answer: Callable, settings: int, epochs: int, least: float) -> Iterator[Output]:
    """``least``: the lowest validation accuracy; on the test split it is above 0.3."""
    torch.manual_seed(settings)
    # Accuracies (settings, epochs), all different. What is best on one split is worst on the
    # other, and no value occurs in both. The chosen one may be higher on either split.
    cells = settings * epochs
    order = torch.randperm(cells).view(settings, epochs).double() / cells
    splits = {"val": least + 0.2 * order, "test": 0.5 - 0.2 * order + 0.05 / cells}
    looks: list[str] = []  # the splits that are scored, in order

    def train_epoch(model: _Run, setting: int) -> None:
        require(int(model.place[0]) == setting, "A model is trained with another's setting.")
        model.place[1] += 1

    def score(model: _Run, split: str) -> float:
        looks.append(split)
        return splits[split][tuple(model.place.tolist())].item()

    try:
        found = answer(_Run, train_epoch, score, list(range(settings)), epochs)
    except Exception as error:
        if least or isinstance(error, CheckFailed):
            raise
        what = f"it stops with {type(error).__name__}: {error}."
        fail(f"Where the only validation accuracy is 0, {what}")
    due = "Return three things: the setting, its epoch and the accuracy to report."
    require(isinstance(found, tuple | list) and len(found) == 3, due)
    setting, epoch, accuracy = int(found[0]), int(found[1]), float(found[2])
    best, its_epoch = divmod(int(splits["val"].argmax()), epochs)
    due = f"validation is best with setting {best} after epoch {its_epoch}"
    what = f"Setting {setting} after epoch {epoch} is chosen, and {due}."
    yield Output([setting, epoch], what)
    what = f"The chosen model has another accuracy on the test split, not {accuracy:.3f}"
    for other, after in (splits["test"] - accuracy).abs().lt(1e-6).nonzero().tolist():
        what += f", which is that of setting {other} after epoch {after}: keep a copy"
    yield Output(accuracy, f"{what}.", tolerance=1e-6)
    times = looks.count("test")
    require(times == 1, f"The test split is scored {times} times: once, when all is chosen.")
    what = "The test split is scored before the last look at validation: choose first."
    require(looks[-1] == "test", what)


@checks_exercise()
def check_repair_search(answer: Callable) -> Iterator[Output]:
    """``answer(make_model, train_epoch, score, settings, epochs)``: chosen, then tested once."""
    for case in ((4, 5, 0.45), (6, 3, 0.05), (3, 4, 0.6), (1, 6, 0.1), (1, 1, 0.0)):
        yield from _list_choices(answer, *case)


# ---- What a model puts out, and what it carries along.


@checks_exercise()
def check_repair_probabilities(answer: Callable) -> Iterator[Output]:
    """``answer(network, points, targets, steps, lr) -> (losses, probabilities (N, C))``."""
    # Points that are 200 times as far out get probabilities near 0.
    for steps, lr, spread in ((25, 1.0, 1), (1, 0.5, 200), (8, 0.1, 1)):
        torch.manual_seed(steps)
        network, (points, targets) = _make_network(), _draw_batches(12)[0]
        found = answer(network, spread * points, targets, steps, lr)
        require(is_pair(found), "Return two things: the losses and the probabilities.")
        losses, probabilities = read_losses(found[0], steps), torch.as_tensor(found[1])
        what = "A loss is below 0: nll_loss takes the logarithms of probabilities."
        require((losses >= 0).all(), what)
        other_loss = "A returned loss is not the mean of −ln p before the step."
        yield Output(losses[0], other_loss)
        what = "The weights are not those of SGD on the cross-entropy of the network's logits."
        yield Output(flatten_parameters(network), what)
        yield Output(losses, other_loss)
        what = "The probabilities still carry their history of gradients: leave it out"
        require(not probabilities.requires_grad, f"{what}, as the script.")
        shape = tuple(probabilities.shape)
        require(shape == (12, 4), f"The probabilities have the shape {shape}, not (12, 4).")
        what = "The probabilities are not the trained network's."
        if not torch.allclose(probabilities.sum(dim=1), probabilities.new_ones(12)):
            what = "A row of the probabilities does not sum to 1."
        yield Output(probabilities, what)


def _require_unmoved(backbone: nn.Module, before: dict[str, Tensor]) -> None:
    """Neither parameters nor statistics differ from those in ``before``."""
    state = backbone.state_dict()
    moved = [name for name, tensor in state.items() if not tensor.equal(before[name])]
    parameters = {name for name, _ in backbone.named_parameters()}
    trained = ", ".join(name for name in moved if name in parameters)
    require(not trained, f"The backbone is to be frozen, and is trained: {trained}.")
    statistics = ", ".join(moved)
    require(not moved, f"The backbone has no gradient and still moves: {statistics}.")


@checks_exercise()
def check_repair_probe(answer: Callable) -> Iterator[Output]:
    """``answer(backbone, head, batches, epochs, lr) -> losses``: a backbone that holds still."""
    for sizes, epochs, training in (((8, 8, 5), 2, True), ((12,), 5, False)):
        torch.manual_seed(epochs)
        # The backbone has statistics of other data, and a dropout that only eval mode turns off.
        norm, dropout, own_norm = nn.BatchNorm2d(5), nn.Dropout(), nn.BatchNorm1d(3)
        layers = nn.Conv2d(3, 5, 2), norm, nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        backbone = nn.Sequential(*layers, dropout).double().train(training)
        norm.get_buffer("running_mean").uniform_(-1, 1)
        norm.get_buffer("running_var").uniform_(0.2, 2)
        head = nn.Sequential(nn.Linear(5, 3), own_norm, nn.ReLU(), nn.Linear(3, 4)).double()
        head.train(training)
        targets = [torch.randint(4, (n,)) for n in sizes]
        batches = [(torch.randn(len(y), 3, 4, 5, dtype=torch.float64), y) for y in targets]
        before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
        norm_modes, dropout_modes, head_modes = map(record_modes, (norm, dropout, own_norm))

        losses = read_losses(answer(backbone, head, batches, epochs, 0.2), epochs * len(sizes))
        _require_unmoved(backbone, before)
        what = "The head is trained in eval mode: its own BatchNorm has to learn its statistics."
        require(all(head_modes[: len(losses)]), what)
        what = "The head is not that of SGD, batch by batch, on the features of validation."
        if any(norm_modes):
            what = "The head learns features made with each batch's statistics, and will be given "
            what += "others."
        elif any(dropout_modes):
            what = "The head learns features after dropout, and at validation nothing is dropped "
            what += "out."
        yield Output(flatten_parameters(head), what)
        yield Output(losses, OTHER_LOSSES)
        what = "Gradients are left in the backbone's parameters: it is to be frozen."
        require(all(p.grad is None for p in backbone.parameters()), what)
        left = not training and any(part.training for part in backbone.modules())
        require(not left, "The backbone came in eval mode, and is in train mode afterwards.")
