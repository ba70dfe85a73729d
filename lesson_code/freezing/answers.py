"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

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
    "measure_schemes": plant_experiments("measure_schemes"),
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
        (_freeze("timm.utils.freeze(model, ['stem', 'bn', 'block', 'fc_norm'])", "return model"),
         "here 'block'"),
        (_freeze("import copy", "model = copy.deepcopy(model)",
                 "timm.utils.freeze(model, [n for n, _ in model.named_children() if n != head])",
                 "return model"), "in place"),
        (_freeze(OTHERS, "for c in others: c.requires_grad_(False)",
                 "for m in model.modules():", "    if hasattr(m, 'momentum'): m.momentum = 0",
                 "return model"), "moved in training|still normalises"),
        (_freeze("names = [n for n, _ in model.named_children() if not n.startswith(head)]",
                 "timm.utils.freeze(model, names)", "return model"), "fc_norm.weight would still"),
        (_freeze("names = [n for n, _ in model.named_children() if head not in n]",
                 "timm.utils.freeze(model, names)", "return model"), "fc_norm.weight would still"),
        (_freeze(OTHERS, "for c in others: c.requires_grad_(False)", "model.eval()",
                 "model.train = lambda mode=True: model", "return model"),
         r"train\(True\) does not reach the head"),
        (_freeze(OTHERS, "for c in others: c.requires_grad_(False)", "model.eval()",
                 "model.get_submodule(head).train()", "model.train = lambda mode=True: model",
                 "return model"), r"train\(False\) does not reach the head"),
    ],
    "group_by_depth": [
        (_group("lists = [list(c.parameters()) for c in model.children()]",
                "return [{'params': p, 'lr': lr * decay ** d} for d, p in "
                "enumerate(reversed(lists))]"), "block is 2 below"),
        (_group(TRAINABLE, "lists = [p for p in lists if p]",
                "return [{'params': p, 'lr': lr * decay ** d} for d, p in enumerate(lists)]"),
         "fc is the last child that is trained"),
        (_group(TRAINABLE, "lists = [p for p in lists if p]",
                "return [{'params': p, 'lr': lr * decay * d} for d, p in "
                "enumerate(reversed(lists))]"), "fc is the last child that is trained"),
        (_group("lists = [list(c.parameters()) for c in model.children()]",
                "lists = [p for p in lists if p]",
                "return [{'params': p, 'lr': lr * decay ** d} for d, p in "
                "enumerate(reversed(lists))]"), "is frozen and stands in a group"),
        (_group(TRAINABLE, "lists = [p for p in lists if p]",
                "return [{'params': p, 'lr': lr * decay ** d} for d, p in "
                "enumerate(reversed(lists[1:]))]"), "stem.weight is trained, in no group"),
        (_group(TRAINABLE, "lists = [p for p in lists if p]",
                "return [{'params': p, 'lr': lr} for p in lists + lists[:1]]"), "two groups"),
        (_group("lists = [list(c.parameters()) for c in model.children()]",
                "lists = [p for p in reversed(lists) if p]",
                "groups = [{'params': [q for q in p if q.requires_grad], 'lr': lr * decay ** d} "
                "for d, p in enumerate(lists)]",
                "return [group for group in groups if group['params']]"),
         "With block frozen, bn is 2 below"),
        (_group("kept = [p for p in model.parameters() if p.requires_grad]",
                "return [{'params': [p], 'lr': lr * decay ** d} for d, p in "
                "enumerate(reversed(kept))]"), "depth counts children, not parameters"),
        (_group("return [p for p in model.parameters()]"), "Each group is a dict"),
        (_group("return [{'params': [n], 'lr': lr} for n, _ in model.named_parameters()]"),
         "not their names"),
        (_group("pass"), "Return a list"),
    ],
    "probe": [
        (_probe(ATTRIBUTE, OF_ALL, NEW_HEAD, "model.train()"), "attribute that PyTorch never"),
        (_probe(NEW_HEAD, OF_HEAD, "model.eval()"), "The backbone has gradients"),
        (_probe(NEW_HEAD, OF_HEAD, "model.eval().requires_grad_(False)"),
         "The new head is frozen too"),
        (_probe("model.requires_grad_(False)", OF_ALL, NEW_HEAD, "model.eval()"),
         "which parameters does the optimizer hold"),
        (_probe("model.requires_grad_(False)", NEW_HEAD, OF_HEAD, "model.train()"),
         "must not be in train mode"),
        (_probe(NEW_HEAD, OF_ALL, "model.eval()"), "backbone has gradients or has changed"),
        (_probe("model.requires_grad_(False)", "model.fc.requires_grad_(True)", OF_HEAD,
                "model.eval()"), "make a new nn.Linear with 3"),
        (_probe("model.requires_grad_(False)", "model.fc.out_features = num_classes",
                "model.fc.requires_grad_(True)", OF_HEAD, "model.eval()"), r"the shape \(5, 32\)"),
        (_probe("model.requires_grad_(False)",
                "model.fc = nn.Sequential(nn.Linear(32, num_classes), nn.Softmax(dim=1))", OF_HEAD,
                "model.eval()"), "which gives logits"),
        (_probe("model.requires_grad_(False)", NEW_HEAD, OF_HEAD, "model.eval()")
         .replace("optimizer.zero_grad()", "pass"), "call zero_grad before each backward"),
        (_probe("model.requires_grad_(False)", NEW_HEAD, OF_HEAD.replace("lr=lr", ""),
                "model.eval()"), "trained with the learning rate 0.001, and lr is 0.03"),
        (_probe("model.requires_grad_(False)", NEW_HEAD, OF_HEAD, "model.eval()",
                "batches = batches[:-1]"), "makes 4 steps, and here it took 3"),
        (_probe("model.requires_grad_(False)", NEW_HEAD, OF_HEAD, "model.eval()",
                "batches = batches[::-1]"), "on each batch, in its turn"),
        # on the statistics of each batch, which the running statistics do not show
        (_probe("model.requires_grad_(False)", NEW_HEAD, OF_HEAD, "model.train()",
                "for m in model.modules():",
                "    if hasattr(m, 'track_running_stats'): m.track_running_stats = False"),
         "features in train mode"),
        (_probe("model.requires_grad_(False)", NEW_HEAD, OF_HEAD, "model.train()",
                "kept = {n: x.clone() for n, x in model.state_dict().items() if 'fc.' not in n}")
         .replace("return", "model.load_state_dict(kept, strict=False)\n    return"),
         "features in train mode"),
        ("def probe(model, batches, num_classes, lr):\n    pass", "Return the model"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "measure_schemes": [
        # one training after the other, at other seeds
        """
def measure_schemes(config, data):
    columns = []
    for first_trained, lr in (("fc", 5e-3), ("layer4", 1e-3)):
        cut = partial(freeze_before, first_trained=first_trained)
        options = {"model_transform": cut, "make_optimizer": partial(AdamW, lr=lr)}
        runs = [fit(config, data, seed=seed, pretrained=True, **options) for seed in (7, 8, 9)]
        columns.append([run.metrics["val_accuracy"] for run in runs])
    differences = np.subtract(columns[1], columns[0])
    half = 4.302652729911275 * differences.std(ddof=1) / np.sqrt(3)
    return *columns, differences.mean() - half, differences.mean() + half
""",
        """
def measure_schemes(config, data):
    scratch = {"make_optimizer": partial(AdamW, lr=1e-3)}
    arms = {"scratch": scratch, "pretrained": scratch | {"pretrained": True}}
    found = compare(config, data, arms, seeds=range(4))
    gain = found.difference("pretrained")
    return [found.values("scratch"), found.values("pretrained"), gain.low, gain.high]
""",
    ],
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
        # learning rates as tensors
        _group(
            "rates = torch.tensor(lr) * decay ** torch.arange(9)", "groups = []",
            "for child in reversed([*model.children()]):",
            "    kept = list(filter(lambda p: p.requires_grad, child.parameters()))",
            "    if kept: groups += [{'params': kept, 'lr': rates[len(groups)]}]", "return groups"),
    ],
    "probe": [
        _probe(
            "model.eval()", "for p in model.parameters(): p.requires_grad_(False)", NEW_HEAD,
            "optimizer = torch.optim.SGD(model.fc.parameters(), lr=lr)"),
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
        # the optimizer computes the gradients itself
        """
def probe(model, batches, num_classes, lr=0.05):
    freeze_before(model, "fc").fc = nn.Linear(model.fc.in_features, num_classes)
    optimizer = AdamW(model.parameters(), lr)
    for images, targets in batches:
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), targets)
            loss.backward()
            return loss
        optimizer.step(closure)
    return model
""",
    ],
}  # fmt: skip
