"""Recipe cards on the pretend device: what a reader with a GPU would change in a card, and no more.

A card takes the device in one of these ways, the first that fits:

- It asks ``torch.cuda`` for its device: ``cuda`` becomes ``pretend`` wherever it is written, so
  that it asks ``torch.pretend``, and ``nccl`` becomes ``gloo``, which sends from the CPU.
- It is given ``"cpu"`` in a line that ends with ``# yours``: that becomes ``"pretend"``.
- It has no device. Then what stands in for the reader's networks and data, the lines that end with
  ``# yours``, is made on the device or moved there. Data that come from a loader stay on the CPU,
  as every loader gives them. No other line is changed: where that is not enough, mend the card.

In a Lightning card the trainer finds the device by itself, see `tests.pretend.accelerator`. A loop
of the reader's, ``for _ in range(100):  # yours``, is cut short.
"""

import ast
import re
from pathlib import Path

import torch

from tests.lessons.cards import alone, execute
from tests.pretend.device import OPERATIONS
from tests.pretend.module import NAME

__all__ = ["make_on_device", "move_card", "move_to_device", "run_card"]

LOADERS = ("DataLoader", "TensorDataset")  # a line with one of these makes data for a loader
HEADER = "from tests.pretend.cards import make_on_device, move_to_device\n"


def make_on_device() -> torch.device:
    """A context in which tensors are made on the device."""
    return torch.device(NAME)


def move_to_device(value: object) -> object:
    """A network or a tensor on the device; all else as it is."""
    return value.to(NAME) if isinstance(value, torch.nn.Module | torch.Tensor) else value


class _MakeOnDevice(ast.NodeTransformer):
    """Lets statements whose last line ends with ``# yours`` make what they make on the device."""

    def __init__(self, source: str):
        self.source, self.lines = source, source.splitlines()

    def visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, ast.Assign | ast.Expr):
            return self.generic_visit(node)
        text = ast.get_source_segment(self.source, node)
        is_yours = "# yours" in self.lines[node.end_lineno - 1]
        if not is_yours or any(loader in text for loader in LOADERS):
            return node
        node.value = ast.parse(f"move_to_device({ast.unparse(node.value)})", mode="eval").body
        [context] = ast.parse("with make_on_device(): ...").body
        context.body = [node]
        return context


def move_card(source: str, kind: str) -> str:
    """The source of a ``pytorch`` or ``lightning`` card as it takes the pretend device."""
    source = re.sub(r"for _ in range\(\d+\)(?=:  # yours)", "for _ in range(3)", source)
    if kind == "lightning" or "torch.cuda" in source:
        return source.replace("cuda", NAME).replace("nccl", "cpu:gloo,pretend:gloo")
    moved = re.sub(r'"cpu"(?=.*# yours)', f'"{NAME}"', source)
    if moved != source:
        return moved
    tree = _MakeOnDevice(source).visit(ast.parse(source))
    return HEADER + ast.unparse(ast.fix_missing_locations(tree))


def run_card(source: str, kind: str, folder: Path) -> int:
    """Execute a card on the device in an empty folder; how many operations the device did."""
    before = OPERATIONS.total()
    with alone(folder):
        execute(move_card(source, kind))
    return OPERATIONS.total() - before
