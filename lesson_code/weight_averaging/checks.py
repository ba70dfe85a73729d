"""Checks of the exercises of lesson 13."""

import copy
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.outputs import Output

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


@checks_exercise()
def check_average_checkpoints(answer: Callable) -> Iterator[Output]:
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
        for name in states[0]:
            yield Output(
                found[name].double().nan_to_num(posinf=-1.0),  # an overflow is no right number
                f"Not the mean over the checkpoints, or not that of the last: {name}.",
                case="" if count > 1 else "With one checkpoint:",
            )
        require(
            not any(found[n].data_ptr() == given[-1][n].data_ptr() for n in found),
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


@checks_exercise()
def check_choose_decay(answer: Callable) -> Iterator[Output]:
    """``answer(total_steps, start_share) -> decay``."""
    for steps, share in ((96, 0.01), (2, 0.25), (20_000, 0.05), (1, 0.1)):
        try:
            found = answer(steps, share)
        except (ArithmeticError, ValueError) as error:
            fail(f"With {steps:,} steps it stopped with {type(error).__name__}: {error}")
        require(found is not None, "Return a number: is there a return on every path?")
        # A decay near 1 has its information in its distance from 1.
        distance = 1 - float(found)
        require(steps > 1 or distance == 1, "With one step nothing is averaged: return 0.")
        yield Output(
            distance,
            f"With {steps:,} steps and a share of {share} one minus the decay is {{right}}, not "
            f"{distance:.4g}.",
            tolerance=2e-3,  # float32 is enough
            fault_tolerance=1e-6,
        )


# ---- ★★★ Finding the bugs.


@checks_exercise()
def check_train_averaged(answer: Callable) -> Iterator[Output]:
    """``answer(model, batches, val_images, val_targets, path, lr) -> loss``."""
    for lr in (0.1, 0.5):
        batches = [(1 + 2 * torch.randn(8, 6), torch.arange(8) % 3) for _ in range(6)]
        val_images, val_targets = 1 + 2 * torch.randn(12, 6), torch.arange(12) % 3
        model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
        model.train(lr == 0.1)  # a network may come in either mode
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "averaged.pt"
            loss = answer(model, batches, val_images, val_targets, path, lr)
            require(path.exists(), "Nothing is saved: torch.save(…, path).")
            try:
                state = torch.load(path, weights_only=True)
            except UnpicklingError:
                fail("The file has to hold a state_dict, not the network itself.")
        require(
            isinstance(state, dict) and all(isinstance(t, Tensor) for t in state.values()),
            "The file has to hold a state_dict.",
        )
        require(
            state.keys() == model.state_dict().keys(),
            "The names in the file are not those of the network: save the state_dict of "
            "averaged.module.",
        )
        require(isinstance(loss, float), "Return the validation loss as a number: .item().")
        yield Output(
            torch.cat([state[name].flatten() for name, _ in model.named_parameters()]),
            "The saved weights are not the mean of those after each step of the second half.",
            tolerance=1e-4,
        )
        yield Output(
            torch.cat([state["1.running_mean"], state["1.running_var"]]),
            "BatchNorm's statistics are not those of the averaged network on these batches.",
            tolerance=1e-4,
        )
        yield Output(loss, f"The validation loss is {{right}}, not {loss:.4f}.", tolerance=1e-4)
