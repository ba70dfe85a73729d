"""The workbench of lesson 90: with what each script starts, and the curves that its author sees.

A script and its corrected version start alike: the same weights, the same data, the same order.
"""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, TensorDataset

from course_utils.data.image_data import ImageData
from course_utils.data.text_data import TextData
from course_utils.data.tokens import pad_texts
from course_utils.models.create import create_model
from course_utils.models.text_small import PADDING, TextSmall
from lesson_code.find_the_bug.language import TokenPredictor

__all__ = ["SETTINGS", "Bench", "Start"]

Curves = tuple[list[float], list[float]]  # the training loss, and what the author reports
SETTINGS = [(lr, width) for lr in (0.03, 0.1, 0.3) for width in (4, 8, 16, 32)]  # of Jun's search
TEXTS, MOST_TEXTS, LONGEST = 16, 256, 32  # in a batch; in a training; tokens of a text
NUM_VAL = 100  # texts
ADAPTER_BATCHES, ADAPTER_EPOCHS = 8, 3
ADAMW_LR = 3e-3  # of the tiny language models
ADAPTER_LR = 8e-3
FEMIS_IMAGES, JUNS_IMAGES = 96, 40  # at most; Jun's in each split


@dataclass
class Start:
    """A script's arguments.

    Args:
        model: the network that it trains; None: it makes networks of its own.
        arguments: of the script.
        every: optimizer steps between two points of its curves.
        read: takes the second curve from what the script returns; None: the model is measured.
        score: measures the model.
        available: photographs that it may train on.
        classes: the right classes of all photographs.
        gap: by how many points a report is above the accuracy on new photographs.
    """

    model: nn.Module | None
    arguments: tuple
    every: int
    read: Callable[[Any], list[float]] | None = None
    score: Callable[[nn.Module], float] | None = None
    available: int | None = None
    classes: Tensor | None = None
    gap: Callable[[Callable, Any], float] = lambda script, found: math.nan


def _as_tensors(data: ImageData, split: Any) -> tuple[Tensor, Tensor]:
    """Normalised photographs (N, 3, H, W) and their classes (N,)."""
    mean, std = (torch.tensor(part).view(3, 1, 1) for part in (data.mean, data.std))
    images = torch.from_numpy(split.images).permute(0, 3, 1, 2) / 255
    return ((images - mean) / std).contiguous(), torch.from_numpy(split.targets)


@contextmanager
def follow(model: nn.Module, score: Callable, every: int) -> Iterator[list[float]]:
    """A list that gets the model's score after each ``every`` optimizer steps."""
    steps, scores = [], []

    def note(*_: object) -> None:
        steps.append(1)
        if len(steps) % every == 0:
            scores.append(score(model))

    hook = register_optimizer_step_post_hook(note)
    try:
        yield scores
    finally:
        hook.remove()


class Bench:
    """Photographs, texts and small networks, and the starts of all scripts.

    Args:
        data: photographs.
        texts: definitions.
        epochs: of each training.
        batch_size: of photographs, at most.
        lr: learning rate of SGD in most scripts.
        repeats: of Jun's search, each with new coin flips.
    """

    def __init__(
        self,
        data: ImageData,
        texts: TextData,
        *,
        epochs: int,
        batch_size: int,
        lr: float,
        repeats: int,
    ) -> None:
        self.num_classes, self.epochs, self.lr, self.repeats = data.num_classes, epochs, lr, repeats
        images, targets = _as_tensors(data, data.train)
        self.size = min(batch_size, len(images) // 2)
        whole = len(images) // self.size * self.size  # no batch has one image alone
        self.images, self.targets = images[:whole], targets[:whole]
        self.val_images, self.val_targets = _as_tensors(data, data.val)
        self.classes = torch.cat([self.targets, self.val_targets])
        everything = torch.cat([self.images, self.val_images])
        self.numbers = {image.numpy().tobytes(): n for n, image in enumerate(everything)}
        self.texts = texts
        whole = min(MOST_TEXTS, len(texts.train) // TEXTS * TEXTS)
        self.tokens = [text[:LONGEST] for text in texts.train.tokens[:whole]]
        self.kinds = torch.as_tensor(texts.train.targets[:whole])
        val = [text[:LONGEST] for text in texts.val.tokens[:NUM_VAL]]
        self.val_tokens = pad_texts(val)  # (N, T)
        self.val_kinds = torch.as_tensor(texts.val.targets[:NUM_VAL])
        self.starts = {
            "1 Ana": self.start_ana,
            "2 Noor": self.start_noor,
            "3 Olu": self.start_noor,
            "4 Pia": self.start_pia,
            "5 Ben": self.start_ana,
            "6 Chen": self.start_chen,
            "7 Dana": self.start_dana,
            "8 Emil": self.start_ana,
            "9 Femi": self.start_femi,
            "10 Hugo": self.start_hugo,
            "11 Kai": self.start_kai,
            "12 Lea": self.start_lea,
            "13 Jun": self.start_jun,
        }

    # ---- Networks and data.

    def make_classifier(self, seed: int) -> nn.Sequential:
        """A small network from photographs (N, 3, H, W) to logits (N, C); no BatchNorm."""
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(512, self.num_classes),
        )

    def make_language_model(self, seed: int) -> TokenPredictor:
        """A tiny causal transformer from tokens (N, T) to logits (N, T, V)."""
        torch.manual_seed(seed)
        return TokenPredictor(TextSmall(width=64, depth=1, heads=2))

    def make_adapted(self, seed: int) -> nn.Module:
        """The pretrained transformer with LoRA, whose dropout is 0.3: (N, T) to logits (N, C)."""
        network = create_model("text_small", self.texts.num_classes, pretrained=True)
        torch.manual_seed(seed)
        layers = ["q", "k", "v", "o", "up", "down"]
        config = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.3, target_modules=layers)
        config.modules_to_save = ["fc"]
        return get_peft_model(network, config)

    def shuffle_batches(self, seed: int) -> list[tuple[Tensor, Tensor]]:
        """All photographs in shuffled batches (images, targets)."""
        order = torch.randperm(len(self.images), generator=torch.Generator().manual_seed(seed))
        return [(self.images[part], self.targets[part]) for part in order.split(self.size)]

    def shuffle_texts(self, seed: int) -> list[tuple[Tensor, Tensor]]:
        """All definitions in shuffled batches (tokens (N, T), kinds (N,))."""
        order = torch.randperm(len(self.tokens), generator=torch.Generator().manual_seed(seed))
        parts = [part.tolist() for part in order.split(TEXTS)]
        return [(pad_texts([self.tokens[n] for n in part]), self.kinds[part]) for part in parts]

    def number_of(self, batch: Tensor) -> list[int]:
        """The numbers of the photographs in a batch, in order."""
        return [self.numbers[image.detach().numpy().tobytes()] for image in batch]

    # ---- What a right measurement says of a network.

    @torch.no_grad()
    def score(self, model: nn.Module) -> float:
        """The share of the validation photographs that a copy of the model classifies rightly."""
        answers = copy.deepcopy(model).eval()(self.val_images).argmax(dim=1)
        return (answers == self.val_targets).float().mean().item()

    @torch.no_grad()
    def measure_token_loss(self, model: nn.Module) -> float:
        """The validation loss of a language model per real token."""
        logits, targets = model(self.val_tokens[:, :-1]), self.val_tokens[:, 1:]
        flat = logits.flatten(0, 1), targets.flatten()
        return F.cross_entropy(*flat, ignore_index=PADDING).item()

    # ---- What the scripts start with.

    def start_ana(self, seed: int) -> Start:
        model, batches = self.make_classifier(seed), self.shuffle_batches(seed)
        return Start(model, (model, batches, self.epochs, self.lr), len(batches))

    def start_noor(self, seed: int) -> Start:
        model = self.make_language_model(seed)
        batches = [tokens for tokens, _ in self.shuffle_texts(seed)]
        arguments = (model, batches * self.epochs, ADAMW_LR)
        return Start(model, arguments, len(batches), score=self.measure_token_loss)

    def start_pia(self, seed: int) -> Start:
        batches = self.shuffle_texts(seed)[:ADAPTER_BATCHES]
        val = [(self.val_tokens, self.val_kinds)]
        model = self.make_adapted(seed)
        return Start(model, (model, batches, val, ADAPTER_LR), len(batches))

    def start_chen(self, seed: int) -> Start:
        model = self.make_classifier(seed)
        few = self.images[:32], self.targets[:32]
        return Start(model, (model, *few, 25 * self.epochs, 0.3), 25)

    def start_dana(self, seed: int) -> Start:
        model, batches = self.make_classifier(seed), self.shuffle_batches(seed)
        arguments = (model, batches * self.epochs, 4, self.lr)
        return Start(model, arguments, max(1, len(batches) // 4))

    def start_femi(self, seed: int) -> Start:
        backbone = create_model("convnet_small", self.num_classes, pretrained=True)
        width = backbone.get_parameter("fc.weight").shape[1]
        backbone.fc = nn.Identity()
        torch.manual_seed(seed)
        head = nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, self.num_classes))
        batches = self.shuffle_batches(seed)[: max(2, FEMIS_IMAGES // self.size)]
        model = nn.Sequential(backbone, head)
        available = len(batches) * self.size
        arguments = (backbone, head, batches, 5, self.lr)
        return Start(model, arguments, len(batches), available=available)

    def start_hugo(self, seed: int) -> Start:
        model, dataset = self.make_classifier(seed), TensorDataset(self.images, self.targets)
        arguments = (model, dataset, 0, 2, 2 * self.epochs, self.size, self.lr, seed)
        return Start(model, arguments, math.ceil(math.ceil(len(dataset) / 2) / self.size))

    def start_kai(self, seed: int) -> Start:
        model = self.make_classifier(seed)
        pictures = {f"{number}.png": image for number, image in enumerate(self.images)}
        labels = self.targets.tolist()
        arguments = (model, pictures, labels, self.epochs, self.size, self.lr, seed)
        return Start(model, arguments, len(self.images) // self.size)

    def start_lea(self, seed: int) -> Start:
        model, count = self.make_classifier(seed), len(self.images)
        arguments = (model, self.images, self.targets, 2 * self.epochs, self.lr, seed)
        return Start(
            model,
            arguments,
            every=math.ceil((count - count // 5) / 16),
            read=lambda found: [100 * accuracy for accuracy in found[1]],
            gap=lambda script, found: 100 * (found[1][-1] - self.score(model)),
        )

    def start_jun(self, seed: int, settings: tuple = tuple(SETTINGS)) -> Start:
        """Labels are coin flips; a setting is a learning rate and a width."""
        generator = torch.Generator().manual_seed(seed)
        third = min(JUNS_IMAGES, len(self.images) // 3)
        order = torch.randperm(len(self.images), generator=generator)
        splits = dict(zip(("train", "val", "test"), order[: 3 * third].split(third), strict=True))
        flips = torch.randint(2, (len(self.classes),), generator=generator)

        def make_model(setting: tuple) -> nn.Module:
            torch.manual_seed(seed)
            layers = nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, setting[1]), nn.Tanh()
            return nn.Sequential(*layers, nn.Linear(setting[1], 2))

        def train_epoch(model: nn.Module, setting: tuple) -> None:
            optimizer, part = SGD(model.parameters(), lr=setting[0]), splits["train"]
            optimizer.zero_grad()
            F.cross_entropy(model(self.images[part]), flips[part]).backward()
            optimizer.step()

        @torch.no_grad()
        def score(model: nn.Module, split: str) -> float:
            hits = model(self.images[splits[split]]).argmax(dim=1) == flips[splits[split]]
            return hits.float().mean().item()

        return Start(
            None,
            (make_model, train_epoch, score, list(settings), 5),
            every=1,
            available=third,
            classes=flips,
            gap=lambda script, _: self.report_on_flips(script, seed) - 50,
        )

    def report_on_flips(self, script: Callable, seed: int, count: int = 12) -> float:
        """The mean accuracy in % that searches over ``count`` settings report, with new flips."""
        starts = (
            self.start_jun(1000 * seed + repeat, tuple(SETTINGS[:count]))
            for repeat in range(self.repeats)
        )
        return 100 * float(np.mean([script(*start.arguments)[2] for start in starts]))

    # ---- What an author sees.

    def look(self, name: str, script: Callable, seed: int) -> Curves:
        """The training loss of each epoch, and the second curve of the script's author."""
        own = {"4 Pia": self._look_at_pia, "5 Ben": self._look_at_ben, "8 Emil": self._look_at_emil}
        if name in own:
            return own[name](script, seed)
        if name == "13 Jun":
            return [], [self.report_on_flips(script, seed, count) for count in (1, 4, 12)]
        start = self.starts[name](seed)
        score = start.score or (lambda model: 100 * self.score(model))
        assert start.model is not None
        with follow(start.model, score, start.every) as scores:
            found = script(*start.arguments)
        losses = found[0] if isinstance(found, tuple) else found
        parts = np.array_split(np.array(losses), len(scores))
        second = start.read(found) if start.read else scores
        return [float(part.mean()) for part in parts], second

    def _look_at_pia(self, script: Callable, seed: int) -> Curves:
        """Losses, and the accuracy that the script reports after each epoch, in %."""
        arguments = self.start_pia(seed).arguments
        epochs = [script(*arguments) for _ in range(ADAPTER_EPOCHS)]
        return [float(np.mean(x)) for x, _ in epochs], [100 * accuracy for _, accuracy in epochs]

    def _look_at_ben(self, script: Callable, seed: int) -> Curves:
        """No loss, and the accuracy that the script measures after each epoch, in %."""
        most = (len(self.val_images) - 1) // 32 * 32 + 1  # one image is left over
        dataset = TensorDataset(self.val_images[:most], self.val_targets[:most])
        model, measured = self.make_classifier(seed), []
        optimizer = SGD(model.parameters(), lr=self.lr)
        for _ in range(self.epochs):
            for images, targets in self.shuffle_batches(seed):
                optimizer.zero_grad()
                F.cross_entropy(model.train()(images), targets).backward()
                optimizer.step()
            measured.append(100 * script(model, DataLoader(dataset, batch_size=32)))
        return [], measured

    def _look_at_emil(self, script: Callable, seed: int) -> Curves:
        """The training loss of each epoch, and the validation loss that the script reports."""
        model, batches = self.make_classifier(seed), self.shuffle_batches(seed)
        val = list(zip(self.val_images.split(64), self.val_targets.split(64), strict=True))
        epochs = [script(model, batches, val, 0.2, self.lr) for _ in range(self.epochs)]
        return [float(np.mean(losses)) for losses, _ in epochs], [loss for _, loss in epochs]
