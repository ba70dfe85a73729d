from types import SimpleNamespace

from benchmarks import time_to_accuracy


def test_the_clock_of_one_training_stands_while_the_other_has_its_turn(monkeypatch):
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(time_to_accuracy, "time", clock)
    noted = []

    def train_other():
        clock.now += 20

    turns = time_to_accuracy._TakeTurns(train_other, every=2)
    for epoch in range(4):
        clock.now += 100
        turns.on_train_epoch_end(SimpleNamespace(current_epoch=epoch), None)
        noted.append(clock.now)  # as `fit` does, behind the callbacks that it is given
    run = SimpleNamespace(epoch_ends_s=noted, history=[{"val_accuracy": 0.5}] * 4)
    curve = time_to_accuracy._curve(run, turns.pauses)
    assert [seconds for seconds, _ in curve] == [100, 200, 300, 400]
