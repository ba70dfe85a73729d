"""Checks of the exercises of lesson 13."""

import copy
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from pickle import UnpicklingError

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, update_bn

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import Batches

__all__ = [
    "check_average_checkpoints",
    "check_choose_decay",
    "check_measure_ema",
    "check_train_averaged",
]

State = dict[str, Tensor]


@checks_exercise()
def check_measure_ema(answer: Callable) -> None:
    """``answer(config, data) -> (last, averaged, low, high)``: an EMA over the same seeds."""
    judge_experiment(run_experiment(answer))


# ---- ★ Averaging checkpoints.


def _make_states(count: int) -> list[State]:
    """Checkpoints of one small network; the last tensor is large, and in fp16."""
    states = []
    for number in range(count):
        network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        state["1.running_var"] = 1 + torch.rand(3)
        state["1.num_batches_tracked"] = torch.tensor(5 + 2 * number * number)
        state["mask"] = torch.tensor([number % 2 == 0])  # no counter, and no int64
        state["half"] = (40_000 + 1000 * torch.randn(3)).half()
        states.append(state)
    return states


def _average_states(
    states: Sequence[State],
    mean: Callable[[Tensor], Tensor] = lambda parts: parts.mean(dim=0),
    convert: Callable[[Tensor], Tensor] = lambda tensor: tensor.double(),
    chosen: Callable[[str], bool] = lambda name: True,
    others_of: int = -1,
) -> State:
    """The oracle, unless another mean, number format, choice of names or source of the rest."""
    averaged = {}
    for name, tensor in states[others_of].items():
        averaged[name] = tensor.clone()
        if tensor.is_floating_point() and chosen(name):
            parts = torch.stack([convert(state[name]) for state in states])
            averaged[name] = mean(parts).to(tensor.dtype)
    return averaged


def _average_integers_too(states: Sequence[State]) -> State:
    averaged = {}
    for name, tensor in states[-1].items():
        total = torch.zeros(tensor.shape, dtype=torch.float64)
        for one in states:
            total += one[name]
        averaged[name] = (total / len(states)).to(tensor.dtype)
    return averaged


def _flatten_state(state: State) -> Tensor:
    """All values in one vector; an overflow is a number that no right answer has."""
    return torch.cat([_scale(state[name]) for name in sorted(state)])


def _scale(tensor: Tensor) -> Tensor:
    flat = tensor.double().flatten().nan_to_num(posinf=-1e6)
    return torch.where(flat.abs() > 1000, flat / 1000, flat)


CHECKPOINT_FAULTS: Faults = (
    ("The tensors are summed: divide by the number of checkpoints.",
     partial(_average_states, mean=lambda parts: parts.sum(dim=0))),
    ("Each tensor is averaged with the result so far, so the last checkpoints count most: all "
     "have the same share.",
     partial(_average_states, mean=lambda parts: _halve_again_and_again(parts))),
    ("The first checkpoint is left out.",
     partial(_average_states, mean=lambda parts: parts[1:].mean(dim=0))),
    ("The last checkpoint is left out.",
     partial(_average_states, mean=lambda parts: parts[:-1].mean(dim=0))),
    ("That is the last checkpoint, and nothing is averaged.",
     partial(_average_states, chosen=lambda name: False)),
    ("The buffers are not averaged: BatchNorm's statistics are floating-point tensors too.",
     partial(_average_states, chosen=lambda name: "running" not in name)),
    ("BatchNorm's counter is averaged: take that of the last checkpoint.", _average_integers_too),
    ("BatchNorm's counter is that of the first checkpoint: take that of the last.",
     partial(_average_states, others_of=0)),
    ("A sum in fp16 overflows: add in float32 or float64, and convert the mean.",
     partial(_average_states, mean=lambda parts: _add_up(parts) / len(parts),
             convert=lambda tensor: tensor)),
)  # fmt: skip


def _add_up(parts: Tensor) -> Tensor:
    """The sum over the first dimension, in the tensor's own dtype after each addition."""
    total = torch.zeros_like(parts[0])
    for part in parts:
        total = total + part
    return total


def _halve_again_and_again(parts: Tensor) -> Tensor:
    average = parts[0]
    for part in parts[1:]:
        average = (average + part) / 2
    return average


@checks_exercise(faults=CHECKPOINT_FAULTS)
def check_average_checkpoints(answer: Callable) -> None:
    """``answer(states) -> state``: the mean of several state_dicts."""
    for count in (4, 1):
        states = _make_states(count)
        given = copy.deepcopy(states)
        found = answer(given)
        require(isinstance(found, dict), "Return a dictionary: is there a return?")
        require(
            found.keys() == states[0].keys(),
            "The names are not those of the checkpoints: keep each of them.",
        )
        for name, tensor in states[-1].items():
            require(
                isinstance(found[name], Tensor) and found[name].dtype == tensor.dtype,
                f"{name} has to stay a tensor of {tensor.dtype}.",
            )
        unchanged = len(given) == len(states) and all(
            one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in other)
            for one, other in zip(given, states, strict=True)
        )
        require(unchanged, "The given state_dicts are changed: average into new tensors.")
        right = _average_states(states)
        wrong = [
            name
            for name, tensor in right.items()
            if found[name].shape != tensor.shape
            or not torch.allclose(found[name].double(), tensor.double(), rtol=1e-4)
        ]
        diagnose(
            _flatten_state(found),
            lambda other: _flatten_state(other(states)),  # noqa: B023
            _average_states,
            CHECKPOINT_FAULTS,
            f"Not the mean over the checkpoints, or not that of the last: {', '.join(wrong)}.",
            case="" if count > 1 else "With one checkpoint:",
        )
        shared = any(found[n].data_ptr() == given[-1][n].data_ptr() for n in found)
        require(
            not shared,
            "The result shares memory with a checkpoint: clone what you do not average.",
        )
    _require_refusal(answer, [], "an empty list")
    one, other, last = _make_states(3)
    half = other.pop("half")
    for states in ([one, other], [other, one], [one, other, last], [one, other | {"full": half}]):
        _require_refusal(answer, states, "state_dicts with different names")


def _require_refusal(answer: Callable, states: list[State], what: str) -> None:
    try:
        answer(states)
    except ValueError:
        return
    except Exception as error:
        fail(f"With {what} it raises {type(error).__name__}: raise a ValueError that says why.")
    fail(f"With {what} it raises nothing: raise a ValueError.")


# ---- ★★ Choosing a decay.


def _choose_decay(total_steps: int, share: float, updates: int = -1) -> float:
    """The oracle: the copy is multiplied by the decay ``total_steps + updates`` times."""
    if total_steps == 1:
        return 0.0
    return share ** (1 / (total_steps + updates))


DECAY_FAULTS: Faults = (
    ("The first update copies the weights, so their share is multiplied by the decay one time "
     "less.",
     partial(_choose_decay, updates=0)),
    ("That is the decay by which the share of the first weights falls in one update: take the "
     "root.",
     lambda steps, share: 0.0 if steps == 1 else share),
    ("That is the share that the new weights get: return one minus it.",
     lambda steps, share: 0.0 if steps == 1 else 1 - _choose_decay(steps, share)),
    ("That is the rule of thumb: here the share of the first weights decides.",
     lambda steps, share: 1 - 1 / steps),
    ("That is the rule of thumb: here the share of the first weights decides.",
     lambda steps, share: 0.0 if steps == 1 else 1 - 10 / steps),
)  # fmt: skip


@checks_exercise(faults=DECAY_FAULTS)
def check_choose_decay(answer: Callable) -> None:
    """``answer(total_steps, start_share) -> decay``."""
    for steps, share in ((96, 0.01), (2, 0.25), (20_000, 0.05), (1, 0.1)):
        try:
            found = answer(steps, share)
        except (ArithmeticError, ValueError) as error:
            fail(f"With {steps:,} steps it stopped with {type(error).__name__}: {error}")
        require(found is not None, "Return a number: is there a return on every path?")
        if steps == 1:
            require(
                float(found) == 0,
                "With one step nothing is averaged: return 0.",
            )
            continue
        # A decay near 1 has its information in its distance from 1.
        diagnose(
            1 - float(found),
            lambda other: 1 - other(steps, share),  # noqa: B023
            _choose_decay,
            DECAY_FAULTS,
            f"With {steps:,} steps and a share of {share} the decay is "
            f"{_choose_decay(steps, share):.8f}, not {float(found):.8f}.",
            tolerance=2e-3,  # float32 is enough
            fault_tolerance=1e-6,
        )


# ---- ★★★ Finding the bugs.


def _train_averaged(
    model: nn.Module,
    batches: Batches,
    val_images: Tensor,
    val_targets: Tensor,
    path: Path,
    lr: float = 0.1,
    with_initial: bool = False,
    before_step: bool = False,
    first_step: Callable[[int], int] = lambda steps: steps // 2,
    statistics: bool = True,
    saved: Callable[[nn.Module, AveragedModel], nn.Module] = lambda model, averaged: (
        averaged.module
    ),
    validated: Callable[[nn.Module, AveragedModel], nn.Module] = lambda model, averaged: (
        averaged.module
    ),
    in_eval_mode: bool = True,
) -> float:
    """A right answer, unless an argument plants a fault."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    averaged = AveragedModel(model)
    if with_initial:
        averaged.update_parameters(model)
    model.train()
    for step, (images, targets) in enumerate(batches):
        optimizer.zero_grad()
        F.cross_entropy(model(images), targets).backward()
        if before_step and step >= first_step(len(batches)):
            averaged.update_parameters(model)
        optimizer.step()
        if not before_step and step >= first_step(len(batches)):
            averaged.update_parameters(model)
    if statistics:
        update_bn(batches, averaged)
    torch.save(saved(model, averaged).state_dict(), path)
    network = validated(model, averaged).train(not in_eval_mode)
    with torch.no_grad():
        return F.cross_entropy(network(val_images), val_targets).item()


# Faults of the weights that are saved, faults of the statistics, faults of the loss.
WEIGHT_FAULTS: Faults = (
    ("The file holds the last weights: save the averaged network.",
     partial(_train_averaged, saved=lambda model, averaged: model)),
    ("The initial weights are in the average: update it after steps of the second half only.",
     partial(_train_averaged, with_initial=True)),
    ("The average is updated before the optimizer's step: the last step is missing in it.",
     partial(_train_averaged, before_step=True)),
    ("The initial weights are in the average, and it is updated before the optimizer's step.",
     partial(_train_averaged, with_initial=True, before_step=True)),
    ("The average begins one step too late: the second half begins with step len(batches) // 2.",
     partial(_train_averaged, first_step=lambda steps: steps // 2 + 1)),
    ("All steps are averaged: take those of the second half.",
     partial(_train_averaged, first_step=lambda steps: 0)),
)  # fmt: skip
STATISTICS_FAULTS: Faults = (
    ("BatchNorm's statistics are those of the last weights: call update_bn for the average, "
     "before it is saved.",
     partial(_train_averaged, statistics=False)),
)  # fmt: skip
LOSS_FAULTS: Faults = (
    ("The loss is that of the last weights: validate the averaged network, which is saved.",
     partial(_train_averaged, validated=lambda model, averaged: model)),
    ("The loss is measured in train mode: averaged.eval() comes first.",
     partial(_train_averaged, in_eval_mode=False)),
)  # fmt: skip


@checks_exercise(faults=[*WEIGHT_FAULTS, *STATISTICS_FAULTS, *LOSS_FAULTS])
def check_train_averaged(answer: Callable) -> None:
    """``answer(model, batches, val_images, val_targets, path, lr) -> loss``."""
    for lr in (0.1, 0.5):
        _check_averaged_training(answer, lr)


def _check_averaged_training(answer: Callable, lr: float) -> None:
    batches = [(1 + 2 * torch.randn(8, 6), torch.arange(8) % 3) for _ in range(6)]
    val_images, val_targets = 1 + 2 * torch.randn(12, 6), torch.arange(12) % 3
    start = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    start.train(lr == 0.1)  # a network may come in either mode
    with tempfile.TemporaryDirectory() as folder:

        def run(other: Callable) -> tuple[State, float]:
            """What another answer saves, and the loss that it returns."""
            path = Path(folder) / "averaged.pt"
            path.unlink(missing_ok=True)
            loss = other(copy.deepcopy(start), batches, val_images, val_targets, path, lr)
            require(path.exists(), "Nothing is saved: torch.save(…, path).")
            try:
                return torch.load(path, weights_only=True), loss
            except UnpicklingError:
                fail("The file has to hold a state_dict, not the network itself.")

        state, loss = run(answer)
        require(
            isinstance(state, dict) and all(isinstance(t, Tensor) for t in state.values()),
            "The file has to hold a state_dict.",
        )
        require(
            state.keys() == start.state_dict().keys(),
            "The names in the file are not those of the network: save the state_dict of "
            "averaged.module.",
        )
        require(isinstance(loss, float), "Return the validation loss as a number: .item().")
        diagnose(
            _select(state, "running", False),
            lambda other: _select(run(other)[0], "running", False),
            _train_averaged,
            WEIGHT_FAULTS,
            "The saved weights are not the mean of those after each step of the second half.",
        )
        diagnose(
            _select(state, "running", True),
            lambda other: _select(run(other)[0], "running", True),
            _train_averaged,
            STATISTICS_FAULTS,
            "BatchNorm's statistics are not those of the averaged network on these batches.",
        )
        right = run(_train_averaged)[1]
        diagnose(
            loss,
            lambda other: run(other)[1],
            _train_averaged,
            LOSS_FAULTS,
            f"The validation loss is {right:.4f}, not {loss:.4f}.",
        )


def _select(state: State, word: str, having: bool) -> Tensor:
    """All floating-point tensors whose names have the word, or have it not, in one vector."""
    chosen = [
        tensor.flatten()
        for name, tensor in sorted(state.items())
        if tensor.is_floating_point() and (word in name) == having
    ]
    return torch.cat(chosen)
