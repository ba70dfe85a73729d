import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from course_utils.measure.memory import PeakBytes, count_saved_bytes, peak_memory_bytes


def saved(function, model=None):
    with count_saved_bytes(model or nn.Identity()) as found:
        result = function()
    del result
    return found.total


def test_saved_bytes_of_a_square():
    x = torch.randn(100, requires_grad=True)
    assert saved(lambda: (2 * x).square()) == 400  # 2 * x, in fp32; 2 is no tensor


def test_a_tensor_saved_twice_counts_once():
    x = torch.randn(100, requires_grad=True)

    def twice():
        y = 2 * x
        return y.square() + y.sin() + (y * y.view(10, 10).flatten())

    assert saved(twice) == 400


def test_a_view_counts_with_what_it_views():
    x = torch.randn(100, requires_grad=True)

    def partly():
        y = 2 * x
        return y.square().sum() + y[50:].square().sum()  # the view starts at another address

    assert saved(partly) == 400


def test_parameters_and_buffers_do_not_count():
    model = nn.Sequential(nn.Linear(10, 50), nn.BatchNorm1d(50))
    images = torch.randn(4, 10)
    # the input 4·10, the linear layer's output 4·50, BatchNorm's mean and 1/std 2·50: in fp32
    assert saved(lambda: model(images).sum(), model) == 4 * (40 + 200 + 100)


def test_saved_bytes_are_proportional_to_the_batch():
    model = nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 3))
    one, four = (saved(lambda n=n: model(torch.randn(n, 10)), model) for n in (8, 32))
    assert four == 4 * one > 0


def test_nothing_is_saved_without_gradients():
    model = nn.Linear(10, 50)
    with torch.no_grad():
        assert saved(lambda: model(torch.randn(4, 10)), model) == 0


def test_every_layer_has_the_bytes_that_it_saved_first():
    model = nn.Sequential(nn.Linear(10, 50), nn.BatchNorm1d(50))
    with count_saved_bytes(model) as found:
        loss = model(torch.randn(4, 10)).square().sum()
    del loss
    # the linear layer its input; BatchNorm that layer's output and its statistics; the square
    assert found.by_layer == {"0": 4 * 40, "1": 4 * (200 + 100), "": 4 * 200}
    assert found.total == sum(found.by_layer.values())


def test_weights_that_are_cast_count_and_do_not_grow_with_the_batch():
    model = nn.Linear(64, 32, bias=False)

    def forward(count):
        with torch.autocast("cpu", torch.bfloat16):
            return model(torch.randn(count, 64, requires_grad=True))

    assert saved(lambda: forward(8), model) == 2 * (64 * 32 + 8 * 64)
    assert saved(lambda: forward(16), model) == 2 * (64 * 32 + 16 * 64)


def test_hooks_are_gone_after_an_error():
    model = nn.Sequential(nn.Linear(10, 5))
    with pytest.raises(RuntimeError), count_saved_bytes(model):
        model(torch.randn(4, 9))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def chain(count=8):
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(count)))


def peak(model, forward):
    with PeakBytes() as found:
        forward().square().sum().backward()
    model.zero_grad()
    return found.total


def test_the_peak_by_hand():
    x = torch.ones(1000)
    with PeakBytes() as found:
        y = x + 1
        y = y + 1  # two at a time
        y = y + 1
        x.add_(y.view(10, 100).flatten())  # x was there before, and a view is no new storage
    assert found.total == 8000


def test_the_peak_counts_what_named_arguments_ask_for():
    with PeakBytes() as found:
        torch.zeros(1000, dtype=torch.float64)
    assert found.total == 8000


def test_the_peak_is_that_of_pytorch_s_own_tracker():
    """`MemTracker` refuses several passes in one context, where we need them: accumulation."""
    from torch.distributed._tools.mem_tracker import MemTracker

    model, x = chain(), torch.randn(256, 64)
    for segments in (1, 2, 4):
        tracker = MemTracker()
        tracker.track_external(model)
        with tracker, PeakBytes() as found:
            out = checkpoint_sequential(model, segments, x, use_reentrant=False)
            F.mse_loss(out, x).backward()
        kinds = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
        theirs = {str(kind).rsplit(".")[-1]: count for kind, count in kinds.items()}
        expected = theirs["Total"] - theirs["PARAM"] - theirs["BUFFER"]
        assert found.total == pytest.approx(expected, rel=0.02)
        model.zero_grad()


def test_the_peak_of_a_chain_is_close_to_what_it_saves():
    model, x = chain(), torch.randn(256, 64)
    kept = saved(lambda: F.mse_loss(model(x), x), model) - 4 * 256 * 64  # x was there before
    assert kept <= peak(model, lambda: model(x)) <= 1.6 * kept  # and gradients on their way


def test_the_peak_has_what_is_computed_again():
    """All blocks as one segment: nothing is saved, and at the peak all is there again."""
    model, x = chain(16), torch.randn(256, 64, requires_grad=True)
    again = peak(model, lambda: checkpoint(model, x, use_reentrant=False))
    parts = peak(model, lambda: checkpoint_sequential(model, 4, x, use_reentrant=False))
    assert again >= 0.9 * peak(model, lambda: model(x))
    assert parts <= 0.6 * again


def test_peak_memory_is_none_on_a_cpu_never_zero():
    assert peak_memory_bytes(torch.device("cpu")) is None
