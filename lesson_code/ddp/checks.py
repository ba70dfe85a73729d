"""Checks of the exercises of lesson 09: no processes, a fake group plays the other ranks."""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.utils.data import TensorDataset

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.group import Group, run_group
from course_utils.checking.outputs import Output

__all__ = [
    "check_average_gradients",
    "check_measure_scaling",
    "check_shard_indices",
    "check_train_rank",
]

TOLERANCE = 1e-6  # relative; everything here is float64


@checks_exercise()
def check_measure_scaling(answer: Callable) -> None:
    """``answer(config, data) -> (one, four, low, high)``: two global batches, the same seeds."""
    judge_experiment(run_experiment(answer))


# ---- ★ Deal out the images.

# images, ranks, epoch, seed: with and without padding, and more padding than a rank has images
SHARDS = ((21, 4, 3, 0), (21, 4, 3, 7), (12, 3, 0, 2), (3, 8, 2, 1))


@checks_exercise()
def check_shard_indices(answer: Callable) -> Iterator[Output]:
    """``answer(length, rank, size, epoch, seed) -> indices``, as from DistributedSampler."""
    for length, size, epoch, seed in SHARDS:
        for rank in range(size):
            # 0 is the default, which the answer must have too.
            arguments = (length, rank, size, epoch, seed) if seed else (length, rank, size, epoch)
            state = torch.get_rng_state()
            found = list(answer(*arguments))
            again = list(answer(*arguments))
            require(state.equal(torch.get_rng_state()), "Draw from a torch.Generator of your own.")
            whole = all(type(index) is int for index in found)
            require(whole, "Return a list of ints: a tensor has .tolist().")
            require(found == again, "Two calls give different indices: is the generator seeded?")
            case = f"{length} images, rank {rank} of {size}, epoch {epoch}, seed {seed}:"
            count = math.ceil(length / size)
            require(len(found) == count, f"{case} pad to {count}, not to {len(found)}.")
            # Padding is checked last.
            yield Output(found[: length // size], _explain_order(found, rank, size), case=case)
            yield Output(found[-1], "pad with the beginning, here {right}.", case=case)


def _explain_order(found: list[int], rank: int, size: int) -> str:
    """The sentence for wrong indices that no known wrong answer gives."""
    if found == sorted(found):
        return "nothing is shuffled."
    if all(index % size == rank for index in found):
        return "it is only shuffled within the rank."
    return (
        f"it must begin with DistributedSampler's indices, not with {found[:2]}: "
        "is the permutation that of torch.randperm, seeded with seed + epoch?"
    )


# ---- ★★ One bucket.

# Shapes of the parameters: the first two get no gradient, the gradients of the others have
# together 29 numbers.
SHAPES = ((5,), (2, 2), (3, 4), (4,), (), (2, 3, 2))
WEIGHT = 9.0  # every weight, so that a weight is not mistaken for a gradient
# The fake all_reduce adds 3.7 times this rank's gradients, as if the other ranks had sent them.
TOTAL_FACTOR = 4.7


@checks_exercise()
def check_average_gradients(answer: Callable) -> Iterator[Output]:
    """``answer(parameters, all_reduce, size)``: the mean in each ``.grad``, by one all-reduce."""
    # once: the parameters come as an iterator, as ``model.parameters()`` gives them.
    for size, once in itertools.product((3, 2), (False, True)):
        parameters = [nn.Parameter(torch.full(shape, WEIGHT).double()) for shape in SHAPES]
        unused, used = parameters[:2], parameters[2:]
        own = torch.arange(1, 30).double().sqrt()  # (29,), all different
        parts = own.split([parameter.numel() for parameter in used])
        for parameter, part in zip(used, parts, strict=True):
            parameter.grad = part.clone().view_as(parameter)
        calls: list[int] = []
        answer(iter(parameters) if once else parameters, partial(_all_reduce, calls), size)
        lost = " (parameters can be read only once)" if once else ""
        require(len(calls) == 1, f"all_reduce is called {len(calls)} times{lost}: make one bucket.")
        require(calls[0] == 29, f"The bucket has {calls[0]} elements, the gradients have 29.")
        unchanged = all((parameter == WEIGHT).all() for parameter in parameters)
        require(unchanged, "The weights change: the mean is for .grad.")
        still_none = all(parameter.grad is None for parameter in unused)
        require(still_none, "A .grad that is None must stay None.")
        found = torch.cat([_read_gradient(parameter) for parameter in used])  # (29,)
        right = own * TOTAL_FACTOR / size
        sentence = _explain_average(found, right, size)
        yield Output(found, sentence, case=f"The gradients{lost} are", tolerance=TOLERANCE)
        lossless = (found - right).abs().max() < 1e-12
        require(lossless, "Digits are lost: the bucket has another dtype.")


def _all_reduce(calls: list[int], tensor: Tensor) -> None:
    """Multiply the tensor, and note the number of its elements in ``calls``."""
    require(isinstance(tensor, Tensor), "all_reduce takes one tensor: join the gradients.")
    is_weight = (tensor == WEIGHT).any()
    require(not is_weight, "all_reduce gets the weights, not the gradients.")
    calls.append(tensor.numel())
    tensor.data *= TOTAL_FACTOR


def _read_gradient(parameter: nn.Parameter) -> Tensor:
    """A flat gradient; one that is gone or has another shape fails in one sentence."""
    shape = tuple(parameter.shape)
    if parameter.grad is None:
        fail(f"The .grad of a parameter of shape {shape} is None afterwards.")
    other = tuple(parameter.grad.shape)
    require(other == shape, f"The .grad of a parameter of shape {shape} has the shape {other}.")
    return parameter.grad.flatten()


def _explain_average(found: Tensor, right: Tensor, size: int) -> str:
    """The sentence for wrong gradients that no known wrong answer gives."""
    if torch.isin(found.float(), right.float()).all():
        return "at the wrong places: each part of the bucket belongs to the gradient it came from."
    ratios = found / right
    if ratios.max() - ratios.min() < 1e-6:
        return f"{ratios.mean():.3g} times the mean over {size} ranks."
    return "not the mean over the ranks."


# ---- ★★★ Four bugs on two ranks.

# The ranks train on 45 images: batches of 6 leave a shorter last one on 2 and on 3 ranks,
# and on 2 ranks the sampler repeats an image.
EPOCHS = 3
BATCH_SIZE = 6
IMAGES = 45
FEATURES = torch.arange(6 * IMAGES).double().sin().view(-1, 6)  # (N, 6), all different
# Targets (N,) that are learned quickly: the accuracy differs from step to step.
DATA = TensorDataset(FEATURES, FEATURES[:, ::2].argmax(dim=1))


def _run_ranks(answer: Callable, models: list[nn.Module], optional: list) -> list:
    """What each rank returns, in the order of the ranks."""
    size = len(models)

    def run(group: Group, rank: int) -> object:
        return answer(models[rank], DATA, rank, size, EPOCHS, BATCH_SIZE, group, *optional)

    return run_group([partial(run, rank=rank) for rank in range(size)])


def _build(seed: int) -> nn.Module:
    """A network whose first weight is a buffer, so that a forgotten buffer changes the outputs.

    Another buffer is an integer, as the number of batches in BatchNorm is.
    """
    first = nn.Linear(6, 5)
    weight = first.weight.detach()
    del first.weight
    first.register_buffer("weight", weight)
    model = nn.Sequential(first, nn.Tanh(), nn.Linear(5, 3)).double()
    for tensor in model.state_dict().values():
        tensor.normal_(generator=torch.Generator().manual_seed(seed))
    first.register_buffer("version", torch.tensor(seed + 1))
    return model


@checks_exercise()
def check_train_rank(answer: Callable) -> Iterator[Output]:
    """``answer(model, dataset, rank, size, epochs, batch_size, group, lr) -> accuracy``."""
    for size, *optional in ((2,), (3, 0.5)):  # without lr the answer takes its default
        models = [_build(rank) for rank in range(int(size))]  # no two start alike
        values = _run_ranks(answer, models, optional)
        states = [parameters_to_vector(model.state_dict().values()) for model in models]
        yield Output(
            torch.stack(states),
            "not those of one process: look at the images, the steps and the learning rate.",
            case="Weights:",
            tolerance=TOLERANCE,
        )
        for rank, value in enumerate(values):
            kind = type(value).__name__
            is_float = isinstance(value, float)
            require(
                is_float, f"Rank {rank} returns no float, but a {kind}: every rank returns a float."
            )
            case = f"Rank {rank} returns {value:.4f},"
            yield Output(value, "not {right}.", case=case, tolerance=TOLERANCE)
