"""Planted answers of lesson 03: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import RETURN, SEEDS, plant_comparisons

TRAIN = "by_lora = train(options, seeds)"
SCALE = "alpha / len(A)"
FORWARD = "x @ weight.T + alpha / len(A) * (x @ A.T @ B.T)"

A = "self.A = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))"
B = "self.B = nn.Parameter(torch.zeros(base.out_features, rank))"
UPDATE = "(x @ self.A.T @ self.B.T)"
MERGE = "        self.base.weight += self.scale * self.B @ self.A\n"
FORGET = "        self.scale = 0.0"
CONTROL_FREEZES = '    model = freeze_before(model, "fc")\n'
ADAPT = 'get_peft_model(model, LoraConfig(**settings, modules_to_save=["fc"]))'


WRONG = {
    "lora_experiment": [
        *plant_comparisons("by_full", "by_lora", "LoRA minus full fine-tuning"),
        (TRAIN, "by_lora = train(options, (3, 4, 5, 6))", "pair them"),
        (f"return {ADAPT}", "return model", "No training has LoRA"),
        ('"r": 8', '"r": 300', "more than half of the parameters"),
        ('{"pretrained": True}', '{"model_transform": lambda m: freeze_before(m, "fc")}',
         "No training changes all parameters"),
        ("train(options, seeds)\n    options", "np.array([0.6, 0.7])\n    options",
         TRAIN, "by_lora = by_full", "Nothing was trained"),
    ],
    "lora_forward": [
        (FORWARD, "x @ weight.T", "The update is missing: add the path through A and B."),
        ("alpha / len(A) * ", "", "The update is not scaled: multiply it by alpha / r."),
        (SCALE, "alpha", "The update is scaled by alpha: divide by the rank, alpha / r."),
        (SCALE, "1 / len(A)", "The update is scaled by 1 / r: alpha is missing."),
        ("len(A)", "A.shape[1]", "That divides by the input's size: the rank is A.shape[0]."),
        ("len(A)", "len(B)", "That divides by the output's size: the rank is A.shape[0]."),
        ("len(A)", "math.sqrt(len(A))",
         "The scale is alpha / √r (rank-stabilised LoRA); here it is alpha / r."),
        (SCALE, "alpha // len(A)",
         "The scale is rounded down to a whole number: divide alpha by r with /."),
        (SCALE, f"({SCALE}) ** 2", "The update is scaled twice: once by alpha / r is enough."),
        (FORWARD, "alpha / len(A) * (x @ weight.T + x @ A.T @ B.T)",
         "The frozen layer is scaled too: alpha / r belongs to the update alone."),
        ("(x @ A.T", "((x @ A.T).relu()",
         "There is an activation between A and B: the update is linear."),
        ("x @ weight.T + ", "", "The frozen layer is missing: its output x @ weight.T stays."),
        ("alpha /", "3 * alpha /", "scaled by 13.5; here alpha / r is 4.5"),
        ("(x @ A.T @ B.T)", "(x @ A.T @ B.T).tanh()", "The values differ"),
        ("weight.T", "weight.add_(B @ A, alpha=alpha / len(A)).T", "changes the tensors"),
        (FORWARD, f"({FORWARD}).T", "The output is"),
        ("return", "x =", "is there a return"),
    ],
    "adapter": [
        ("torch.randn", "torch.zeros", "never learns"),
        ("torch.zeros", "torch.randn", "does not start as base"),
        ("alpha / rank", "alpha // rank", "scaled by 1; here alpha / r is 1.5"),
        ("alpha / rank", "alpha", "The update is scaled by alpha: divide by the rank."),
        ("alpha / rank", "1 / rank", "scaled by 0.5; here alpha / r is 4"),
        (".requires_grad_(False)", "", "base.weight, base.bias must be frozen"),
        (A, A.replace("nn.Parameter", ""), B, B.replace("nn.Parameter", ""), "Nothing is trained"),
        (B, f"{B}\n        self.C = nn.Parameter(torch.ones(3))", "Train A (rank, in)"),
        (UPDATE, f"{UPDATE}.tanh()", "forward is not base"),
        (UPDATE, f"{UPDATE}.detach()", "No gradient reaches"),
        (MERGE, "", "has not changed the weight"),
        ("+= self.scale * self.B @ self.A", "*= 2", "is not α/r · B A"),
        ("+= self.scale * ", "+= ", "adds 1 · B A to the weight of base; here α/r is 4"),
        (FORGET, f"        self.base.bias.zero_()\n{FORGET}", "changed the bias"),
        (FORGET, "        ", "counts twice: forward still adds it"),
        ("self.base(x) +", "(self.base(x) if self.scale else x @ self.base.weight.T) +",
         "merge() has changed the output"),
        ("+= self.scale", "+= (self.scale or 4.0)", "A second merge"),
        (FORGET, f"        self.base.requires_grad_()\n{FORGET}", "weight of base is trainable"),
        ("self.base, self.scale", "self.layer, self.scale", "Keep the layer as self.base"),
        ("def forward", "def call", "stopped with NotImplementedError: Module"),
    ],
    "make_control": [
        ("return model", "model", "Return the model"),
        (CONTROL_FREEZES, "", "Nothing is frozen: that is full fine-tuning"),
        ('freeze_before(model, "fc")', "model.requires_grad_(False)",
         "The head is frozen, and the colleague trains it"),
        ('freeze_before(model, "fc")', "model.requires_grad_(False)", "requires_grad_(True)",
         "requires_grad_(True)\n    model.fc.requires_grad_(True)", "BatchNorm is not frozen"),
        ("re.fullmatch(layers, name)", "False", "is frozen: train in full what gets adapters"),
        ("re.fullmatch(layers, name)", 'name.startswith("layer")', "and the colleague freezes it"),
        ("requires_grad_(True)", "requires_grad_(True)\n    model.requires_grad_(False)",
         "Nothing is trained"),
        ("return model", 'settings = {"r": 4, "target_modules": layers}\n    return '
         "get_peft_model(model, LoraConfig(**settings))", "The control has adapters"),
    ],
}  # fmt: skip

RIGHT = {
    "lora_experiment": [
        # the interval by hand
        (SEEDS, "[5, 3, 8, 1, 2]", RETURN, "points = 100 * np.subtract(by_lora, by_full)\n    "
         "half = 2.7764451 * points.std(ddof=1) / math.sqrt(5)\n    return answer | "
         '{"low": points.mean() - half, "high": points.mean() + half}'),
        # two ranks, and the better one is reported; lists instead of arrays
        ('"r": 8', '"r": rank', "adapt(model)", "adapt(model, rank=8)", TRAIN, "other = options | "
         '{"model_transform": partial(adapt, rank=1)}\n    by_lora = '
         "max([list(train(x, seeds)) for x in (options, other)], key=np.mean)"),
    ],
    "lora_forward": [
        (FORWARD, "F.linear(x, weight) + F.linear(F.linear(x, A), B) * (alpha / A.shape[0])"),
        (FORWARD, "F.linear(x, torch.addmm(weight, B, A, alpha=alpha / len(A)))"),
    ],
    "adapter": [
        # one matrix product with the sum of both weights; B starts again from zero when merged
        (f"self.base(x) + self.scale * {UPDATE}", "F.linear(x, torch.addmm(self.base.weight, "
         "self.B, self.A, alpha=self.scale), self.base.bias)", FORGET, "        self.B.zero_()"),
        # two layers without bias, of which the first starts at zero; a flag
        (A, "self.down = nn.Linear(base.in_features, rank, bias=False)",
         B, "self.up = nn.Linear(rank, base.out_features, bias=False)\n        "
         "nn.init.zeros_(self.down.weight)\n        self.merged = False", UPDATE,
         "(0 if self.merged else self.up(self.down(x)))", MERGE, "        if not self.merged:\n"
         "            self.base.weight += self.scale * self.up.weight @ self.down.weight\n",
         "self.scale = 0.0", "self.merged = True"),
    ],
    "make_control": [
        # weights only, as LoRA, which leaves the biases frozen
        ("module.requires_grad_(True)", "module.weight.requires_grad_(True)"),
        # by the names of parameters
        ("model.named_modules()", "model.named_parameters()", "re.fullmatch(layers, name)",
         're.fullmatch(rf"({layers})\\.(weight|bias)", name)'),
    ],
}  # fmt: skip
