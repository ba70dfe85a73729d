"""Planted answers of lesson 02: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_reports

VERDICT = "paired_difference(full, last).verdict()"
FREEZE = "timm.utils.freeze(model, names)"
EACH = "for child in map(model.get_submodule, names):\n        "
OWN = f"{EACH}child.requires_grad_(False)"
NO_STATISTICS = (
    "for module in model.modules():\n        if hasattr(module, 'track_running_stats'):\n"
    "            module.track_running_stats = False"
)
NO_TRAIN = "\n    model.train = lambda mode=True: model\n    return model"
NAMES = "[name for name, _ in model.named_children() if name != head]"
OF_CHILDREN = "[[p for p in child.parameters() if p.requires_grad] for child in model.children()]"
KEPT = "[parameters for parameters in children if parameters]"
GROUP = '{"params": parameters, "lr": lr * decay**depth}'
FROZEN = "model.requires_grad_(False)"
HEAD = "model.fc = nn.Linear(model.fc.in_features, num_classes)"
HOLDS = "torch.optim.AdamW(model.fc.parameters(), lr=lr)"
IN_TRAIN_MODE = (
    "The head is trained on features in train mode, which BatchNorm normalises with the batch's "
    "own statistics: the backbone must be in eval mode."
)

WRONG = {
    "report_variants": [
        (VERDICT, '"helps"', "is inconclusive, not helps"),
        *plant_reports("full", "last"),
        (VERDICT, "paired_difference(last, full).verdict(margin=1)", "not equivalent"),
    ],
    "freeze_all_but": [
        (FREEZE, f"{OWN}.eval()", "moved in training: BatchNorm's statistics have no gradient"),
        (FREEZE, f"{OWN}\n    {NO_STATISTICS}", "still normalises with those"),
        (FREEZE, f"{EACH}child.requires_grad = False", "would still be trained"),
        (NAMES, f"{NAMES}[1:]", "stem.bias, stem.weight would still be trained"),
        ("name != head", "head not in name", "fc_norm.weight would still"),
        (", names)", ")", "head must stay trainable"),
        (NAMES, "['stem', 'bn', 'block', 'fc_norm']", "here 'block'"),
        ("return model", "", "Return the model"),
        ("names =", "model = copy.deepcopy(model)\n    names =", "in place"),
        ("return model", f"model.eval(){NO_TRAIN}", "train(True) does not reach the head"),
        ("return model", f"model.eval().get_submodule(head).train(){NO_TRAIN}",
         "train(False) does not reach the head"),
    ],
    "group_by_depth": [
        (KEPT, "children", "block is 2 below the last child"),
        ("reversed(children)", "children", "fc is the last child that is trained"),
        ("decay**depth", "decay * depth", "fc is the last child that is trained"),
        (" if p.requires_grad", "", "is frozen and stands in a group"),
        (KEPT, f"{KEPT}[1:]", "stem.weight is trained, in no group"),
        (KEPT, f"{KEPT} + children[:1]", "two groups"),
        (KEPT, "[own for own, c in zip(children, model.children()) if [*c.parameters()]]",
         "With block frozen, bn is 2 below"),
        (OF_CHILDREN, "[[p] for p in model.parameters() if p.requires_grad]", "fc has parameters "
         "with different learning rates: the depth counts children, not parameters."),
        (GROUP, "parameters", "Each group is a dict"),
        ("child.parameters() if p.requires_grad", "child.state_dict()", "not their names"),
        ("return [", "[", "Return a list"),
    ],
    "probe": [
        (FROZEN, "for child in model.children(): child.requires_grad = False",
         "attribute that PyTorch never"),
        ("eval()", "eval().requires_grad_(False)", "The new head is frozen too"),
        (HEAD, "", HOLDS, f"AdamW(model.parameters(), lr=lr)\n    {HEAD}",
         "which parameters does the optimizer hold"),
        ("model.eval()", "model.train()", "must not be in train mode"),
        (HEAD, "model.fc.requires_grad_(True).out_features = num_classes", "the shape (5, 32)"),
        (HEAD, "model.fc = nn.Sequential(nn.Linear(32, num_classes), nn.Softmax(dim=1))",
         "which gives logits"),
        ("        optimizer.zero_grad()\n", "",
         "A step sees the gradients of all batches so far: call zero_grad before each backward."),
        (", lr=lr", "", "trained with the learning rate 0.001, and lr is 0.03"),
        ("in batches:", "in batches[:-1]:", "makes 4 steps, and here it took 3"),
        ("in batches:", "in batches[::-1]:", "on each batch, in its turn"),
        # on the statistics of each batch, which the running statistics do not show
        ("model.eval()", NO_STATISTICS, IN_TRAIN_MODE),
        ("return model", "", "Return the model"),
    ],
}  # fmt: skip

RIGHT = {
    "report_variants": [
        """
def report_variants():
    return [0.5, 0.51, 0.52], [0.55, 0.565, 0.57], "helps"
""",
        """
def report_variants():
    return np.array([0.55, 0.565, 0.57]), np.array([0.5, 0.51, 0.52]), "hurts"
""",
        """
def report_variants():
    return (0.5, 0.51, 0.52, 0.53), (0.501, 0.51, 0.521, 0.529), "equivalent"
""",
    ],
    "freeze_all_but": [
        (FREEZE, f"{OWN}.eval()\n        child.train = lambda mode=True, child=child: child"),
        # each frozen child is put in eval mode as it is called
        (FREEZE, f"{OWN}\n        child.register_forward_pre_hook(lambda child, _: child.eval() "
         "and None)"),
    ],
    "group_by_depth": [
        # learning rates as tensors
        (GROUP, '{"params": parameters, "lr": lr * torch.tensor(decay).pow(depth)}'),
        # by the first part of a parameter's name
        (OF_CHILDREN, "{name: [] for name, _ in model.named_children()}\n"
         "    for name, p in model.named_parameters():\n        if p.requires_grad:\n"
         "            children[name.partition('.')[0]].append(p)", "in children if",
         "in children.values() if"),
    ],
    "probe": [
        # the frozen part's features are computed once, and the head is trained on them
        (HOLDS, f"{HOLDS}\n    head, model.fc = model.fc, nn.Identity()", "in batches:",
         "in [(model(images), targets) for images, targets in batches]:", "py(model(images)",
         "py(head(images)", "return model", "model.fc = head\n    return model"),
        (HOLDS, "torch.optim.SGD(model.parameters(), lr=lr)", FROZEN, "freeze_before(model, 'fc')",
         "optimizer.zero_grad()", "model.zero_grad()"),
    ],
}  # fmt: skip
