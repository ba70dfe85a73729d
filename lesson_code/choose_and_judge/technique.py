"""Choosing and judging: whole trainings are compared, on images that choose and on others."""

import numpy as np
import torch

from course_tools.study.lesson_code import read_definitions
from course_utils.measure.statistics import mcnemar, wilson_interval

NOT_COMBINED = "it compares whole trainings, and is no part of one"
LESSON = read_definitions("25_choose_and_judge")


def predict_right(net, inputs, targets):
    """Which examples a trained network gets right (N,)."""
    device = next(net.parameters()).device
    with torch.no_grad():
        return (net(inputs.to(device)).argmax(dim=1) == targets.to(device)).cpu().numpy()


def check_pytorch_card(card):
    """The best on the second third wins, and the last third alone judges it."""
    x, y, nets = card["x"], card["y"], card["nets"]
    hits = np.array([predict_right(net, x[300:], y[300:]) for net in nets])
    best, seen, fresh = LESSON["judge_choice"](hits, np.arange(600) < 300)
    assert card["best"] == best
    assert len(nets) == len(card["settings"]) > 1
    assert np.isclose(card["seen"][best], seen, atol=1e-6)
    assert (card["right"], card["count"]) == (round(300 * fresh), 300)
    interval = wilson_interval(card["right"], card["count"])
    assert np.allclose((card["low"], card["high"]), interval)
    pair = mcnemar(hits[best, 300:], hits[0, 300:])
    assert (card["only_winner"], card["only_default"]) == pair[:2]
    assert np.isclose(card["p"], pair.p_value)
    weights = [torch.cat([p.detach().flatten().cpu() for p in net.parameters()]) for net in nets]
    assert not any(torch.equal(weights[0], other) for other in weights[1:])
    assert not any(net.training for net in nets)


def check_lightning_card(card):
    """The best on one loader wins, and the other one, with other examples, judges it."""
    parts = {name: list(card[name].dataset) for name in ("train", "choose", "judge")}
    for name, part in parts.items():
        others = [x for other, found in parts.items() if other != name for x, _ in found]
        assert not any(torch.equal(x, y) for x, _ in part for y in others)
    hits = {}
    for name in ("choose", "judge"):
        x, y = torch.stack([x for x, _ in parts[name]]), torch.tensor([y for _, y in parts[name]])
        nets = [net.model.eval() for _, net in card["candidates"]]
        hits[name] = np.array([predict_right(net, x, y) for net in nets])
    seen = hits["choose"].mean(axis=1)
    best = int(seen.argmax())
    assert len(seen) > 1
    assert np.allclose([accuracy for accuracy, _ in card["candidates"]], seen, atol=1e-6)
    assert card["best"] is card["candidates"][best][1]
    right = hits["judge"][best].sum()
    assert np.isclose(card["fresh"], right / len(parts["judge"]), atol=1e-6)
    assert np.allclose((card["low"], card["high"]), wilson_interval(int(right), card["count"]))
