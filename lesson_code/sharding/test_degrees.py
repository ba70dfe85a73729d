"""The arithmetic of a step against what it should be in cases that one can do by hand."""

import pytest

from lesson_code.sharding.degrees import (
    Cluster,
    Split,
    Transformer,
    estimate,
    find_fastest,
    list_splits,
)
from lesson_code.sharding.tensor_parallel import predict_sent

MODEL = Transformer(layers=32, width=4096)


def test_one_gpu_has_16_bytes_per_parameter_and_sends_nothing():
    found = estimate(MODEL, Cluster(1), Split(), sequences=4)
    assert found.state_bytes == 16 * MODEL.parameters
    assert found.step_s == found.compute_s == 6 * MODEL.parameters * 4 * 4096 / 400e12


@pytest.mark.parametrize(("zero", "numbers"), [(0, 16), (1, 4 + 12 / 8), (3, 2)])
def test_zero_divides_what_it_shards(zero, numbers):
    found = estimate(MODEL, Cluster(8), Split(8, zero=zero), sequences=8)
    assert found.state_bytes == pytest.approx(numbers * MODEL.parameters)
    plain = estimate(MODEL, Cluster(8), Split(8), sequences=8)
    assert found.data_s == pytest.approx(plain.data_s * (1.5 if zero == 3 else 1))


def test_zero_3_gathers_the_weights_for_each_micro_batch():
    split = Split(8, zero=3)
    one, four = (estimate(MODEL, Cluster(8), split, sequences=32, micro_batch=m) for m in (4, 1))
    assert four.data_s == pytest.approx(4 * one.data_s)
    assert one.activation_bytes == 4 * four.activation_bytes


def test_checkpointed_activations_cost_a_forward_pass():
    splits = Split(4, 2), Split(4, 2, checkpointed=True)
    plain, again = (estimate(MODEL, Cluster(8), x, sequences=8) for x in splits)
    assert again.compute_s / plain.compute_s == pytest.approx(8 / 6)  # 2 forward, 4 backward
    assert again.tensor_s / plain.tensor_s == pytest.approx(6 / 4)
    assert again.data_s == plain.data_s
    layers = 34 * 4096 * 4096 / 2  # bytes of one layer on each of two ranks
    assert plain.activation_bytes == 32 * layers
    assert again.activation_bytes == layers + 32 * 2 * 4096 * 4096 / 2
    assert str(splits[1]) == "DP 4 · TP 2 · checkpointed"


def test_tensor_parallelism_sends_what_the_real_ranks_send():
    """Of one layer, in the bytes that `tensor_parallel` counts."""
    cluster = Cluster(4, in_node=4, node_link=1.0)
    found = estimate(Transformer(1, 128), cluster, Split(1, 4), sequences=1, length=64)
    assert found.tensor_s == predict_sent(128, 64, ranks=4, item=2)


def test_a_tensor_group_of_more_than_a_node_sends_over_the_far_link():
    seconds = [
        estimate(MODEL, Cluster(16), Split(16 // t, t), sequences=16).tensor_s for t in (8, 16)
    ]
    messages = 15 / 7  # (t - 1) / t of the ring, and t times the tokens in a replica
    assert seconds[1] / seconds[0] == pytest.approx(messages * 450 / 50)


def test_a_pipeline_has_its_bubble_and_stores_micro_batches():
    found = estimate(MODEL, Cluster(8), Split(1, 1, 8), sequences=64)
    assert found.bubble_s / found.compute_s == pytest.approx(7 / 64)
    one = estimate(MODEL, Cluster(8), Split(8), sequences=64)
    assert found.activation_bytes == one.activation_bytes  # 8 micro-batches of an eighth


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="takes 4 GPUs, and the cluster has 8"):
        estimate(MODEL, Cluster(8), Split(4), sequences=8)
    with pytest.raises(ValueError, match="9 sequences cannot be dealt out to 8 replicas"):
        estimate(MODEL, Cluster(8), Split(8), sequences=9)


def test_all_splits_make_the_cluster():
    cluster = Cluster(64)
    splits = list(list_splits(Transformer(80, 8192), cluster, 512))
    assert len(set(splits)) == len(splits) > 40
    for split in splits:
        assert split.data * split.tensor * split.pipeline == 64
        assert estimate(Transformer(80, 8192), cluster, split, sequences=512).step_s > 0
    assert {str(split) for split in splits} >= {"DP 64", "DP 64 · ZeRO-3", "DP 4 · TP 2 · PP 8"}
    assert str(Split()) == "one GPU"


def test_the_fastest_split_fits_and_no_faster_one_does():
    model, cluster = Transformer(80, 8192), Cluster(64)
    best = find_fastest(model, cluster, sequences=512)
    assert best.bytes <= cluster.memory
    for split in list_splits(model, cluster, 512):
        other = estimate(model, cluster, split, sequences=512)
        assert other.step_s >= best.step_s or other.bytes > cluster.memory
    assert find_fastest(model, Cluster(8), sequences=512) is None
