"""Checks of the exercises of lesson 21."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import Batches, flatten_parameters
from course_utils.checking.outputs import Output
from course_utils.data.tokens import END, MASK
from course_utils.models.text_small import PADDING

__all__ = [
    "check_accumulate_by_tokens",
    "check_make_mask",
    "check_text_experiment",
    "check_train_language_model",
]

# One training takes 1.5 s on one core; two epochs and 200 validation texts would take 5 s.
TINY_TEXTS = {"dataset": "glosses", "model": "text_small", "num_val": 100, "epochs": 1}
VOCABULARY, WIDTH = 8, 3
IGNORED = -100  # cross_entropy leaves out these targets
# Of each micro-batch the shape (N, T), and how many of its tokens are predicted.
MICRO_BATCHES = (
    (((4, 3), 9), ((2, 9), 4), ((3, 5), 6)),
    (((2, 6), 3), ((3, 4), 0), ((1, 8), 5)),
)
NO_MEAN = "a micro-batch that predicts nothing has no mean. Sum its losses, and divide once."
TEXTS = ((5, 3, 6, 4, 7, 3, END), (6, 4, END), (3, 7, 7, 5, END))
EPOCHS, LR = 3, 0.5


@checks_exercise()
def check_text_experiment(answer: Callable) -> None:
    """``answer(config, data) -> (one, other, low, high)``: two variants over the same seeds."""
    judge_experiment(run_experiment(answer, **TINY_TEXTS))


# ---- ★ Which tokens a token sees.


@checks_exercise()
def check_make_mask(answer: Callable) -> Iterator[Output]:
    """``answer(tokens, is_causal) -> mask``: bool ``(N, 1, T, T)``, True where t may see s."""
    tokens = torch.tensor([
        [5, 7, MASK, 4, END],
        [6, END, PADDING, PADDING, PADDING],
        [PADDING, PADDING, MASK, 5, END],
    ])  # fmt: skip
    count, length = tokens.shape
    for is_causal in (False, True):
        found = answer(tokens.clone(), is_causal)
        case = f"With is_causal={is_causal}:"
        require(isinstance(found, Tensor), "Return a tensor: the mask.")
        shape = (count, 1, length, length)
        require(
            found.shape == shape,
            f"{case} The mask of tokens {(count, length)} has the shape {shape}, not "
            f"{tuple(found.shape)}.",
        )
        require(
            found.dtype == torch.bool, f"{case} The mask is of the type bool, not {found.dtype}."
        )
        yield Output(
            found,
            "A token sees others than it should. Print mask[1, 0], of a text of two tokens and "
            "three of padding: rows see, columns are seen.",
            case,
        )


# ---- ★★ The mean over the tokens of all micro-batches.


class _Once(Iterator):
    """Batches that can be read once, as those of a loader: a second loop is told so."""

    def __init__(self, batches: Iterable) -> None:
        self.batches = iter(batches)
        self.has_ended = False

    def __next__(self) -> tuple[Tensor, Tensor]:
        if self.has_ended:
            fail("micro_batches can be read only once, and a second loop over it finds nothing.")
        try:
            return next(self.batches)
        except StopIteration:
            self.has_ended = True
            raise


def _make_micro_batches(shapes: Sequence[tuple[tuple[int, int], int]]) -> Batches:
    """Tokens and targets ``(N, T)``; the last token of the first text is padding."""
    batches = []
    for (count, length), predicted in shapes:
        tokens = torch.randint(3, VOCABULARY, (count, length))
        tokens[0, -1] = PADDING
        is_target = torch.zeros(tokens.numel(), dtype=torch.bool)
        is_target[tokens.flatten().nonzero()[:, 0][:predicted]] = True
        targets = tokens.roll(1).masked_fill(~is_target.view_as(tokens), IGNORED)
        batches.append((tokens, targets))
    return batches


@checks_exercise()
def check_accumulate_by_tokens(answer: Callable) -> Iterator[Output]:
    """``answer(model, micro_batches) -> loss``, with its gradients in ``model``."""
    for shapes in MICRO_BATCHES:
        torch.manual_seed(0)  # the case is the same, whatever an answer has drawn before
        embedding, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        head.bias.requires_grad_(False)
        model = nn.Sequential(embedding, head).double()
        start = flatten_parameters(model).clone()
        backwards: list[int] = []
        head.weight.register_post_accumulate_grad_hook(lambda _, calls=backwards: calls.append(1))
        found = answer(model, _Once(_make_micro_batches(shapes)))
        require(start.equal(flatten_parameters(model)), "The weights have changed: take no step.")
        require(backwards, "The model has no gradients: call backward for each micro-batch.")
        needed = sum(predicted > 0 for _, predicted in shapes)
        require(
            len(backwards) >= needed,
            "One backward for several micro-batches keeps all their activations in memory: call it "
            "for each of them.",
        )
        gradients = [p.grad for p in (embedding.weight, head.weight) if p.grad is not None]
        require(len(gradients) == 2, "A gradient is None at the end: do not remove it.")
        gradient = torch.cat([part.flatten() for part in gradients])
        require(gradient.isfinite().all(), f"The gradient is nan: {NO_MEAN}")
        yield Output(
            gradient,
            "The gradients are not those of the mean loss over all predicted tokens of all "
            "micro-batches.",
        )
        require(
            isinstance(found, float), f"Return the loss as a float, not {type(found).__name__}."
        )
        require(np.isfinite(found), f"The returned loss is nan: {NO_MEAN}")
        yield Output(
            found,
            f"The gradients are right, and the returned loss is {found:.4g}: the mean over all "
            "predicted tokens is {right}.",
        )


# ---- ★★★ Finding the bugs.


class _Reader(nn.Module):
    """Logits ``(N, T, V)`` from each token and the mean of those that it sees.

    In training mode its dropout always drops the same number.
    """

    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.causal = False
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.fc = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("kept", torch.tensor([0.0, 1.5, 1.5]))

    def forward(self, tokens: Tensor) -> Tensor:
        own = self.tokens(tokens)  # (N, T, D)
        seen = (tokens != PADDING)[:, None].expand(-1, tokens.shape[1], -1).to(own)  # (N, T, T)
        if self.causal:
            seen = seen.tril()
        x = own + seen @ own / seen.sum(dim=2, keepdim=True).clamp(min=1)
        return self.fc(x * self.kept if self.training else x)


@checks_exercise()
def check_train_language_model(answer: Callable) -> Iterator[Output]:
    """``answer(model, texts, epochs, lr) -> losses``, and the model is trained in place."""
    for was_causal in (False, True):
        torch.manual_seed(0)
        model = _Reader().double().train(was_causal)
        model.causal = was_causal
        found = answer(model, [np.array(text) for text in TEXTS], EPOCHS, LR)
        yield Output(
            flatten_parameters(model),
            "The weights are not those of a causal model that is trained on each next token.",
        )
        require(
            isinstance(found, list | tuple) and len(found) == EPOCHS,
            "Return a list with one loss per epoch.",
        )
        yield Output(
            [float(loss) for loss in found],
            "The weights are right, and the losses are not those after each epoch, over the real "
            "tokens and in evaluation mode.",
        )
        require(
            model.causal is was_causal,
            f"model.causal was {was_causal} before and is {model.causal} afterwards: set it back.",
        )
