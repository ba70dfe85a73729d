"""Checks of lesson 90 for scripts on text: a language model's targets, and an adapter's mode."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.oracles import flatten_parameters, is_pair, record_modes
from course_utils.checking.outputs import Output
from course_utils.data.tokens import pad_texts
from lesson_code.find_the_bug.checks.data import read_losses

__all__ = ["check_repair_adapters", "check_repair_labels", "check_repair_padding"]

VOCABULARY = 11
LENGTHS = (((5, 3, 4), (2, 9), (7, 7)), ((4, 4, 4), (3, 8, 5)), ((2, 6),))  # of texts, by case
OTHER_LOSS = "A returned loss is not the mean over the real next tokens, before the step."
OTHER_STEPS = "The weights are not those of AdamW on the mean over the real next tokens."
NO_PAIR = "Return two things: the list of losses and the validation accuracy."


class _Predictor(nn.Module):
    """From tokens (N, T) to logits (N, T, V), float64; each place sees its own token alone."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 6)
        self.out = nn.Linear(6, VOCABULARY)
        self.double()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.tokens(tokens).tanh())


def _train_predictor(answer: Callable) -> Iterator[Output]:
    """What an answer gives that trains on the next tokens, where the texts are padded."""
    for number, sizes in enumerate(LENGTHS):
        torch.manual_seed(number)
        model = _Predictor()
        texts = [[torch.randint(1, VOCABULARY, (n,)).numpy() for n in part] for part in sizes]
        batches = [pad_texts(part) for part in texts]
        losses = read_losses(answer(model, batches, 0.05), len(batches))
        yield Output(flatten_parameters(model), OTHER_STEPS)
        yield Output(losses, OTHER_LOSS)


@checks_exercise()
def check_repair_padding(answer: Callable) -> Iterator[Output]:
    """``answer(model, batches, lr) -> losses``: padding is no target."""
    yield from _train_predictor(answer)


@checks_exercise()
def check_repair_labels(answer: Callable) -> Iterator[Output]:
    """``answer(model, batches, lr) -> losses``: the labels are shifted once."""
    yield from _train_predictor(answer)


@checks_exercise()
def check_repair_adapters(answer: Callable) -> Iterator[Output]:
    """``answer(model, batches, val_batches, lr) -> (losses, accuracy)``: dropout only trains."""
    for sizes, val_sizes, training in (((8, 8, 8), (40, 9), False), ((6, 6), (33,), True)):
        torch.manual_seed(len(sizes))
        layers = nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4)
        model = nn.Sequential(*layers).double().train(training)
        model[0].requires_grad_(False)
        batches, val = (
            [(torch.randn(n, 5, dtype=torch.float64), torch.randint(4, (n,))) for n in part]
            for part in (sizes, val_sizes)
        )
        modes = record_modes(model)
        found = answer(model, batches, val, 0.1)
        require(is_pair(found), NO_PAIR)
        losses, accuracy = read_losses(found[0], len(batches)), float(found[1])
        require(len(modes) == len(batches) + len(val), "One forward pass for each batch is due.")
        what = "It is trained in eval mode: while it is trained, dropout must be on."
        require(all(modes[: len(batches)]), what)
        what = "The model is in train mode while it is validated, so dropout is on: no_grad turns "
        require(not any(modes[len(batches) :]), f"{what}gradients off, and nothing else.")
        what = "The weights are not those of AdamW on the parameters that are trained."
        yield Output(flatten_parameters(model), what)
        yield Output(losses, "A returned loss is not the loss of its batch before the step.")
        what = f"The share of all validation texts that are right is not {accuracy:.4f}."
        yield Output(accuracy, what, tolerance=1e-6)
