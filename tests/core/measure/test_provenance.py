from functools import partial

import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping

from course_utils.measure.provenance import describe_value


def make_local():
    def local(x):
        return x

    return local


def test_arguments_are_described_by_readable_names():
    smoothed = partial(F.cross_entropy, label_smoothing=0.1)
    assert describe_value(smoothed) == "cross_entropy(label_smoothing=0.1)"
    assert describe_value(partial(torch.optim.SGD, lr=0.1)) == "SGD(lr=0.1)"
    assert describe_value(make_local()) == "local"
    assert describe_value(lambda x: x) == "<lambda>"
    assert describe_value({"precision": "bf16-mixed"}) == "{precision='bf16-mixed'}"
    assert describe_value([1, 2.5]) == "[1, 2.5]"


def test_nothing_holds_an_address_of_memory():
    class Silent:
        pass

    for value in (Silent(), EarlyStopping("val_loss"), {"callbacks": [Silent()]}):
        assert "0x" not in describe_value(value)
        assert describe_value(value) == describe_value(value)
    assert "patience=3" in describe_value(EarlyStopping("val_loss"))
