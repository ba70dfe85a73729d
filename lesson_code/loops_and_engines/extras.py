"""The same training by fastai, skorch and Ignite, which are no part of the course's environment.

``study.py`` runs them where they are installed, and stores what they gave:

    pip install fastai skorch pytorch-ignite
"""

from importlib.metadata import PackageNotFoundError, version

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from lesson_code.loops_and_engines.job import Job, Loop
from lesson_code.loops_and_engines.loops import count_code

__all__ = ["EXTRAS", "PACKAGES", "count_extra_lines", "describe_missing", "find_versions"]


def train_fastai(job: Job) -> nn.Module:
    from fastai.basics import Callback, CancelValidException, DataLoaders, Learner, OptimWrapper
    from fastai.callback.training import GradientAccumulation, GradientClip

    class StepSchedule(Callback):
        def before_fit(self):  # fastai has set the learning rate just before
            self.schedule = job.make_schedule(self.learn.opt.opt)

        def after_step(self):
            self.schedule.step()

        def before_validate(self):
            raise CancelValidException

    network, loader = job.make_model(), job.make_loader()
    learner = Learner(
        DataLoaders(loader, loader, device="cpu"),
        network,
        loss_func=nn.CrossEntropyLoss(),
        opt_func=lambda groups, **_: OptimWrapper(opt=job.make_optimizer(network)),
        lr=job.lr,
        train_bn=True,
        cbs=[
            GradientAccumulation(n_acc=job.accumulate * job.batch_size),  # in examples
            GradientClip(job.max_norm),
            StepSchedule(),
        ],
    )
    with learner.no_bar(), learner.no_logging():
        learner.fit(job.epochs)
    return network


def train_skorch(job: Job) -> nn.Module:
    from skorch import NeuralNet

    network = job.make_model()
    optimizer = job.make_optimizer(network)
    schedule = job.make_schedule(optimizer)

    class Net(NeuralNet):
        def initialize_optimizer(self, *_, **__):
            self.optimizer_ = optimizer
            return self

        def train_step(self, batch, **_):
            self.module_.train()
            number = len(self.history[-1, "batches"]) - 1  # of this micro-batch
            first = number - number % job.accumulate
            group = min(job.accumulate, job.count_batches() - first)
            loss = cross_entropy(self.module_(batch[0]), batch[1])
            (loss / group).backward()
            if number == first + group - 1:
                clip_grad_norm_(self.module_.parameters(), job.max_norm)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            return {"loss": loss, "y_pred": None}

    net = Net(
        network,
        nn.CrossEntropyLoss,
        max_epochs=job.epochs,
        batch_size=job.batch_size,
        train_split=None,
        verbose=0,
    )
    net.fit(job.inputs, job.targets)
    return network


def train_ignite(job: Job) -> nn.Module:
    from ignite.engine import Engine

    network, loader = job.make_model(), job.make_loader()
    optimizer = job.make_optimizer(network)
    schedule = job.make_schedule(optimizer)

    def update(engine: Engine, batch: tuple[Tensor, Tensor]) -> float:
        network.train()
        inputs, targets = batch
        number = (engine.state.iteration - 1) % len(loader)  # iterations count from 1
        first = number - number % job.accumulate
        group = min(job.accumulate, len(loader) - first)
        loss = cross_entropy(network(inputs), targets)
        (loss / group).backward()
        if number == first + group - 1:
            clip_grad_norm_(network.parameters(), job.max_norm)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        return loss.item()

    Engine(update).run(loader, max_epochs=job.epochs)
    return network


EXTRAS: dict[str, Loop] = {
    "fastai": train_fastai,
    "skorch": train_skorch,
    "Ignite": train_ignite,
}
PACKAGES = {"fastai": "fastai", "skorch": "skorch", "Ignite": "pytorch-ignite"}


def find_versions() -> dict[str, str]:
    """The versions of those that are installed, by the names of `EXTRAS`."""
    found = {}
    for name, package in PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            continue
    return found


def describe_missing() -> str:
    """One sentence about those that are not installed; empty if all are."""
    missing = [PACKAGES[name] for name in EXTRAS if name not in find_versions()]
    if not missing:
        return ""
    return f"not installed here, so their numbers are stored ones: pip install {' '.join(missing)}"


def count_extra_lines(name: str) -> int:
    """As `count_lines`, for one of `EXTRAS`."""
    return count_code(EXTRAS[name])
