"""The loop that all others are compared with."""

from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from lesson_code.loops_and_engines.job import Job

__all__ = ["train_plain"]


def train_plain(job: Job) -> nn.Module:
    model = job.make_model()
    optimizer = job.make_optimizer(model)
    schedule = job.make_schedule(optimizer)
    loader = job.make_loader()
    for _ in range(job.epochs):
        model.train()
        for number, (inputs, targets) in enumerate(loader):
            first = number - number % job.accumulate  # of this group
            group = min(job.accumulate, len(loader) - first)  # the last one may be smaller
            loss = cross_entropy(model(inputs), targets)
            (loss / group).backward()
            if number == first + group - 1:
                clip_grad_norm_(model.parameters(), job.max_norm)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
    return model
