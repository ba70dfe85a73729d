"""The pretend device: what raises on it as on CUDA, and what works on it as on CUDA."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from tests.pretend.device import register_device
from tests.pretend.module import NAME

register_device()
DEVICE = torch.device(NAME, 0)


def make_network():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(144, 10))


def make_batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(8, 3, 8, 8, generator=generator), torch.arange(8)


def train(network, images, targets, dtype=None, fused=None):
    """Three steps; the type of the logits and the last loss."""
    device = images.device.type
    optimizer = torch.optim.AdamW(network.parameters(), fused=fused)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    for _ in range(3):
        with torch.autocast(device, dtype, enabled=dtype is not None):
            logits = network(images)
            loss = F.cross_entropy(logits, targets)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return logits.dtype, loss.item()


# ---- What raises

MIXED = "Expected all tensors to be on the same device"
GENERATOR = "Expected a 'pretend' device type for generator but found 'cpu'"


def write_into_cpu():
    torch.zeros(8)[torch.arange(8) > 5] = torch.ones(2, device=DEVICE)


def put_by_index():
    torch.zeros(8, device=DEVICE)[torch.arange(8) > 5] = torch.ones(2)


MISTAKES = {
    "a batch on the CPU": (lambda: make_network().to(DEVICE)(make_batch()[0]), MIXED),
    "a network on the CPU": (lambda: make_network()(make_batch()[0].to(DEVICE)), MIXED),
    "targets on the CPU": (
        lambda: F.cross_entropy(torch.ones(8, 10, device=DEVICE), make_batch()[1]),
        MIXED,
    ),
    "a comparison": (lambda: torch.ones(3, device=DEVICE) == torch.ones(3), MIXED),
    "a list": (lambda: torch.cat([torch.ones(3, device=DEVICE), torch.ones(3)]), MIXED),
    "a sum on the CPU": (lambda: torch.ones(()).add_(torch.ones((), device=DEVICE)), MIXED),
    "writing into the CPU": (write_into_cpu, MIXED),
    "writing from the CPU": (put_by_index, MIXED),
    "an index for the CPU": (
        lambda: torch.arange(8)[torch.arange(3, device=DEVICE)],
        "indices should be either on cpu or on the same device as the indexed tensor",
    ),
    "a generator of the CPU": (
        lambda: torch.randn(3, device=DEVICE, generator=torch.Generator()),
        GENERATOR,
    ),
    "a generator of the CPU in place": (
        lambda: torch.empty(3, device=DEVICE).uniform_(generator=torch.Generator()),
        GENERATOR,
    ),
    "a generator of the device for the CPU": (
        lambda: torch.randperm(3, generator=torch.Generator(DEVICE)),
        "Expected a 'cpu' device type for generator but found 'pretend'",
    ),
    "pinning what is on the device": (
        lambda: torch.ones(3, device=DEVICE).pin_memory(),
        "only dense CPU tensors can be pinned",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_raises_as_on_cuda(mistake):
    make_it, message = MISTAKES[mistake]
    with pytest.raises(RuntimeError, match=message):
        make_it()


@pytest.mark.parametrize("read", [torch.Tensor.numpy, lambda x: [*map(float, x.__array__())]])
def test_numpy_raises_as_on_cuda(read):
    with pytest.raises(TypeError, match=r"can't convert pretend:0 device type tensor to numpy"):
        read(torch.ones(3, device=DEVICE))


# ---- What works


@pytest.mark.parametrize(
    ("dtype", "fused"),
    [(None, None), (None, True), (torch.bfloat16, None), (torch.float16, None)],
    ids=["fp32", "fused", "bf16", "fp16"],
)
def test_a_network_trains_as_on_the_cpu(dtype, fused):
    network, (images, targets) = make_network(), make_batch()
    network[3].p = 0.0  # the devices draw other numbers
    moved = copy.deepcopy(network).to(DEVICE)
    expected = train(network, images, targets, dtype, fused)
    found = train(moved, images.to(DEVICE), targets.to(DEVICE), dtype, fused)
    assert found[0] == expected[0] == (dtype or torch.float32)
    assert found[1] == pytest.approx(expected[1], abs=1e-5 if dtype is None else 0.05)
    for ours, theirs in zip(
        moved.state_dict().values(), network.state_dict().values(), strict=True
    ):
        assert ours.device == DEVICE
        torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=1e-5 if dtype is None else 0.01)


def test_parameters_stay_the_same_objects_when_a_module_moves():
    network = make_network()
    before = list(network.parameters())
    network.to(DEVICE)
    assert all(one is other for one, other in zip(before, network.parameters(), strict=True))
    assert {type(one) for one in network.parameters()} == {nn.Parameter}


def test_a_module_moves_while_a_graph_holds_its_parameters():
    network = make_network().to(DEVICE)
    graph = network(make_batch()[0].to(DEVICE)).sum()
    assert network.cpu()[0].weight.device.type == "cpu"
    graph.backward()


def test_cpu_numbers_and_cpu_indices_combine_with_tensors_of_the_device():
    x = torch.arange(6.0, device=DEVICE)
    assert (torch.tensor(2.0) * x + torch.tensor(1.0)).device == DEVICE
    assert x[torch.tensor([1, 2])].tolist() == x[torch.arange(6) % 5 > 0][:2].tolist() == [1, 2]
    x[torch.arange(6) > 4] = 9.0
    x[0] = torch.tensor(7.0)
    assert x.tolist() == [7, 1, 2, 3, 4, 9]
    assert (torch.arange(4, device=DEVICE) % 2).tolist() == [0, 1, 0, 1]


def test_views_share_memory_and_shapes_change_in_place():
    x = torch.zeros(4, 4, device=DEVICE)
    x[1:3, ::2].add_(1)
    x.T[0].mul_(3)
    assert x.sum().item() == 8
    assert x.T.data_ptr() == x.data_ptr()
    assert x.untyped_storage().nbytes() == 64
    assert x[:2].t_().shape == (4, 2)
    assert torch.ones(2, device=DEVICE).resize_(3, 3).shape == (3, 3)


def test_the_devices_draw_from_generators_of_their_own():
    def draw(device):
        return F.dropout(torch.ones(20, device=device)), torch.randn(3, device=device)

    torch.manual_seed(0)
    first, host = draw(DEVICE), torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(host, torch.rand(3))  # the draws of the device have not moved the CPU's
    assert all(map(torch.equal, first, draw(DEVICE)))
    generator = torch.Generator(DEVICE).manual_seed(5)
    assert (generator.device, torch.Generator().device) == (DEVICE, torch.device("cpu"))
    assert isinstance(torch.default_generator, torch.Generator)
    first = torch.randn(3, device=DEVICE, generator=generator)
    assert torch.equal(first, torch.randn(3, device=DEVICE, generator=generator.manual_seed(5)))


def test_the_default_device_is_that_of_factories():
    assert torch.get_default_device().type == "cpu"
    torch.set_default_device(NAME)
    try:
        assert torch.get_default_device() == DEVICE
        made = [torch.ones(2), torch.tensor([1]), torch.randn(2), nn.Linear(2, 2).weight]
    finally:
        torch.set_default_device(None)
    with torch.device(NAME):
        made.append(torch.arange(3))
    made += [torch.zeros(2, device=NAME), torch.full((2,), 3, device=DEVICE)]
    made += [torch.rand_like(made[0]), made[0].new_zeros(3), torch.eye(2, device=NAME)]
    assert {one.device for one in made} == {DEVICE}


LOCATIONS = {
    "none": (None, NAME, "cpu"),
    "the CPU": ("cpu", "cpu", "cpu"),
    "the device": (NAME, NAME, NAME),
    "a function": (lambda storage, location: storage, "cpu", "cpu"),
    "a mapping": ({"pretend:0": "cpu"}, "cpu", "cpu"),
}


@pytest.mark.parametrize("case", LOCATIONS)
def test_files_are_loaded_where_map_location_says(case):
    location, of_device, of_cpu = LOCATIONS[case]
    network, file = make_network().to(DEVICE), io.BytesIO()
    torch.save({"network": network.state_dict(), "cpu": torch.ones(2)}, file)
    file.seek(0)
    found = torch.load(file, map_location=location)
    assert {one.device.type for one in found["network"].values()} == {of_device}
    assert found["cpu"].device.type == of_cpu
    assert network.load_state_dict(found["network"]).missing_keys == []
    assert make_network().load_state_dict(found["network"]).missing_keys == []


def test_copies_are_independent():
    network = make_network().to(DEVICE)
    copied = copy.deepcopy(network)
    copied[0].weight.data.zero_()
    assert network[0].weight.abs().sum() > 0
    assert copied[0].weight.device == DEVICE
    assert isinstance(copied[0].weight, nn.Parameter)


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_pin_memory_and_copies_may_be_non_blocking(workers):
    data = TensorDataset(*make_batch())
    [(images, targets)] = DataLoader(data, 8, num_workers=workers, pin_memory=True)
    assert images.is_pinned()
    assert not data.tensors[0].is_pinned()
    assert images.to(DEVICE, non_blocking=True).device == DEVICE
    assert targets.to(DEVICE, non_blocking=True).cpu().tolist() == [*range(8)]


def test_a_network_runs_compiled():
    network, (images, targets) = make_network(), make_batch()
    network[3].p = 0.0
    expected = train(copy.deepcopy(network), images, targets)
    compiled = torch.compile(network.to(DEVICE), backend="aot_eager", fullgraph=True)
    found = train(compiled, images.to(DEVICE), targets.to(DEVICE))
    assert found[1] == pytest.approx(expected[1], abs=1e-5)


def test_attention_and_checkpoints():
    x = torch.randn(1, 2, 4, 8, device=DEVICE, requires_grad=True)

    def attend(x):
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

    torch.manual_seed(0)
    [expected] = torch.autograd.grad(attend(x).sum(), x)
    torch.manual_seed(0)
    [found] = torch.autograd.grad(checkpoint(attend, x, use_reentrant=False).sum(), x)
    assert torch.equal(found, expected)  # the second pass has dropped the same


def test_a_tensor_that_was_changed_in_place_is_noticed_by_the_backward_pass():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = x * 2
    squares = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.sum().backward()
