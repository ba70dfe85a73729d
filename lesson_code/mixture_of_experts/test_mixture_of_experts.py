"""Experts: identities, capacity, padding, gradients; expert parallel; and the stored studies."""

import copy

import nbformat
import numpy as np
import pytest
import torch
from torch import nn
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from course_tools.run.lessons import NOTEBOOKS
from course_utils.models.convnet_small import ConvNetSmall
from course_utils.models.text_small import PADDING, TextSmall
from course_utils.ranks import ON_CPU, run_ranks
from course_utils.results import STUDIES, read_file
from course_utils.study_results import ACCURACY, read_study
from lesson_code.mixture_of_experts import parallel
from lesson_code.mixture_of_experts.experts import (
    AddGradient,
    Experts,
    balance_loss,
    list_experts,
    route,
    split_stage,
    upcycle,
    use_experts,
    widen,
)
from lesson_code.mixture_of_experts.pretraining import Pretraining, explain_choices


def make_mlp(width=8):
    return nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))


def make_layer(k=1, num_experts=4, **options):
    """Experts that differ, and a router that is used."""
    torch.manual_seed(0)
    layer = Experts(make_mlp(), 8, num_experts, k, **options)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def compute_one_by_one(layer, x):
    """The output of each token alone, and the probabilities."""
    probabilities = (x @ layer.router.weight.T).softmax(dim=1)
    rows = []
    for token, p in zip(x, probabilities, strict=True):
        best = p.argsort(descending=True)[: layer.k]
        weights = p[best] if layer.k == 1 else p[best] / p[best].sum()
        outputs = [w * layer.experts[n](token) for n, w in zip(best.tolist(), weights, strict=True)]
        rows.append(sum(outputs))
    return torch.stack(rows), probabilities


@pytest.mark.parametrize("k", [1, 2, 4])
def test_each_token_gets_its_best_experts(k):
    layer, x = make_layer(k), torch.randn(30, 8)
    torch.testing.assert_close(layer(x), compute_one_by_one(layer, x)[0])
    assert sum(layer.sizes) == 30 * k
    assert layer.dropped == 0


@pytest.mark.parametrize(("k", "num_experts"), [(1, 1), (2, 4), (4, 4)])
def test_equal_experts_are_the_dense_layer(k, num_experts):
    mlp, x = make_mlp(), torch.randn(30, 8)
    torch.testing.assert_close(Experts(mlp, 8, num_experts, k)(x), mlp(x))


def test_balance_is_one_if_equal_and_n_if_collapsed():
    equal = torch.full((8, 4), 0.25)
    torch.testing.assert_close(balance_loss(equal, torch.arange(8)[:, None] % 4), torch.tensor(1.0))
    one = nn.functional.one_hot(torch.zeros(8, dtype=torch.long), 4).float()
    torch.testing.assert_close(balance_loss(one, one.argmax(1, keepdim=True)), torch.tensor(4.0))
    assert balance_loss(torch.zeros(0, 4), torch.zeros(0, 1, dtype=torch.long)) == 0


def test_balance_is_one_for_any_shares_if_all_probabilities_are_equal():
    equal, chosen = torch.full((8, 4), 0.25), torch.zeros(8, 1, dtype=torch.long)
    torch.testing.assert_close(balance_loss(equal, chosen), torch.tensor(1.0))


def test_the_balance_of_mixtral_is_a_sum_over_the_choices():
    logits = torch.randn(60, 8)
    theirs = load_balancing_loss_func((logits,), num_experts=8, top_k=2)
    probabilities, chosen, _ = route(logits, 2)
    torch.testing.assert_close(theirs, 2 * balance_loss(probabilities, chosen))


def test_an_idle_expert_gets_no_gradient_and_its_row_of_the_router_does():
    layer, x = make_layer(balance=0.0), torch.rand(30, 8)
    with torch.no_grad():
        layer.router.weight.mul_(0.01)[0] = 0.1  # positive tokens, so the first expert wins
    layer(x).square().sum().backward()
    assert layer.sizes == [30, 0, 0, 0]
    assert all(p.grad is None for expert in layer.experts[1:] for p in expert.parameters())
    assert layer.router.weight.grad[1:].abs().sum(dim=1).min() > 0


def test_the_router_keeps_its_precision_under_autocast():
    layer, x = make_layer(), torch.randn(30, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer.choose(x)
    torch.testing.assert_close(found, layer.choose(x), atol=0, rtol=0)


def test_the_router_gets_its_gradient_from_the_gate():
    layer, x = make_layer(balance=0.0), torch.randn(30, 8)
    layer(x).square().sum().backward()
    assert layer.router.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_the_added_gradient_is_that_of_the_sum(weight):
    layer, x = make_layer(balance=weight).double(), torch.randn(30, 8).double()
    reference = copy.deepcopy(layer)
    layer(x).square().sum().backward()
    y, probabilities = compute_one_by_one(reference, x)
    total = y.square().sum() + weight * balance_loss(probabilities, probabilities.topk(1).indices)
    total.backward()
    torch.testing.assert_close(layer.router.weight.grad, reference.router.weight.grad)


def test_nothing_is_added_in_evaluation():
    layer, x = make_layer(balance=10.0).eval(), torch.randn(5, 8)
    reference = make_layer(balance=0.0)
    layer(x).sum().backward()
    reference(x).sum().backward()
    torch.testing.assert_close(layer.router.weight.grad, reference.router.weight.grad)


def test_add_gradient_leaves_the_value():
    y, loss = torch.randn(3, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    (3 * AddGradient.apply(y, loss)).sum().backward()
    torch.testing.assert_close(y.grad, torch.full((3,), 3.0))
    assert loss.grad == 1


def test_what_is_beyond_the_capacity_gets_zero():
    layer, x = make_layer(capacity=0.5), torch.randn(32, 8)
    y = layer(x)
    expected, probabilities = compute_one_by_one(layer, x)
    limit, seen, dropped = 4, dict.fromkeys(range(4), 0), 0
    for row, best in enumerate(probabilities.argmax(dim=1).tolist()):
        seen[best] += 1
        if seen[best] > limit:
            dropped += 1
            assert not y[row].any()
        else:
            torch.testing.assert_close(y[row], expected[row])
    assert layer.dropped == dropped > 0


def make_texts():
    tokens = torch.randint(3, 50, (4, 9), generator=torch.Generator().manual_seed(0))
    tokens[1, 4:] = PADDING
    tokens[2, 1:] = PADDING
    return tokens


def make_network():
    torch.manual_seed(0)
    return TextSmall(vocabulary=50, width=8, depth=2, heads=2).eval()


def test_padding_goes_to_no_expert():
    model, tokens = use_experts(make_network()), make_texts()
    whole = model(tokens)
    real = int((tokens != PADDING).sum())
    assert [sum(layer.sizes) for layer in list_experts(model)] == [real, real]
    torch.testing.assert_close(model(tokens[1:2, :4]), whole[1:2])


def test_upcycled_networks_compute_what_they_did():
    model, tokens = make_network(), make_texts()
    expected = model(tokens)
    torch.testing.assert_close(upcycle(copy.deepcopy(model), k=2)(tokens), expected)
    torch.testing.assert_close(upcycle(copy.deepcopy(model))(tokens), expected, atol=0.01, rtol=0.1)
    torch.testing.assert_close(widen(copy.deepcopy(model), keep=True)(tokens), expected)


def test_the_wide_network_has_the_parameters_of_the_experts():
    def count(model):
        return sum(p.numel() for p in model.parameters())

    experts, wide = use_experts(make_network()), widen(make_network())
    router_and_biases = 2 * (4 * 8 + 3 * 8)  # of two blocks
    assert count(experts) - count(wide) == router_and_biases


def test_new_experts_differ():
    (first, *_) = list_experts(use_experts(make_network()))
    weights = [expert[0].weight for expert in first.experts]
    assert not any(torch.equal(weights[0], other) for other in weights[1:])


def test_a_stage_of_convolutions_can_be_split():
    torch.manual_seed(0)
    model, images = ConvNetSmall().eval(), torch.rand(6, 3, 32, 32)
    expected = model(images)
    mixed = split_stage(copy.deepcopy(model), "layer3", 128, k=2).eval()
    torch.testing.assert_close(mixed(images), expected, atol=1e-4, rtol=1e-4)


def test_choices_are_explained_by_what_decides_them():
    rng = np.random.default_rng(0)
    chosen = rng.integers(4, size=4000)
    assert explain_choices(chosen, chosen + 7) == pytest.approx(1)
    assert explain_choices(chosen, rng.integers(3, size=4000)) < 0.01
    assert explain_choices(np.zeros(9, dtype=int), np.arange(9)) == 0


def test_route_normalises_two_gates():
    logits = torch.randn(20, 4)
    for k in (2, 3):
        probabilities, chosen, gates = route(logits, k)
        torch.testing.assert_close(gates.sum(dim=1), torch.ones(20))
        torch.testing.assert_close(gates[:, 0] / gates[:, 1], torch.exp(
            logits.gather(1, chosen)[:, 0] - logits.gather(1, chosen)[:, 1]))  # fmt: skip
    torch.testing.assert_close(route(logits, 1)[2][:, 0], probabilities.max(dim=1).values)


@pytest.mark.parametrize("k", [1, 2])
def test_two_ranks_equal_one_process(k, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run_ranks(parallel, arguments={"tokens": 12, "k": k}, processes=2, environment=ON_CPU)
    assert found["output gap"] < 1e-10
    assert found["gradient gap"] < 1e-10
    out = [found["rows"][0][1], found["rows"][1][0]]
    expected = 2 * sum(out) * found["row_bytes"]
    assert found["sent_bytes"] == [expected, expected]  # each row goes there and back, twice


def test_the_study_of_pretraining_is_complete():
    content = read_file(STUDIES / "mixture_of_experts/study_pretraining.json")
    study = Pretraining(content)
    assert len(study.seeds) == 10
    assert content["search_seed"] not in study.seeds
    assert len(study.rows) == 10 * len(study.variants)
    for variant in study.variants:
        assert np.isfinite(study.values(variant)).all()
        assert len({row["lr"] for row in study.rows if row["variant"] == variant}) == 1


def read_cell(name):
    """The source of a cell of the lesson."""
    notebook = nbformat.read(NOTEBOOKS / "22_mixture_of_experts.ipynb", as_version=4)
    return next(cell.source for cell in notebook.cells if cell.id == name)


def read_trials(study, variant, trial, metric=ACCURACY):
    """Of any trial, the values at the reported seeds and the one at the search seed."""
    found = {
        x.seed: x.read_metric(metric)
        for x in study.trainings
        if (x.variant, x.trial) == (variant, trial)
    }
    return [found.get(seed) for seed in study.seeds], found[study.search_seeds[0]]


def test_the_lesson_says_what_the_study_found():
    study, regime = read_study("mixture_of_experts"), "few labels"
    text, verdict = read_cell("first-after"), read_cell("verdict")
    assert "less than 1 point does not matter" in read_cell("first")
    assert study.margin == 0.01
    dense, wide = (study.difference(regime, "experts", name) for name in ("dense", "wide"))
    assert f"gain {100 * dense.mean:.1f} points against the dense network" in text
    assert f"the interval begins at {100 * dense.low:.1f}" in text
    assert dense.low < study.margin < dense.mean
    assert wide.verdict(margin=study.margin) == "helps"
    assert f"of equal FLOPs by {100 * dense.mean:.1f} points" in verdict
    assert f"the one of equal parameters by {100 * wide.mean:.1f}" in verdict


def test_the_learning_rate_of_the_wide_network_does_not_explain_its_accuracy():
    study = read_study("mixture_of_experts")
    trials = sorted({x.trial for x in study.trainings})
    searched = {trial: read_trials(study, "wide", trial)[1] for trial in trials}
    first, second = sorted(trials, key=lambda trial: -searched[trial])[:2]
    assert study.best["few labels"]["wide"] == first
    means = [np.mean(read_trials(study, "wide", trial)[0]) for trial in (first, second)]
    assert abs(means[0] - means[1]) < 5e-4
    told = "At its second best, 0.002, its mean over the ten seeds is the same."
    assert f"is the lowest of the four. {told}" in read_cell("first-after")
    rates = sorted(float(trial.split()[1]) for trial in trials)
    assert float(first.split()[1]) == rates[0]
    assert float(second.split()[1]) == 0.002


def test_the_lesson_says_what_the_study_of_pretraining_found():
    content = read_file(STUDIES / "mixture_of_experts/study_pretraining.json")
    study, text = Pretraining(content), read_cell("deeper")
    assert "a dense network that gets about as much time ends far better" in text
    assert study.difference("experts", "dense, as long").low > 5 * study.margin
    assert study.time_ratio("dense, as long") < 1.25 * study.time_ratio("experts")
    longer = study.difference("dense, as long", "dense").mean
    assert abs(longer) > abs(study.difference("experts", "dense").mean)
    assert abs(longer) > abs(study.difference("wide", "dense").mean)
    assert f"{study.recipe['definitions']:,} definitions, once through" in text
    assert f"the dense one on {study.recipe['definitions_longer']:,} definitions" in text
    assert f"margin of {study.margin} nats" in text
    seconds = {"dense": 0.0, "experts": 0.0}
    for row in content["rows"]:
        if row["seed"] == content["search_seed"] and row["variant"] in seconds:
            seconds[row["variant"]] += row["seconds"]
    ratio = seconds["experts"] / seconds["dense"]
    assert f"took {ratio:.1f} times the processor time" in text
