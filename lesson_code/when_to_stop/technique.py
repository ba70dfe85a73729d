"""Cross-validation: a fold of the training images is left out of the training."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from course_tools.study.lesson_code import read_definitions
from tests.combinations.record import BATCHES

LESSON = read_definitions("18_when_to_stop")


FOLDS = 4


FOLD = 1


class Watched:
    """A loader that keeps what it delivers, and the mean and std that it normalised with."""

    def __init__(self, data, seed):
        self.data, self.delivered = data, []
        size = len(data.train) // BATCHES
        self.loader = data.train_loader(seed, batch_size=size, max_shift=0)

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for batch in self.loader:
            self.delivered.append(batch[0])
            yield batch


def assign(data):
    return LESSON["assign_folds"](data.train.targets, FOLDS)


def leave_out(data, seed, split=LESSON["split_fold"]):
    """The data seam: training batches of the other folds."""
    return Watched(split(data, assign(data), FOLD), seed)


SEAM = {"make_loader": leave_out}
NOT_FOR_TEXT = "it leaves out a fold of images"


def sum_pixels(images):
    """One number per image (N, 3, H, W), the same for a flipped one; sorted."""
    return sorted(images.double().sum(dim=(1, 2, 3)).round().tolist())


def invariant(record):
    """Every image of the other folds once and no other, normalised with their own numbers."""
    others = record.data.train.images[assign(record.data) != FOLD]
    delivered = torch.cat(record.loader.delivered).float()
    mean, std = (
        torch.tensor(numbers)[:, None, None]
        for numbers in (record.loader.data.mean, record.loader.data.std)
    )
    pixels = 255 * (delivered * std + mean)
    assert sum_pixels(pixels.round()) == sum_pixels(torch.from_numpy(others).permute(0, 3, 1, 2))
    torch.testing.assert_close(delivered.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    variance = delivered.var(dim=(0, 2, 3), correction=0)
    torch.testing.assert_close(variance, torch.ones(3), atol=1e-3, rtol=0)


def leak_statistics(data, fold_of, fold):
    """Normalised with the numbers of all images."""
    part = LESSON["split_fold"](data, fold_of, fold)
    return replace(part, mean=data.mean, std=data.std)


def leak_image(data, fold_of, fold):
    """An image of the fold takes the place of another one."""
    moved = fold_of.copy()
    inside, outside = (fold_of == fold).argmax(), (fold_of != fold).argmax()
    moved[inside], moved[outside] = moved[outside], moved[inside]
    return LESSON["split_fold"](data, moved, fold)


def train_on_fold(data, fold_of, fold):
    return LESSON["split_fold"](data, fold_of == fold, 0)


def leave_other_out(data, fold_of, fold):
    return LESSON["split_fold"](data, fold_of, fold + 1)


FAULTS = [
    ("make_loader", Watched),  # nothing is left out
    ("make_loader", partial(leave_out, split=leak_statistics)),
    ("make_loader", partial(leave_out, split=leak_image)),
    ("make_loader", partial(leave_out, split=train_on_fold)),
    ("make_loader", partial(leave_out, split=leave_other_out)),
]


def check_pytorch_card(card):
    """It stops after ten epochs without a lower loss, and has the weights of the lowest."""
    torch.manual_seed(0)
    x, y = torch.randn(80, 3), torch.randint(2, (80,))
    net = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.3)
    losses, weights = [], []
    for _ in range(100):
        optimizer.zero_grad()
        F.cross_entropy(net(x[:40]), y[:40]).backward()
        optimizer.step()
        losses.append(F.cross_entropy(net(x[40:60]), y[40:60]).item())
        weights.append(net.weight.detach().clone())
    stopped, best = LESSON["find_stop"]([-loss for loss in losses], patience=10)
    assert 1 < best < stopped < 100
    assert (card["epoch"], card["best_epoch"]) == (stopped, best)
    torch.testing.assert_close(card["net"].weight.detach(), weights[best - 1])
    assert not card["net"].training


def check_lightning_card(card):
    """What is loaded is the checkpoint with the lowest loss, and the training stopped early."""
    stopping, saving = card["stopping"], card["saving"]
    assert 0 < stopping.stopped_epoch < 99
    assert stopping.patience == 10
    best = card["best"]
    [(inputs, targets)] = card["val"]
    loss = F.cross_entropy(best.model(inputs.to(best.device)).cpu(), targets)
    torch.testing.assert_close(loss, saving.best_model_score.cpu())
    torch.testing.assert_close(loss, stopping.best_score.cpu())
    assert Path(saving.best_model_path).exists()
    epoch = int(Path(saving.best_model_path).name.split("=")[1].split("-")[0])
    assert epoch == stopping.stopped_epoch - 10
