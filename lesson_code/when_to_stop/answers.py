"""Planted answers of lesson 18: `course_tools.publish.planted` says how to read them."""

from itertools import chain, combinations

from course_tools.publish.planted_experiments import plant_experiments

AT_STOP = "patience:\n            return epoch, best"
AT_END = "return len(losses), best"
THE_LAST = "The weights of the last epoch are restored, not those of the lowest loss."

ORDER = 'np.argsort(-sizes, kind="stable")'
FEWEST = "Each group goes into the fold with the fewest images so far, the largest group first."

STATISTICS = "inputs[~inside].mean(dim=0), inputs[~inside].std(dim=0)"
TRAINED = "train(model, scaled[~inside], targets[~inside])"
JUDGED = "model(scaled[inside])"
SEEN = "The network has seen the fold that it judges: train on the other folds."
ITS_OWN = "Each network is trained on its own fold, and not on the others."
FOUR = (
    (STATISTICS, "inputs.mean(dim=0), inputs.std(dim=0)"),
    ("found = None", "found, model = None, make_model()",
     "scaled, model = (inputs - mean) / std, make_model()", "scaled = (inputs - mean) / std"),
    ("        model.eval()\n", ""),
    ("return found", "return found[fold_of.argsort(stable=True)]"),
)  # fmt: skip

SOME_OF_FOUR = [
    (*chain(*some), f"{word} of the four faults are left.")
    for count, word in ((2, "Two"), (3, "Three"), (4, "All"))
    for some in combinations(FOUR, count)
]

WRONG = {
    "measure_epochs": plant_experiments("measure_epochs"),
    "find_weights": [
        (AT_STOP, "patience:\n            return best, epoch", AT_END, "return best, len(losses)",
         "These are swapped: first how many epochs were trained, then the epoch to restore."),
        (AT_STOP, "patience:\n            return epoch, epoch", THE_LAST),
        (AT_END, "return len(losses), len(losses)", THE_LAST),
        ("start=1", "start=0", AT_END, "return len(losses) - 1, best",
         "Epochs count from 1 here."),
        ("= math", "= -math", "loss <", "loss >", "A loss is better if it is lower."),
        ("loss < lowest", "loss <= lowest",
         "An equal loss is no lower loss: it does not count as better."),
        ("loss < lowest", "epoch == 1 or loss < losses[epoch - 2]",
         "Compare with the lowest loss so far, not with the loss of the epoch before."),
        (">= patience", "> patience",
         "It stops an epoch too late: stop at the `patience`-th epoch without a lower loss."),
        ("not math.isfinite(loss)", "False", "A loss that is not finite must end the training."),
        ("not math.isfinite(loss)", "math.isnan(loss)",
         "A loss that is not finite must end the training, an infinite loss too."),
        ("lowest, best = math.inf, 0", "lowest, best, bad = math.inf, 0, 0",
         "elif epoch - best >=", "else:\n            bad += 1\n        if bad >=",
         "Bad epochs count in a row: a lower loss sets the count to 0 again."),
        (AT_STOP, "patience:\n            return epoch, 1 + losses.index(min(losses))",
         "The epoch to restore has not been trained yet when the training stops."),
        ("(loss):\n", "(loss):\n            epoch -= 1\n", "It should be"),
        (">= patience", ">= min(2, patience)", "It should be"),
        ("loss < lowest", "loss < min(5, lowest)", "It should be"),
        ("math.inf, 0", "math.inf, None", "elif epoch", "elif best and epoch", "whole numbers"),
        (AT_END, "return best", "Return two numbers"),
        (AT_END, "return len(losses), float(best)", "whole numbers"),
        ("    for", "    losses.append(0.0)\n    for", "must stay as it was"),
    ],
    "assign_groups": [
        ("fold_of_group[number]", "np.arange(len(groups)) % folds", "is in two folds"),
        (ORDER, "range(len(sizes))", "Take the groups by their size, the largest first."),
        (ORDER, "np.argsort(sizes)", FEWEST),
        ("+= sizes[group]", "+= 1", FEWEST),
        ("fold_of_group[number]", "fold_of_group[number] + 1", "from 0 to"),
        ("    for group", "    groups.fill(0)\n    for group", "must stay as it was"),
        ("fold_of_group[number]", "filled", "the fold of each image"),
        ("fold_of_group[number]", "fold_of_group[number].astype(float)", "from 0 to"),
        ("filled.argmin()", "0", "do not have the sizes"),
    ],
    "predict_held_out": [
        (*FOUR[0], "The mean and the standard deviation are those of all examples: take them from "
         "the training folds."),
        (STATISTICS, STATISTICS.replace("~", ""),
         "The mean and the standard deviation are those of the fold that is judged: take them "
         "from the training folds."),
        (JUDGED, "model(inputs[inside])", "The examples that are judged are not scaled."),
        (TRAINED, "train(model, inputs[~inside], targets[~inside])",
         "The training examples are not scaled."),
        (*FOUR[1], "One network is trained on for all folds, so from the second fold on it has "
         "seen what it judges: make a new one for each fold."),
        (*FOUR[2], "The network judges in train mode: call eval()."),
        (*FOUR[3], "The rows are in the order of the folds: put each one at the place of its "
         "example."),
        ("return found", "return found[fold_of.argsort(stable=True).argsort()]",
         "The rows are right, but not at the places of their examples."),
        (".softmax(dim=1)", "", "These are logits: return probabilities."),
        (TRAINED, "train(model, scaled, targets)", *FOUR[0], SEEN),
        (TRAINED, "train(model, scaled, targets)", SEEN),
        (TRAINED, TRAINED.replace("~", ""), STATISTICS, STATISTICS.replace("~", ""), ITS_OWN),
        (TRAINED, TRAINED.replace("~", ""), ITS_OWN),
        (JUDGED, "model((inputs[inside] - inputs[inside].mean(dim=0)) / inputs[inside].std(dim=0))",
         "The examples that are judged are scaled by their own mean and standard deviation: take "
         "those of the training folds."),
        (".softmax(dim=1)", ".softmax(dim=0)",
         "Each example's probabilities must sum to 1: take the softmax over the classes."),
        ("[~inside].std(dim=0)", "[~inside].std(dim=0, correction=0)",
         "Take the standard deviation that `std(dim=0)` gives: it divides by n - 1."),
        *SOME_OF_FOUR,
        ("(inputs - mean)", "inputs", "not the probabilities"),
        ("def predict", "@torch.no_grad()\ndef predict", "needs gradients"),
        ("model.eval()", "model.eval()\n        inputs.zero_()", "must stay as they were"),
        ("torch.no_grad()", "torch.enable_grad()", "hold a graph"),
        ("return found", "return found.argmax(dim=1)", "tensor (N, C)"),
    ],
}  # fmt: skip

RIGHT = {
    "measure_epochs": [
        ("max(1, config.epochs // 2)", "1", "seeds=(0, 1, 2)", "seeds=(3, 4, 5)"),
        ('"pretrained": True, ', "", "difference.low, difference.high",
         "float(difference.low), float(difference.high)"),
    ],
    "find_weights": [
        ("lowest, best = math.inf, 0", "lowest, best, bad = math.inf, 0, 0",
         "lowest, best = loss, epoch", "lowest, best, bad = loss, epoch, 0",
         "elif epoch - best >=", "else:\n            bad += 1\n        if bad >="),
        ("loss < lowest", "loss < min(losses[: epoch - 1], default=math.inf)",
         "elif epoch - best >=", "elif epoch - 1 - losses.index(lowest) >="),
    ],
    "assign_groups": [
        (ORDER, "np.argsort(sizes)[::-1]", "filled.argmin()", "folds - 1 - filled[::-1].argmin()"),
        """\
def assign_groups(groups, folds):
    fold_of = np.empty(len(groups), dtype=int)
    for fold, (_, held) in enumerate(GroupKFold(folds).split(groups, groups=groups)):
        fold_of[held] = fold
    return fold_of
""",
    ],
    "predict_held_out": [
        ("fold_of.unique()", "reversed(sorted(set(fold_of.tolist())))",
         "(inputs - mean) / std", "inputs / std - mean / std"),
        ("found = None", "found, places = [], []", "found[inside] = probabilities",
         "places += inside.nonzero()[:, 0].tolist()", "if found is None:\n            found = "
         "torch.empty(len(inputs), probabilities.shape[1])", "found += probabilities.split(1)",
         "return found", "return torch.cat(found)[torch.tensor(places).argsort()]"),
    ],
}  # fmt: skip
