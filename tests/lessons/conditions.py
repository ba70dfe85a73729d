"""What a recipe card meets in an ordinary project, beside the network of its reader.

Each function takes the source of a card, and yields what is to be executed in its place. While
the context lasts, PyTorch's or Lightning's defaults are those of such a project.
"""

import ast
import contextlib
import functools
from collections.abc import Iterator
from unittest import mock

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset

from tests.lessons.cards import enrich_networks

__all__ = ["CONDITIONS", "LEFT_OUT"]

LEFT_OUT = 3  # examples that the last batch lacks


@contextlib.contextmanager
def use_batchnorm_and_dropout(source: str) -> Iterator[str]:
    """The networks that stand in for the reader's have BatchNorm and dropout; there is one."""
    changed, networks = enrich_networks(source)
    assert networks, "no line with '# yours' makes a network that a test can enrich"
    yield changed


@contextlib.contextmanager
def use_autocast(source: str) -> Iterator[str]:
    """Everything runs in bf16 where autocast allows it; Lightning gets its own precision."""
    begin = L.Trainer.__init__

    @functools.wraps(begin)
    def begin_mixed(trainer, *arguments, **options):
        begin(trainer, *arguments, **{"precision": "bf16-mixed"} | options)

    with contextlib.ExitStack() as stack:
        if "L.Trainer" in source:
            stack.enter_context(mock.patch.object(L.Trainer, "__init__", begin_mixed))
        else:
            stack.enter_context(torch.autocast("cpu", torch.bfloat16))
        yield source


def compile_network(value: object) -> object:
    """Compile a network in place, without a compiler of machine code: it is for the graph."""
    if isinstance(value, nn.Module) and not isinstance(value, L.LightningModule):
        value.compile(backend="aot_eager")
    return value


@contextlib.contextmanager
def use_compile(source: str) -> Iterator[str]:
    """Each network is compiled when it gets its name, or when a trainer gets it."""
    fit = L.Trainer.fit

    def fit_compiled(trainer, module, *arguments, **options):
        for network in module.children():
            compile_network(network)
        return fit(trainer, module, *arguments, **options)

    try:
        with mock.patch.object(L.Trainer, "fit", fit_compiled):
            yield pass_assigned_through(source, compile_network)
    finally:
        torch._dynamo.reset()


def shorten(value: object) -> object:
    """A list of batches ``(inputs, targets)`` with fewer examples in the last one."""
    if not (isinstance(value, list) and value and isinstance(value[-1], tuple)):
        return value
    parts = value[-1]
    is_batch = all(isinstance(part, torch.Tensor) and part.ndim for part in parts)
    if is_batch and min(map(len, parts)) > LEFT_OUT:
        value[-1] = tuple(part[:-LEFT_OUT] for part in parts)
    return value


@contextlib.contextmanager
def use_odd_batch(source: str) -> Iterator[str]:
    """The last batch of each list and of each loader that has no sampler of its own is short."""
    begin = DataLoader.__init__

    @functools.wraps(begin)  # Lightning reads the signature
    def begin_short(loader, dataset, *arguments, **options):
        is_free = options.get("sampler") is None and options.get("batch_sampler") is None
        if is_free and hasattr(dataset, "__len__") and len(dataset) > LEFT_OUT:
            dataset = Subset(dataset, range(len(dataset) - LEFT_OUT))
        begin(loader, dataset, *arguments, **options)

    with mock.patch.object(DataLoader, "__init__", begin_short):
        yield pass_assigned_through(source, shorten)


class _PassThrough(ast.NodeTransformer):
    """After each assignment to a name, ``name = function(name)``."""

    def __init__(self, function: str):
        self.function = function

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        inside = [part for target in node.targets for part in ast.walk(target)]
        stored = [x.id for x in inside if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]
        after = "\n".join(f"{name} = {self.function}({name})" for name in stored)
        return [node, *ast.parse(after).body]


def pass_assigned_through(source: str, function) -> str:
    """A card in which every value goes through a function of this module when it gets a name."""
    tree = _PassThrough(function.__name__).visit(ast.parse(source))
    line = f"from {__name__} import {function.__name__}\n"
    return line + ast.unparse(ast.fix_missing_locations(tree))


CONDITIONS = {
    "BatchNorm and dropout": use_batchnorm_and_dropout,
    "autocast": use_autocast,
    "compile": use_compile,
    "an odd last batch": use_odd_batch,
}
