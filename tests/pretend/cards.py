"""Recipe cards on the pretend device: what a reader with a GPU would change in a card, and no more.

A card takes the device in one of these ways, the first that fits:

- It asks ``torch.cuda`` for its device: ``cuda`` becomes ``pretend`` wherever it is written, so
  that it asks ``torch.pretend``, and ``nccl`` becomes ``gloo``, which sends from the CPU.
- It is given ``"cpu"`` in a line that ends with ``# yours``: there ``"cpu"`` becomes ``"pretend"``.
- It has no device. Then what stands in for the reader's networks and data, the lines that end with
  ``# yours``, is made on the device. Data that come from a loader stay on the CPU, as every loader
  gives them. No other line is changed: where that is not enough, the card is to be mended.

In a Lightning card the trainer finds the device by itself, see `tests.pretend.accelerator`. A loop
of the reader's, ``for _ in range(100):  # yours``, is cut short.
"""

import ast
import re

from tests.lessons.cards import alone, execute
from tests.pretend.device import OPERATIONS
from tests.pretend.module import NAME

__all__ = ["move_card", "run_card"]

LOADERS = ("DataLoader", "TensorDataset")  # a line with one of these makes data for a loader
HEADER = f"import torch as torch_of_the_test\n_on_device = torch_of_the_test.device({NAME!r})\n"


class _MakeOnDevice(ast.NodeTransformer):
    """Lets statements whose last line ends with ``# yours`` make their tensors on the device."""

    def __init__(self, source: str):
        self.source, self.lines = source, source.splitlines()

    def visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, ast.Assign | ast.Expr):
            return self.generic_visit(node)
        text = ast.get_source_segment(self.source, node)
        is_yours = "# yours" in self.lines[node.end_lineno - 1]
        if not is_yours or any(loader in text for loader in LOADERS):
            return node
        return ast.With([ast.withitem(ast.Name("_on_device", ast.Load()))], [node])


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


def run_card(source: str, kind: str, folder) -> int:
    """Execute a card on the device in an empty folder; how many operations the device did."""
    before = OPERATIONS.total()
    with alone(folder):
        execute(move_card(source, kind))
    return OPERATIONS.total() - before
