"""Freezing: only the last stage and the head are trained."""

from functools import partial

from course_utils.models.freeze import freeze_before

SEAM = {"model_transform": partial(freeze_before, first_trained="layer4")}


def invariant(record):
    """No tensor before layer4 moves, BatchNorm's statistics included."""
    assert all(name.startswith(("layer4", "fc")) for name in record.moved)


def freeze_weights_only(model):
    for name in ("conv1", "bn1", "layer1", "layer2", "layer3"):
        getattr(model, name).requires_grad_(False)
    return model


FAULTS = []
# LoRA freezes everything but the adapters and the head for itself, BatchNorm's statistics too.
MASKED_FAULTS = [("model_transform", freeze_weights_only, ("lora",))]


# Planted answers of the lesson's exercises.
PROBE = """
import torch
import torch.nn.functional as F
from torch import nn

def probe(model, batches, num_classes, lr=0.05):
    {body}
    for images, targets in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(images), targets).backward()
        optimizer.step()
    return model
"""


def _freeze(*lines: str) -> str:
    return "\n    ".join(("import timm\ndef freeze_all_but(model, head):", *lines))


def _group(*lines: str) -> str:
    return "\n    ".join(("def group_by_depth(model, lr, decay):", *lines))


def _probe(*lines: str) -> str:
    return PROBE.format(body="\n    ".join(lines))


OTHERS = "others = [child for name, child in model.named_children() if name != head]"
TRAINABLE = "lists = [[p for p in c.parameters() if p.requires_grad] for c in model.children()]"
NEW_HEAD = "model.fc = nn.Linear(model.fc.in_features, num_classes)"
OF_HEAD = "optimizer = torch.optim.AdamW(model.fc.parameters(), lr=lr)"
OF_ALL = "optimizer = torch.optim.AdamW(model.parameters(), lr=lr)"
ATTRIBUTE = "for child in model.children(): child.requires_grad = False"

WRONG_ANSWERS = {
    "freeze_all_but": [
        (_freeze(OTHERS, "for c in others: c.requires_grad_(False)", "return model"),
         "bn.running_mean.* moved in training"),
        (_freeze(OTHERS, "for c in others: c.requires_grad_(False).eval()", "return model"),
         "undone by the next train"),
        (_freeze(OTHERS, "for c in others: c.requires_grad = False", "return model"),
         "would still be trained"),
        (_freeze(OTHERS, "for c in others[1:]: c.requires_grad_(False)", "return model"),
         "stem.bias, stem.weight would still be trained"),
        (_freeze("return model.requires_grad_(False)"), "head must stay trainable"),
        (_freeze("timm.utils.freeze(model)", "return model"), "head must stay trainable"),
        (_freeze(OTHERS, "for c in others: c.requires_grad_(False)",
                 "for m in model.modules():",
                 "    if hasattr(m, 'track_running_stats'): m.track_running_stats = False",
                 "return model"), "still normalises with those"),
        (_freeze("timm.utils.freeze(model, ['stem', 'bn', 'block'])"), "Return the model"),
        (_freeze("timm.utils.freeze(model, ['stem', 'bn', 'block'])", "return model"),
         "here 'block'"),
        (_freeze("import copy", "model = copy.deepcopy(model)",
                 "timm.utils.freeze(model, [n for n, _ in model.named_children() if n != head])",
                 "return model"), "in place"),
        (_freeze(OTHERS, "for c in others: c.requires_grad_(False)",
                 "for m in model.modules():", "    if hasattr(m, 'momentum'): m.momentum = 0",
                 "return model"), "moved in training|still normalises"),
    ],
    "group_by_depth": [
        (_group("lists = [list(c.parameters()) for c in model.children()]",
                "return [{'params': p, 'lr': lr * decay ** d} for d, p in "
                "enumerate(reversed(lists))]"), "block is 1 below"),
        (_group(TRAINABLE, "lists = [p for p in lists if p]",
                "return [{'params': p, 'lr': lr * decay ** d} for d, p in enumerate(lists)]"),
         "The last child gets lr"),
        (_group(TRAINABLE, "lists = [p for p in lists if p]",
                "return [{'params': p, 'lr': lr * decay * d} for d, p in "
                "enumerate(reversed(lists))]"), "The last child gets lr"),
        (_group("lists = [list(c.parameters()) for c in model.children()]",
                "lists = [p for p in lists if p]",
                "return [{'params': p, 'lr': lr * decay ** d} for d, p in "
                "enumerate(reversed(lists))]"), "frozen parameter stands in a group"),
        (_group(TRAINABLE, "lists = [p for p in lists if p]",
                "return [{'params': p, 'lr': lr * decay ** d} for d, p in "
                "enumerate(reversed(lists[1:]))]"), "stands in no group"),
        (_group(TRAINABLE, "lists = [p for p in lists if p]",
                "return [{'params': p, 'lr': lr} for p in lists + lists[:1]]"), "two groups"),
        (_group("return [p for p in model.parameters()]"), "Each group is a dict"),
        (_group("return [{'params': [n], 'lr': lr} for n, _ in model.named_parameters()]"),
         "not their names"),
        (_group("pass"), "Return a list"),
    ],
    "probe": [
        (_probe(ATTRIBUTE, OF_ALL, NEW_HEAD, "model.train()"), "attribute that nobody reads"),
        (_probe(NEW_HEAD, OF_HEAD, "model.eval()"), "The backbone has gradients"),
        (_probe(NEW_HEAD, OF_HEAD, "model.eval().requires_grad_(False)"),
         "stopped with RuntimeError"),
        (_probe("model.requires_grad_(False)", OF_ALL, NEW_HEAD, "model.eval()"),
         "which parameters does the optimizer hold"),
        (_probe("model.requires_grad_(False)", NEW_HEAD, OF_HEAD, "model.train()"),
         "must not be in train mode"),
        (_probe(NEW_HEAD, OF_ALL, "model.eval()"), "backbone has gradients or has changed"),
        (_probe("model.requires_grad_(False)", "model.fc.requires_grad_(True)", OF_HEAD,
                "model.eval()"), "stopped with|must have 3 outputs"),
        ("def probe(model, batches, num_classes):\n    pass", "Return the model"),
    ],
}  # fmt: skip

OTHER_RIGHT_ANSWERS = {
    "freeze_all_but": [
        _freeze(
            OTHERS, "for c in others:", "    c.requires_grad_(False).eval()",
            "    c.train = lambda mode=True, c=c: c", "return model"),
        # goes by the names of the parameters; each frozen child is put in eval mode as it is called
        _freeze(
            "for name, p in model.named_parameters():",
            "    p.requires_grad = name.split('.')[0] == head",
            "for name, child in model.named_children():",
            "    if name != head:",
            "        child.register_forward_pre_hook(lambda child, inputs: child.eval() and None)",
            "return model"),
    ],
    "group_by_depth": [
        _group(
            TRAINABLE, "groups, rate = [], lr", "for p in lists[::-1]:", "    if p:",
            "        groups.insert(0, {'params': p, 'lr': rate})", "        rate *= decay",
            "return groups"),
        # sorts the parameters by the first part of their names
        _group(
            "children = {}",
            "for name, p in model.named_parameters():",
            "    if p.requires_grad:",
            "        children.setdefault(name.partition('.')[0], []).append(p)",
            "last = len(children) - 1",
            "return [dict(params=ps, lr=lr * decay ** (last - n))"
            " for n, ps in enumerate(children.values())]"),
    ],
    "probe": [
        _probe(
            "model.eval()", "for p in model.parameters(): p.requires_grad_(False)", NEW_HEAD,
            "optimizer = torch.optim.SGD(model.fc.parameters(), lr=0.2)"),
        # the frozen part's features are computed once, and the head is trained on them
        """
def probe(model, batches, num_classes, lr=0.05):
    head = nn.Linear(model.fc.in_features, num_classes)
    model.fc = nn.Identity()
    model.requires_grad_(False).eval()
    features = [(model(images), targets) for images, targets in batches]
    optimizer = AdamW(head.parameters(), lr)
    for inputs, targets in features:
        loss = nn.CrossEntropyLoss()(head(inputs), targets)
        loss.backward()
        optimizer.step()
        head.zero_grad()
    model.fc = head
    return model
""",
    ],
}  # fmt: skip
