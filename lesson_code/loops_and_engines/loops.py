"""The same training by the loops of libraries. Each takes a `Job`, and returns the network.

The lesson prints these functions, and counts their lines, so each has all that its loop needs.
"""

import inspect
from tempfile import TemporaryDirectory
from typing import Any

import lightning as L
import transformers
from accelerate import Accelerator
from lightning.fabric import Fabric
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import default_collate

from course_utils.training.fit import quiet_trainer
from lesson_code.loops_and_engines.job import Job, Loop
from lesson_code.loops_and_engines.plain import train_plain

__all__ = [
    "LOOPS",
    "PLAIN",
    "LitJob",
    "LitManual",
    "WithLoss",
    "count_code",
    "count_lines",
    "train_accelerate",
    "train_fabric",
    "train_lightning",
    "train_manual",
    "train_transformers",
]


class LitJob(L.LightningModule):
    def __init__(self, job: Job):
        super().__init__()
        self.job, self.model = job, job.make_model()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        inputs, targets = batch
        return cross_entropy(self.model(inputs), targets)

    def configure_optimizers(self):
        optimizer = self.job.make_optimizer(self.model)
        schedule = {"scheduler": self.job.make_schedule(optimizer), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def train_lightning(job: Job) -> nn.Module:
    lit = LitJob(job)
    trainer = quiet_trainer(
        accelerator="cpu",
        max_epochs=job.epochs,
        accumulate_grad_batches=job.accumulate,
        gradient_clip_val=job.max_norm,
    )
    trainer.fit(lit, job.make_loader())
    return lit.model


class LitManual(L.LightningModule):
    def __init__(self, job: Job):
        super().__init__()
        self.job, self.model = job, job.make_model()
        self.automatic_optimization = False

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        inputs, targets = batch
        optimizer: Any = self.optimizers()  # a list, if there are several
        schedule: Any = self.lr_schedulers()
        first = batch_idx - batch_idx % self.job.accumulate
        group = min(self.job.accumulate, self.trainer.num_training_batches - first)
        self.manual_backward(cross_entropy(self.model(inputs), targets) / group)
        if batch_idx == first + group - 1:
            self.clip_gradients(optimizer, self.job.max_norm, "norm")
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()

    def configure_optimizers(self):
        optimizer = self.job.make_optimizer(self.model)
        return [optimizer], [self.job.make_schedule(optimizer)]


def train_manual(job: Job) -> nn.Module:
    lit = LitManual(job)
    quiet_trainer(accelerator="cpu", max_epochs=job.epochs).fit(lit, job.make_loader())
    return lit.model


def train_fabric(job: Job) -> nn.Module:
    fabric = Fabric(accelerator="cpu", devices=1)
    network = job.make_model()
    optimizer = job.make_optimizer(network)
    schedule = job.make_schedule(optimizer)
    model, optimizer = fabric.setup(network, optimizer)
    loader = fabric.setup_dataloaders(job.make_loader())
    for _ in range(job.epochs):
        model.train()
        for number, (inputs, targets) in enumerate(loader):
            first = number - number % job.accumulate
            group = min(job.accumulate, len(loader) - first)
            is_last = number == first + group - 1
            with fabric.no_backward_sync(model, enabled=not is_last):
                loss = cross_entropy(model(inputs), targets)
                fabric.backward(loss / group)
            if is_last:
                fabric.clip_gradients(model, optimizer, max_norm=job.max_norm)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
    return network


def train_accelerate(job: Job) -> nn.Module:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=job.accumulate)
    network = job.make_model()
    optimizer = job.make_optimizer(network)
    schedule = job.make_schedule(optimizer)
    model, optimizer, schedule, loader = accelerator.prepare(
        network, optimizer, schedule, job.make_loader()
    )
    for _ in range(job.epochs):
        model.train()
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                accelerator.backward(cross_entropy(model(inputs), targets))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), job.max_norm)
                optimizer.step()  # does nothing until the group is complete
                schedule.step()
                optimizer.zero_grad()
    return network


class WithLoss(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.model(inputs)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


def train_transformers(job: Job) -> nn.Module:
    network = job.make_model()
    optimizer = job.make_optimizer(network)
    loader = job.make_loader()
    with TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            use_cpu=True,
            per_device_train_batch_size=job.batch_size,
            num_train_epochs=job.epochs,
            gradient_accumulation_steps=job.accumulate,
            max_grad_norm=job.max_norm,
            train_sampling_strategy="sequential",  # by default it shuffles
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(
            WithLoss(network),
            arguments,
            data_collator=lambda x: dict(
                zip(("inputs", "labels"), default_collate(x), strict=True)
            ),
            train_dataset=loader.dataset,
            optimizers=(optimizer, job.make_schedule(optimizer)),
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return network


PLAIN = "plain PyTorch"
LOOPS: dict[str, Loop] = {
    PLAIN: train_plain,
    "Fabric": train_fabric,
    "Accelerate": train_accelerate,
    "Lightning": train_lightning,
    "Lightning, manual": train_manual,
    "transformers": train_transformers,
}
# What a reader has to write for a loop: the function, and the class that it trains.
WRITTEN: dict[str, tuple[Any, ...]] = {
    PLAIN: (train_plain,),
    "Fabric": (train_fabric,),
    "Accelerate": (train_accelerate,),
    "Lightning": (LitJob, train_lightning),
    "Lightning, manual": (LitManual, train_manual),
    "transformers": (WithLoss, train_transformers),
}


def count_code(*written: Any) -> int:
    """Lines of functions and classes, without empty ones and comments of a line of their own."""
    lines = "\n".join(map(inspect.getsource, written)).splitlines()
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines)


def count_lines(name: str) -> int:
    """Lines of code that one of `LOOPS` takes."""
    return count_code(*WRITTEN[name])
