"""Planted answers of the lesson's exercises."""

ADAPTER = """
import math
import torch
from torch import nn

class Adapter(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base{frozen}
        self.scale, self.merged = {scale}, False
        self.A = nn.Parameter({A})
        self.B = nn.Parameter({B})

    def forward(self, x):
        {forward}
        return self.base(x) + self.scale * (x @ self.A.T @ self.B.T)

    @torch.no_grad()
    def merge(self):
        {merge}
"""


ADAPT = """
from peft import LoraConfig, get_peft_model
from course_utils.models.freeze import freeze_before

def adapt(model, rank):
    {first}
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules={target}{save})
    return get_peft_model(model, config)
"""


ADD = "self.base.weight += self.scale * self.B @ self.A"


RIGHT = {
    "frozen": ".requires_grad_(False)",
    "scale": "alpha / rank",
    "A": "torch.randn(rank, base.in_features)",
    "B": "torch.zeros(base.out_features, rank)",
    "forward": "if self.merged: return self.base(x)",
    "merge": f"if not self.merged: {ADD}; self.merged = True",
}


LAYERS = "r'layer\\d\\..*conv\\d?'"


def _forward(expression: str) -> str:
    return f"def lora_forward(x, weight, A, B, alpha):\n    return {expression}"


def _adapter(**changed: str) -> str:
    return ADAPTER.format(**RIGHT | changed)


def _adapt(first="freeze_before(model, 'fc')", target=LAYERS, save=", modules_to_save=['fc']"):
    return ADAPT.format(first=first, target=target, save=save)


EXPERIMENT = """
def lora_experiment(train):
    def adapt(model):
        {first}
        settings = {{"r": {rank}, "lora_alpha": 8, "target_modules": r"layer\\d\\..*conv\\d?"}}
        return get_peft_model(model, LoraConfig(**settings, modules_to_save=["fc"]))

    options = {{"pretrained": True}}
    full = train(options, {seeds})
    lora = train(options | {{"model_transform": adapt}}, {other_seeds})
    {between}
    found = paired_difference(full, lora)
    low, high, verdict = 100 * found.low, 100 * found.high, found.verdict()
    {after}
    return {{"full": full, "lora": lora, "low": low, "high": high, "verdict": verdict}}
"""


def _experiment(**changed: str) -> str:
    first = {"first": "model = freeze_before(model, 'fc')", "rank": "8"}
    rest = {"seeds": "(0, 1, 2)", "other_seeds": "(0, 1, 2)", "between": "", "after": ""}
    return EXPERIMENT.format(**first | rest | changed)


WRONG_ANSWERS = {
    "lora_experiment": [
        (_experiment(after="low, high = -0.5, 0.5"), "not the 95 % interval of the accuracies"),
        (_experiment(after="low, high = high, low"), "not the 95 % interval of the accuracies"),
        (_experiment(after="verdict = 'equivalent'"), "is helps, not equivalent"),
        (_experiment(after="full = [0.6, 0.61, 0.62]"), "full does not hold the accuracies"),
        (_experiment(after="lora = 100 * lora"), "lora does not hold the accuracies"),
        (_experiment(other_seeds="(3, 4, 5)"), "pair them"),
        (_experiment(seeds="(0, 0, 1)", other_seeds="(0, 0, 1)"), "A seed is there twice"),
        (_experiment(seeds="(0, 1)", other_seeds="(0, 1)"), "three seeds or more"),
        (_experiment(first="return freeze_before(model, 'fc')"), "No training has LoRA"),
        (_experiment(rank="300"), "more than half of the parameters"),
        (_experiment().replace("train(options, (0, 1, 2))",
                               "train({'model_transform': lambda m: freeze_before(m, 'fc')}, "
                               "(0, 1, 2))"), "No training changes all parameters"),
        (_experiment(after="return full, lora"), "Return a dictionary"),
        (_experiment(after="return {'full': full, 'lora': lora}"), "lacks high, low, verdict"),
        ("def lora_experiment(train):\n    return {'full': [0.6], 'lora': [0.6], 'low': 0, "
         "'high': 0, 'verdict': 'equivalent'}", "Nothing was trained"),
    ],
    "lora_forward": [
        # The check knows these too; a second source shows that each sentence is about its fault.
        (_forward("x @ weight.T + alpha / A.shape[1] * x @ A.T @ B.T"), "the input's size"),
        (_forward("x @ weight.T + alpha / len(B) * x @ A.T @ B.T"), "the output's size"),
        (_forward("x @ weight.T + 3 * alpha / len(A) * x @ A.T @ B.T"),
         "scaled by 13.5; here alpha / r is 4.5"),
        (_forward("x @ weight.T + alpha / len(A) * (x @ A.T @ B.T).tanh()"), "The values differ"),
        (_forward("x @ (weight.add_(B @ A, alpha=alpha / len(A))).T"), "changes the tensors"),
        (_forward("(x @ weight.T + alpha / len(A) * x @ A.T @ B.T).T"), "The output is"),
        (_forward("None"), "is there a return"),
        (_forward("x @ weight + alpha / len(A) * x @ A.T @ B.T"), "stopped with RuntimeError"),
    ],
    "adapter": [
        (_adapter(A="torch.zeros(rank, base.in_features)"), "never learns"),
        (_adapter(B="torch.randn(base.out_features, rank)"), "does not start as base"),
        (_adapter(scale="alpha // rank"), "scaled by 1; here alpha / r is 1.5"),
        (_adapter(scale="alpha"), "scaled by alpha"),
        (_adapter(scale="1 / rank"), "scaled by 0.5; here alpha / r is 4"),
        (_adapter(frozen=""), "base.weight, base.bias must be frozen"),
        (_adapter().replace("nn.Parameter", ""), "Nothing is trained"),
        (_adapter(merge=f"if self.merged: self.base.weight -= self.scale * self.B @ self.A\n"
                        f"        else: {ADD}\n        self.merged = not self.merged"),
         "A second merge"),
        (_adapter(forward="if self.merged: return x @ self.base.weight.T"),
         r"merge\(\) has changed the output"),
        (_adapter(merge=f"if not self.merged: {ADD}; self.base.bias.zero_(); self.merged = True"),
         "changed the bias"),
        (_adapter(merge="if not self.merged: self.base.weight *= 2; self.merged = True"),
         "is not α/r · B A"),
        (_adapter(merge=ADD), "counts twice: forward still adds it"),
        (_adapter(merge=f"{ADD}; self.merged = True"), "A second merge"),
        (_adapter(merge="self.merged = True"), "has not changed the weight"),
        (_adapter(merge="if not self.merged: self.base.weight += self.B @ self.A; "
                        "self.merged = True"), r"adds 1 · B A .* here α/r is 4"),
        (_adapter(A="torch.randn(base.in_features, rank)"), "stopped with|Train A"),
        (_adapter(forward="return self.base(x) + self.scale * (x @ self.A.T @ self.B.T).tanh()"),
         "forward is not base"),
        (_adapter(forward="if self.merged: return self.base(x)\n        "
                          "return self.base(x) + self.scale * (x @ self.A.T @ self.B.T).detach()"),
         "No gradient reaches"),
        (_adapter(merge=f"if not self.merged: {ADD}; self.merged = True\n        "
                        "self.base.requires_grad_(True)"), "weight of base is trainable"),
        (_adapter().replace("self.base", "self.layer"), "Keep the layer as self.base"),
        (_adapter().replace("def forward", "def call"), "stopped with NotImplementedError: Module"),
    ],
    "adapt": [
        (_adapt(target="['conv', 'conv1', 'conv2']"), "The stem has an adapter"),
        (_adapt(target="['conv1', 'conv2']"),
         "No adapter on layer1.0.conv, layer2.0.conv, layer3.0.conv"),
        (_adapt(save=""), "head is frozen"),
        (_adapt(first="pass"), "BatchNorm move"),
        (_adapt().replace("return get_peft_model(model, config)",
                          "return get_peft_model(model, config).requires_grad_(True)"),
         "stem.conv.weight, .* should be frozen"),
        (_adapt(target=LAYERS[:-1] + "|fc'", save=""), "modules_to_save trains it as a whole"),
        (_adapt(target=LAYERS[:-1] + "|fc'", save="").replace("return ", "model = ")
         + "    model.base_model.model.fc.base_layer.requires_grad_(True)\n    return model\n",
         "fc should have no adapter"),
        (_adapt().replace("r=rank", "r=9"), "The rank was to be 2"),
        (_adapt(first="pass").replace("return get_peft_model(model, config)",
                                      "return get_peft_model(model, config).requires_grad_(False)"),
         "adapters themselves are frozen"),
        (_adapt(first="for m in model.modules():\n        "
                      "if hasattr(m, 'momentum'): m.momentum = 0"), "BatchNorm"),
        (_adapt(target="r'layer[34]\\..*conv\\d?'"), "No adapter on layer1.0.conv, layer2"),
        (_adapt(target="'conv9'"), "stopped with NoMatchingPeftModuleError|stopped with"),
        ("def adapt(model, rank):\n    pass", "Return the model"),
        ("def adapt(model, rank):\n    return model", "No adapter on"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "lora_experiment": [
        # the interval and the verdict by hand
        """
def lora_experiment(train):
    def adapt(model):
        config = LoraConfig(r=2, target_modules=r"layer4\\..*conv\\d?", modules_to_save=["fc"])
        return get_peft_model(model, config)

    from scipy import stats

    result = {"full": train({}, [5, 3, 8, 1, 2])}
    result["lora"] = train({"model_transform": adapt}, [5, 3, 8, 1, 2])
    points = 100 * np.subtract(result["lora"], result["full"])
    half = stats.t.ppf(0.975, len(points) - 1) * points.std(ddof=1) / math.sqrt(len(points))
    result["low"], result["high"] = points.mean() - half, points.mean() + half
    if max(abs(result["low"]), abs(result["high"])) <= 1:
        return result | {"verdict": "equivalent"}
    if result["low"] < 0 < result["high"]:
        return result | {"verdict": "inconclusive"}
    return result | {"verdict": "helps" if points.mean() > 0 else "hurts"}
""",
        # two ranks, and the better one is reported; lists instead of arrays
        """
def lora_experiment(train):
    names = ["layer3.0.conv", "layer4.0.conv1", "layer4.0.conv2"]
    plans = {}
    for rank in (1, 4):
        config = LoraConfig(r=rank, target_modules=names, modules_to_save=["fc"])
        plans[rank] = partial(get_peft_model, peft_config=config)
    every = tuple(range(3))
    baseline = train({"pretrained": True}, every)
    tried = [train({"pretrained": True, "model_transform": plan}, every) for plan in plans.values()]
    chosen = max(tried, key=np.mean)
    report = paired_difference(list(baseline), list(chosen))
    return dict(
        verdict=report.verdict(),
        high=report.high * 100,
        low=report.low * 100,
        lora=list(chosen),
        full=list(baseline),
    )
""",
    ],
    "lora_forward": [
        """
def lora_forward(x, weight, A, B, alpha):
    return F.linear(x, weight) + F.linear(F.linear(x, A), B) * (alpha / A.shape[0])
""",
        # adds the update to a copy of the weight
        """
def lora_forward(x, weight, A, B, alpha):
    rank, _ = A.shape
    merged = torch.addmm(weight, B, A, alpha=alpha / rank)
    return torch.einsum("nk,dk->nd", x, merged)
""",
    ],
    "adapter": [
        # two layers without bias; merged is when the update counts for nothing any more
        """
class Adapter(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base
        for parameter in base.parameters():
            parameter.requires_grad = False
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * self.up(self.down(x))

    @torch.no_grad()
    def merge(self):
        self.base.weight.add_(self.up.weight @ self.down.weight, alpha=self.scale)
        self.scale = 0.0
""",
        # one matrix product with the sum of both weights; B starts again from zero when merged
        """
class Adapter(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base, self.share = base.requires_grad_(False), alpha / rank
        self.A = nn.Parameter(torch.empty(rank, base.in_features))
        self.B = nn.Parameter(base.weight.new_zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

    def weight(self):
        return torch.addmm(self.base.weight, self.B, self.A, alpha=self.share)

    def forward(self, x):
        return F.linear(x, self.weight(), self.base.bias)

    @torch.no_grad()
    def merge(self):
        self.base.weight.copy_(self.weight())
        self.B.zero_()
""",
        # A starts at zero instead of B
        """
class Adapter(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base, self.factor = base.requires_grad_(False), torch.tensor(alpha / rank)
        self.matrices = nn.ParameterList(
            [torch.zeros(rank, base.in_features), torch.randn(base.out_features, rank)]
        )
        self.register_buffer("counts", torch.ones(()))

    def forward(self, x):
        thin, wide = self.matrices
        update = F.linear(F.linear(x, thin), wide)
        return torch.addcmul(self.base(x), self.counts * self.factor, update)

    @torch.no_grad()
    def merge(self):
        thin, wide = self.matrices
        self.base.weight += self.counts * self.factor * (wide @ thin)
        self.counts.zero_()
""",
    ],
    "adapt": [
        _adapt(
            first="freeze_before(model, 'fc')",
            target="[f'layer{k}.0.conv' for k in (1, 2, 3)] + ['layer4.0.conv1', 'layer4.0.conv2']",
        ),
        # freezes BatchNorm only, excludes the stem, and thaws the head by hand
        """
def adapt(model, rank):
    for name, child in model.named_children():
        setattr(model, name, freeze_batch_norm_2d(child))
    config = LoraConfig(
        r=rank,
        lora_alpha=rank,
        target_modules=["conv", "conv1", "conv2"],
        exclude_modules="stem.conv",
    )
    adapted = get_peft_model(model, config)
    for parameter in adapted.base_model.model.fc.parameters():
        parameter.requires_grad = True
    return adapted
""",
    ],
}
