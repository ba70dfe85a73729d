"""Putting it together: checks of the lesson's recipe cards, planted answers of its exercises."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.config import load_config
from course_utils.data.augment import flip_and_shift
from course_utils.models.airbench import whiten_stem
from course_utils.models.create import create_model
from course_utils.training.recipes import WhitenStem, from_scratch
from course_utils.training.schedules import warmup_cosine
from tests.experiments import plant_experiments

PHOTOS = load_config("smoke", dataset="photos").replace(progress=False)


# The lesson's recipe cards: each gets the names that the card defined.
def train_again(card, recipe):
    """The script's training, with network, images, optimizer, schedule and loss of the course."""
    torch.manual_seed(card["seed"])
    generator = torch.Generator().manual_seed(card["seed"])
    net = recipe["model_transform"](create_model(recipe["config"].model, 10)).train()
    whiten_stem(net, card["images"][card["train"]][:5000])
    optimizer = recipe["make_optimizer"](net.named_parameters())
    schedule = recipe["make_schedule"](optimizer, card["epochs"] * card["steps"])
    train, size = card["train"], card["batch_size"]
    for _ in range(card["epochs"]):
        shuffled = train[torch.randperm(len(train), generator=generator)]
        for chosen in shuffled.split(size)[: card["steps"]]:
            images = card["images"][chosen].permute(0, 2, 3, 1)
            moved = flip_and_shift(images, generator, max_shift=2).permute(0, 3, 1, 2)
            with torch.autocast("cpu", torch.bfloat16):
                logits = net(moved)
            recipe["loss"](logits.float(), card["targets"][chosen]).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    return net, optimizer


def check_pytorch_card(card):
    """The script trains as `from_scratch` does, and never on validation images.

    Only the images that whiten the stem are others.
    """
    recipe = from_scratch(PHOTOS, card["epochs"], card["batch_size"])
    assert recipe["trainer"].keys() == {"precision", "callbacks"}
    assert recipe["trainer"]["precision"] == "bf16-mixed"
    [whiten] = recipe["trainer"]["callbacks"]
    assert isinstance(whiten, WhitenStem)  # with the images of its first batch
    assert not set(card["train"].tolist()) & set(card["val"].tolist())
    assert len(card["train"]) + len(card["val"]) == len(card["images"])
    batch = card["images"][card["train"]]
    torch.testing.assert_close(batch.mean((0, 2, 3)), torch.zeros(3), atol=1e-3, rtol=0)
    torch.testing.assert_close(batch.std((0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0)

    net, optimizer = train_again(card, recipe)
    trained = card["net"].state_dict().values()  # in their order: the layers' names differ
    for ours, theirs in zip(net.state_dict().values(), trained, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    for ours, theirs in zip(optimizer.param_groups, card["optimizer"].param_groups, strict=True):
        settings = ours.keys() - {"params", "param_names"}
        assert {name: ours[name] for name in settings} == {name: theirs[name] for name in settings}
    saved = torch.load("net.pt", weights_only=True)
    torch.testing.assert_close(saved["net"], card["net"].state_dict())
    restored = card["images"] * saved["std"] + saved["mean"]  # what a new image is normalised with
    torch.testing.assert_close(restored, restored.round(), atol=1e-3, rtol=0)

    always_two = nn.Sequential(nn.Dropout(1.0), nn.Flatten(), nn.Linear(48, 3)).train()
    nn.init.zeros_(always_two[2].weight)
    always_two[2].bias.data = torch.tensor([0.0, 0.0, 1.0])
    targets = torch.arange(1200) % 3
    images = torch.zeros(1200, 3, 4, 4)
    assert math.isclose(card["measure_accuracy"](always_two, images, targets), 1 / 3)
    assert not always_two.training


def check_lightning_card(card):
    """Its learning rates are those of the lesson's warm-up and cosine."""
    model = nn.Linear(6, 4)
    lit = card["LitFullRecipe"](model, lr=0.5)
    batch = torch.randn(9, 6), torch.arange(9) % 4
    expected = F.cross_entropy(model(batch[0]), batch[1])
    torch.testing.assert_close(lit.training_step(batch, 0), expected)
    logged = {}
    lit.log = logged.__setitem__
    lit.validation_step(batch, 0)
    assert logged["val_acc"] == (model(batch[0]).argmax(1) == batch[1]).float().mean()
    for total in (3, 30, 47):
        lit._trainer = SimpleNamespace(estimated_stepping_batches=total)
        [adam], [about] = lit.configure_optimizers()
        assert about["interval"] == "step"
        other = torch.optim.AdamW(nn.Linear(6, 4).parameters(), lr=0.5)
        planned = warmup_cosine(other, total, warmup_steps=total // 10)
        for _ in range(total):
            assert math.isclose(adam.param_groups[0]["lr"], other.param_groups[0]["lr"])
            for optimizer, schedule in ((adam, about["scheduler"]), (other, planned)):
                optimizer.step()
                schedule.step()
    for unknown in (math.inf, -1):
        lit._trainer = SimpleNamespace(estimated_stepping_batches=unknown)
        with pytest.raises(AssertionError, match="give it max_steps"):
            lit.configure_optimizers()
    assert card["trainer"].precision == "bf16-mixed"
    assert card["trainer"].lightning_module.lr == 1e-4
    train, val = card["train"], card["val"]
    assert not set(train.indices) & set(val.indices)
    assert len(train) + len(val) == len(card["images"])
    assert card["trainer"].train_dataloader.dataset is train
    assert card["trainer"].val_dataloaders.dataset is val
    weights = nn.Conv2d(3, 8, 3)
    kept = card["LitFullRecipe"](weights).model.weight
    assert kept.is_contiguous(memory_format=torch.channels_last)


# Planted answers of the lesson's exercises.
SPEED = "def speed_up(shares, factors):\n    {body}\n"
PARTS = "sum(s / f for s, f in zip(shares, factors))"


def _speed(body: str) -> str:
    return SPEED.format(body=body)


FRONT = """
def pareto_front(recipes):
    def beats(a, b):
        return {beats}
    front = [n for n in recipes if not any(beats(recipes[m], recipes[n]) for m in recipes{others})]
    return {result}
"""
FRONT_PARTS = {
    "beats": "a[0] <= b[0] and a[1] >= b[1] and (a[0] < b[0] or a[1] > b[1])",
    "others": "",
    "result": "sorted(front, key=lambda n: recipes[n][0])",
}


def _front(**changed: str) -> str:
    return FRONT.format(**FRONT_PARTS | changed)


STUDY = """
def study(train, arms, seeds):
    models = {{arm: [train(arm, {seed}) for seed in seeds] for arm in arms}}
    {before}
    chosen = max({among}, key=lambda arm: {key})
    base = {base}
    tested = {{arm: [m.test() for m in models[arm]] for arm in {opened}}}
    return {result}
"""
STUDY_PARTS = {
    "seed": "seed",
    "before": "pass",
    "among": "arms",
    "key": "sum(m.val for m in models[arm])",
    "base": "arms[0]",
    "opened": "{chosen, base}",
    "result": "chosen, [a - b for a, b in zip(tested[chosen], tested[base])]",
}
TESTED = "{arm: [m.test() for m in models[arm]] for arm in arms}"


def _study(**changed: str) -> str:
    return STUDY.format(**STUDY_PARTS | changed)


WRONG_ANSWERS = {
    "recipe_experiment": plant_experiments("recipe_experiment"),
    "speed_up": [
        (_speed("return 'fast'"), "return a number"),
        (_speed("return 2.5"), "times as fast, not 2.5"),
        (_speed(f"return sum(shares) / {PARTS}"), "rest is sped up like the parts"),
        (_speed(f"return round(1 / (1 - sum(shares) + {PARTS}), 2)"),
         r"2\.105263 times as fast, not 2\.11\."),
        (_speed(f"shares.append(1 - sum(shares))\n    factors.append(1)\n    return 1 / {PARTS}"),
         "lists were changed"),
        (_speed(f"return 1 / (1 - sum(shares[:2]) + {PARTS.replace('factors)', 'factors[:2])')})"),
         "factors .*, 5.0.: the step is"),
        (_speed(f"return 1 / (1 - shares[0] + {PARTS} - sum(shares[1:]))"),
         "stopped with|times as fast"),
    ],
    "pareto_front": [
        (_front(beats="a[0] < b[0] and a[1] > b[1]"), "No worse in one and better"),
        (_front(beats="a[0] <= b[0] and a[1] >= b[1]"), "not dominated by any other"),
        (_front(beats="a[0] <= b[0] and a[1] > b[1]"), "No worse in one|should be"),
        (_front(beats="a[0] >= b[0] and a[1] >= b[1] and a != b"), "all stay|should be"),
        (_front(beats="a[1] > b[1]"), "all stay|should be"),
        (_front(result="front"), "order is wrong"),
        (_front(result="sorted(front)"), "order is wrong"),
        (_front(result="sorted(front, key=lambda n: (recipes[n][0], n))"), "order is wrong"),
        (_front(result="sorted(front, key=lambda n: -recipes[n][1])"), "order is wrong"),
        (_front(result="{n: recipes[n] for n in front}"), "list of names"),
        (_front(result="sorted(recipes, key=lambda n: recipes[n][0])"), "slower and less accurate"),
        ("def pareto_front(recipes):\n    found, best = [], -1\n"
         "    for n in sorted(recipes, key=lambda n: recipes[n][0]):\n"
         "        if recipes[n][1] > best:\n            found.append(n)\n"
         "            best = recipes[n][1]\n    return found",
         "No worse in one|equal in both"),
        ("def pareto_front(recipes):\n    found, last = [], -1\n"
         "    for n in sorted(recipes, key=lambda n: (recipes[n][0], -recipes[n][1])):\n"
         "        if recipes[n][1] > last or (found and recipes[n] == recipes[found[-1]]):\n"
         "            found.append(n)\n        last = recipes[n][1]\n    return found",
         "not with its neighbour only"),
        ("def pareto_front(recipes):\n    recipes.clear()\n    return []", "was changed"),
    ],
    "study": [
        ("def study(train, arms, seeds):\n"
         "    models = {arm: [train(arm, seed + number) for seed in seeds]"
         " for number, arm in enumerate(arms)}\n"
         "    tested = {arm: [model.test() for model in models[arm]] for arm in arms}\n"
         "    chosen = max(arms, key=lambda arm: max(tested[arm]))\n"
         "    gains = [tested[chosen][i] - min(tested[arms[0]]) for i in range(len(seeds))]\n"
         "    return chosen, gains", "the same for each one"),
        (_study(seed="seeds[0]"), "not trained at every seed"),
        (_study(seed="seed + 1"), "use the same"),
        (_study(before=f"looked = {TESTED}"), "only the chosen one and the baseline"),
        (_study(among="arms[1:]"), "worse was chosen, not plain. The baseline may be chosen"),
        (_study(among="sorted(arms)"), "equal was chosen, not plain. Of equal variants the first"),
        (_study(before="baseline = [m.test() for m in models[arms[0]]]", opened="{chosen} - {base}",
                result="chosen, [a - b for a, b in zip(tested.get(chosen, baseline), baseline)]"),
         "before the choice: choose first"),
        (_study(result="chosen, [a.val - b.val for a, b in zip(models[chosen], models[base])]"),
         "gains on validation"),
        (_study(key="models[arm][-1].val"), "single seed"),
        (_study(key="sorted(m.val for m in models[arm])[1]"), "highest mean"),
        (_study(opened="[chosen, base]",
                result="chosen, [m.test() - b.test() for m, b in zip(models[chosen],"
                       " models[base])]"), "opened twice"),
        (_study(result="chosen, sorted(a - b for a, b in zip(tested[chosen], tested[base]))"),
         "seed order"),
        (_study(result="chosen, sum(tested[chosen]) - sum(tested[base])"), "are a list"),
        (_study(result="chosen, [a - b for a, b in zip(tested[chosen], tested[base])][:1]"),
         "as many gains"),
        (_study(result="chosen, [tested[chosen][0] - tested[base][0]]"), "as many gains"),
        (_study(result="chosen"), "two things"),
        (_study(before="models = {arm: [train(arm, s) for s in seeds] for arm in arms}"),
         "once each"),
        (_study(result="chosen, tested[chosen]"), "gains should be"),
        ("def study(train, arms, seeds):\n    best, models = None, {}\n"
         "    for arm in arms:\n        models[arm] = [train(arm, s) for s in seeds]\n"
         "        tested = [m.test() for m in models[arm]] if arm == arms[0] else tested\n"
         "    chosen = max(arms, key=lambda a: sum(m.val for m in models[a]))\n"
         "    mine = tested if chosen == arms[0] else [m.test() for m in models[chosen]]\n"
         "    return chosen, [a - b for a, b in zip(mine, tested)]", "before the choice"),
    ],
}  # fmt: skip

OTHER_RIGHT_ANSWERS = {
    "recipe_experiment": [
        # by hand, at other seeds, with another step
        """
def recipe_experiment(config, data):
    recipe = {"make_schedule": warmup_cosine}
    columns = [
        [fit(config, data, seed=seed, **given).metrics["val_accuracy"] for seed in (3, 4, 5)]
        for given in (recipe, recipe | {"make_optimizer": partial(SGD, lr=0.01)})
    ]
    change = paired_difference(*columns)
    return *columns, change.low, change.high
""",
        # another step, four seeds, lists in place of arrays
        """
def recipe_experiment(config, data):
    recipe = {"pretrained": True, "make_schedule": warmup_cosine}
    smoothed = recipe | {"loss": partial(F.cross_entropy, label_smoothing=0.1)}
    arms = {"plain": recipe, "smoothed": smoothed}
    found = compare(config, data, arms, seeds=range(4), name="smoothing")
    difference = found.difference("smoothed")
    plain, other = found.values("plain").tolist(), found.values("smoothed").tolist()
    return plain, other, difference.low, difference.high
""",
    ],
    "speed_up": [
        _speed(f"return 1 / (1 - sum(shares) + {PARTS})"),
        # takes away what each part has gained
        _speed("return (1 - np.sum(np.array(shares) * (1 - 1 / np.array(factors)))) ** -1.0"),
    ],
    "pareto_front": [
        _front(),
        # walks from the fastest to the slowest: the most accurate so far, or its equal, stays
        """
def pareto_front(recipes):
    order = sorted(recipes, key=lambda name: (recipes[name][0], -recipes[name][1]))
    found, best = [], None
    for name in order:
        if best is None or recipes[name][1] > best[1] or tuple(recipes[name]) == best:
            found.append(name)
            best = tuple(recipes[name])
    return found
""",
    ],
    "study": [
        _study(),
        # keeps the best mean as it trains, and only then opens anything
        """
def study(train, arms, seeds):
    best, chosen = -math.inf, None
    kept = {}
    for arm in arms:
        kept[arm] = {seed: train(arm, seed) for seed in seeds}
        mean = np.mean([model.val for model in kept[arm].values()])
        if mean > best:
            best, chosen = mean, arm
    baseline = {seed: kept[arms[0]][seed].test() for seed in seeds}
    if chosen == arms[0]:
        return chosen, [0.0] * len(seeds)
    return chosen, [kept[chosen][seed].test() - baseline[seed] for seed in seeds]
""",
    ],
}
