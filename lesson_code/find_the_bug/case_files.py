"""The curves of lesson 90's case files, one at a time; a notebook adds the title."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from course_utils import plots
from course_utils.results import STUDIES, read_file

__all__ = ["draw_curve"]

BLUE, ORANGE = plots.COLOURS[:2]
MARKS = {ORANGE: "o", BLUE: "D"}
SHOWN_STEPS = slice(60, 100)  # of the norms: more would overlap


@cache
def _read_cases() -> Mapping[str, Any]:
    return read_file(STUDIES / "find_the_bug/study_cases.json")["cases"]


def draw_curve(case: str, number: int) -> None:
    """Draw one curve of a case: ``"ranks"``, ``"resume"`` or ``"stream"``, and 1, 2 or 3."""
    CURVES[case][number - 1](_read_cases()[case])


def _name(runs: Mapping[str, Any], *names: str) -> list[tuple[str, str, Any]]:
    """For each run the name that a reader sees, its colour and the run: the faulty one first."""
    shown = list(runs.values())[: len(names)]
    return list(zip(names, (ORANGE, BLUE), shown, strict=True))


def _finish(axis: Axes, steps: Sequence[int], xlabel: str, ylabel: str) -> None:
    """Dashed lines at some steps, the labels, and a legend of what has one."""
    for step in steps:
        axis.axvline(step, color="black", ls="--", lw=0.8, alpha=0.6)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=8)


# ---- Four devices.


def _draw_rank_losses(ranks: Mapping[str, Any]) -> None:
    _, axis = plt.subplots(figsize=(7.2, 3), dpi=90)
    for name, colour, run in _name(ranks["curves"], "the job", "the earlier job"):
        losses = np.mean(run["losses"], axis=1).reshape(-1, 10).mean(axis=1)
        steps = 5 + 10 * np.arange(len(losses))
        axis.plot(steps, losses, color=colour, lw=1.2, label=f"{name}: training")
        steps, values = np.transpose(run["val"])
        axis.plot(steps, values, MARKS[colour], color=colour, label=f"{name}: validation")
    _finish(axis, (), "step", "loss (nats per token)")


def _draw_rank_sweep(ranks: Mapping[str, Any]) -> None:
    _, axis = plt.subplots(figsize=(6.4, 2.8), dpi=90)
    for name, colour, sweep in _name(ranks["sweep"], "the job", "the earlier job"):
        axis.semilogx(*np.transpose(sweep), f"{MARKS[colour]}-", color=colour, label=name)
        axis.set_xticks([lr for lr, _ in sweep], [f"{lr:g}" for lr, _ in sweep])
    axis.minorticks_off()
    _finish(axis, (), "learning rate", "validation loss at the end")


def _draw_rank_norms(ranks: Mapping[str, Any]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.9), dpi=90, sharey=True)
    runs = _name(ranks["curves"], "the job", "the earlier job")
    for axis, (name, _, run) in zip(axes, runs, strict=True):
        norms = np.array(run["norms"])[SHOWN_STEPS]  # (steps, ranks)
        steps = np.arange(len(run["norms"]))[SHOWN_STEPS] + 1
        for rank, mark in enumerate("oDs^"):
            style = {"marker": mark, "ls": "", "ms": 3.5, "color": plots.COLOURS[rank]}
            axis.plot(steps, norms[:, rank], **style, label=f"device {rank}")
        axis.plot(steps, run["mean_norm"][SHOWN_STEPS], color="black", lw=1, label="their mean")
        axis.set_title(name)
        axis.set(xlabel="step", ylabel="")
    axes[0].set_ylabel("norm of the gradient")
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="outside right center")


# ---- Four jobs.


def _list_restarts(resume: Mapping[str, Any]) -> Sequence[int]:
    return [resume["job_steps"] * job for job in range(1, resume["jobs"])]


def _draw_job_losses(resume: Mapping[str, Any]) -> None:
    _, axis = plt.subplots(figsize=(7.2, 2.8), dpi=90)
    for name, colour, run in _name(resume["curves"], "four jobs", "without restarts"):
        losses = np.reshape(run["losses"], (-1, 5)).mean(axis=1)
        steps = 3 + 5 * np.arange(len(losses))
        axis.plot(steps, losses, f"{MARKS[colour]}-", ms=3, color=colour, label=name)
    label = "training loss, mean of 5 steps"
    _finish(axis, _list_restarts(resume), "step (dashed: a restart)", label)


def _draw_job_steps(resume: Mapping[str, Any]) -> None:
    _, axes = plt.subplots(1, 2, figsize=(9, 2.9), dpi=90)
    lost = resume["curves"]["AdamW's state is lost"]
    axes[1].semilogy(lost["moved"], color=plots.GREY, lw=3, label="AdamW's state is lost")
    for axis, kind in zip(axes, ("lr", "moved"), strict=True):
        runs = _name(resume["curves"], "four jobs", "without restarts")
        for name, colour, run in runs[::-1]:
            style = {"ls": "-" if colour == BLUE else "--", "lw": 2 if colour == BLUE else 1.5}
            axis.plot(run[kind], color=colour, label=name, **style)
    labels = "learning rate", "norm of the weights' change"
    for axis, label in zip(axes, labels, strict=True):
        _finish(axis, _list_restarts(resume), "step (dashed: a restart)", label)


def _draw_job_validation(resume: Mapping[str, Any]) -> None:
    _, axes = plt.subplots(1, 2, figsize=(9, 2.9), dpi=90)
    for name, colour, run in _name(resume["curves"], "four jobs", "without restarts"):
        style = {"color": colour, "label": name}
        axes[0].plot(*np.transpose(run["val"]), f"{MARKS[colour]}-", ms=3, **style)
        axes[1].plot(100 * np.array(run["seen"]), lw=2, **style)
    for axis, label in zip(axes, ("validation loss", "texts seen before (%)"), strict=True):
        _finish(axis, _list_restarts(resume), "step (dashed: a restart)", label)


# ---- A stream.


def _list_epochs(stream: Mapping[str, Any]) -> Sequence[int]:
    return [stream["epoch_steps"] * epoch for epoch in range(1, stream["epochs"])]


def _draw_stream_loss(stream: Mapping[str, Any]) -> None:
    _, axis = plt.subplots(figsize=(9, 2.8), dpi=90)
    axis.plot(stream["curves"]["files one by one"]["losses"], color=ORANGE, lw=1)
    _finish(axis, _list_epochs(stream), "step (dashed: a new epoch)", "training loss")


def _draw_stream_sweep(stream: Mapping[str, Any]) -> None:
    _, axis = plt.subplots(figsize=(9, 2.8), dpi=90)
    for colour, (lr, losses) in zip((ORANGE, BLUE), stream["sweep"], strict=True):
        axis.plot(losses, color=colour, lw=1, label=f"learning rate {lr:g}")
    axis.axhline(np.log(10), color="black", ls=":", lw=1, label="guessing")
    _finish(axis, _list_epochs(stream), "step (dashed: a new epoch)", "training loss")


def _draw_stream_kinds(stream: Mapping[str, Any]) -> None:
    rows = np.array(stream["curves"]["files one by one"]["accuracy"])  # step, accuracy of each kind
    figure, axis = plt.subplots(figsize=(9, 3.2), dpi=90)
    edges = [0, *rows[:, 0]]
    picture = axis.pcolormesh(edges, range(11), rows[:, 1:].T, cmap="Blues", vmin=0, vmax=1)
    axis.set_yticks(np.arange(10) + 0.5, stream["kinds"], fontsize=8)
    axis.grid(visible=False)
    _finish(axis, _list_epochs(stream), "step (dashed: a new epoch)", "")
    figure.colorbar(picture, label="validation accuracy")


CURVES = {
    "ranks": (_draw_rank_losses, _draw_rank_sweep, _draw_rank_norms),
    "resume": (_draw_job_losses, _draw_job_steps, _draw_job_validation),
    "stream": (_draw_stream_loss, _draw_stream_sweep, _draw_stream_kinds),
}
