"""mixup: images and targets averaged with those of another image of the batch."""

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.transforms import v2

from tests.combinations.record import CLASSES, soften

SEAM = {"batch_transform": v2.MixUp(alpha=1.0, num_classes=CLASSES)}
NOT_FOR_TEXT = "it mixes pixels, and tokens are numbers of words"


def invariant(record):
    """Images and targets are mixed with the same neighbours by the same λ."""
    for (images, targets), (mixed, soft) in record.batches["mixup"]:
        rolled, rolled_targets = images.roll(1, 0), targets.roll(1, 0)
        lam = ((mixed - rolled) * (images - rolled)).sum() / (images - rolled).square().sum()
        torch.testing.assert_close(mixed, lam * images + (1 - lam) * rolled, atol=1e-4, rtol=0)
        expected = lam * targets + (1 - lam) * rolled_targets
        torch.testing.assert_close(soft, expected, atol=1e-4, rtol=0)
    assert "train_accuracy" not in record.run.metrics


def permute_images_only(images, targets):
    return 0.7 * images + 0.3 * images.roll(1, 0), soften(targets)


def swap_lam(images, targets):
    soft = soften(targets)
    return 0.7 * images + 0.3 * images.roll(1, 0), 0.3 * soft + 0.7 * soft.roll(1, 0)


FAULTS = [("batch_transform", permute_images_only), ("batch_transform", swap_lam)]


def draw_batch():
    """Images (8, 3, 4, 4) and classes of which neighbours differ."""
    return torch.randn(8, 3, 4, 4), torch.arange(8) % 5


def read_lam(images, mixed):
    """λ of a batch whose partners are the left neighbours."""
    rolled = images.roll(1, 0)
    return ((mixed - rolled) * (images - rolled)).sum() / (images - rolled).square().sum()


class Seen(nn.Module):
    """A linear network that keeps the images that it was given."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(48, 10)

    def forward(self, images):
        self.images = images
        return self.linear(images.flatten(1))


def check_pytorch_card(card):
    """Its step mixes images and targets alike; it validates in eval mode on unmixed images."""
    assert isinstance(card["mix_batch"], v2.MixUp)
    assert card["mix_batch"]._dist.concentration1 == 0.2
    model, (images, targets) = Seen(), draw_batch()
    optimizer = torch.optim.SGD(model.eval().parameters(), lr=0.0)
    loss = card["train_step"](model, optimizer, images.clone(), targets)
    assert model.training
    lam = read_lam(images, model.images)
    soft = F.one_hot(targets, 10).float()
    expected = F.cross_entropy(model(model.images), lam * soft + (1 - lam) * soft.roll(1, 0))
    torch.testing.assert_close(loss, expected.item(), atol=1e-4, rtol=0)
    assert model.linear.weight.grad.abs().sum() > 0
    before = model.linear.weight.grad.clone()
    card["train_step"](model, optimizer, images.clone(), targets)
    assert not torch.equal(before, model.linear.weight.grad), "another batch, another λ"

    assert not card["net"].training
    x, y = card["val_set"].tensors
    net = card["net"].cpu()
    with torch.no_grad():
        assert torch.cat(card["right"]).equal(net(x).argmax(dim=1) == y)


def check_lightning_card(card):
    """The training loss is that of the mixed batch; the validation loss that of the plain one."""
    model = Seen()
    lit = card["LitMixup"](model, num_classes=10, alpha=0.7, lr=0.25)
    assert lit.mix_batch._dist.concentration1 == 0.7
    logged = {}
    lit.log_dict = logged.update
    images, targets = draw_batch()
    soft = F.one_hot(targets, 10).float()
    loss = lit.training_step((images.clone(), targets), 0)
    lam = read_lam(images, model.images)
    expected = F.cross_entropy(model(model.images), lam * soft + (1 - lam) * soft.roll(1, 0))
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=0)
    lit.validation_step((images, targets), 0)
    assert set(logged) == {"val_loss", "val_accuracy"}
    torch.testing.assert_close(model.images, images)
    logits = model(images)
    torch.testing.assert_close(logged["val_loss"], F.cross_entropy(logits, targets))
    right = (logits.argmax(dim=1) == targets).float().mean()
    torch.testing.assert_close(logged["val_accuracy"], right)
    assert lit.configure_optimizers().param_groups[0]["lr"] == 0.25
    assert card["trainer"].callback_metrics["val_loss"] > 0
    sampler = card["trainer"].train_dataloader.sampler
    assert isinstance(sampler, torch.utils.data.RandomSampler), "partners change"
