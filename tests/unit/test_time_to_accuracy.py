from types import SimpleNamespace

from benchmarks import time_to_accuracy
from course_utils import training


def test_the_clock_of_one_training_stands_while_the_other_has_its_turn(
    monkeypatch, tiny_config, tiny_data
):
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(time_to_accuracy, "time", clock)
    monkeypatch.setattr(training, "time", clock)  # by this clock, our own training takes no time

    def train_other():
        clock.now += 20

    turns = time_to_accuracy._TakeTurns(train_other, every=2)
    options = {"callbacks": [turns], "max_epochs": 4}
    run = training.fit(tiny_config, tiny_data, trainer=options)
    assert turns.paused_s == 40
    curve = turns.read_curve(run)
    assert [seconds for seconds, _ in curve] == [0, 0, 0, 0]
    assert [accuracy for _, accuracy in curve] == [row["val_accuracy"] for row in run.history]
