"""Which split for which cluster: seconds and bytes of a step, by arithmetic.

The assumptions are few and coarse, and stand here so that they can be changed: bf16 weights,
gradients and activations (2 bytes), 12 bytes of optimizer state per parameter (a float32 copy of
the weights and Adam's two averages), nothing overlaps, every collective is a ring over the slowest
link of its ranks, and a pipeline runs 1F1B over equal stages. Tensor parallelism includes
sequence parallelism. ZeRO-3 gathers the weights anew for each micro-batch. With checkpointed
activations a rank keeps the inputs of its blocks and runs each forward pass twice. So the times
are those of a careful estimate, not of a measurement.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Cluster", "Estimate", "Split", "Transformer", "estimate", "find_fastest", "list_splits"]

ITEM = 2  # bytes of a number in bf16
STATE = 12  # bytes of optimizer state per parameter
SAVED = 34  # bytes of saved activations per token, unit of width and layer, with flash attention:
# V. Korthikanti et al., Reducing Activation Recomputation, 2022, https://arxiv.org/abs/2205.05198


@dataclass(frozen=True)
class Transformer:
    """A transformer of equal blocks; embeddings are left out."""

    layers: int
    width: int

    @property
    def parameters(self) -> int:
        return 12 * self.layers * self.width**2


@dataclass(frozen=True)
class Cluster:
    """Equal GPUs in nodes.

    Args:
        gpus: in all.
        in_node: of them in a node.
        node_link: bytes per second that a GPU sends to one of its node.
        far_link: bytes per second that a GPU sends to one of another node.
        flops: that a GPU really reaches per second.
        memory: bytes of a GPU.
    """

    gpus: int
    in_node: int = 8
    node_link: float = 450e9
    far_link: float = 50e9
    flops: float = 400e12
    memory: float = 80e9

    def find_link(self, span: int) -> float:
        """Bytes per second between ranks that lie within ``span`` neighbouring GPUs."""
        return self.node_link if span <= self.in_node else self.far_link


@dataclass(frozen=True)
class Split:
    """Degrees of data, tensor and pipeline parallelism, and the stage of ZeRO (0, 1 or 3).

    Args:
        checkpointed: whether the activations of each block are computed again (lesson 10).
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    zero: int = 0
    checkpointed: bool = False

    def __str__(self) -> str:
        degrees = {"DP": self.data, "TP": self.tensor, "PP": self.pipeline}
        words = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1]
        if self.zero:
            words.append(f"ZeRO-{self.zero}")
        if self.checkpointed:
            words.append("checkpointed")
        return " · ".join(words) or "one GPU"


@dataclass(frozen=True)
class Estimate:
    """Of one step: seconds by part, and bytes in the memory of the fullest GPU."""

    split: Split
    compute_s: float
    bubble_s: float
    tensor_s: float
    pipeline_s: float
    data_s: float
    state_bytes: float
    activation_bytes: float

    @property
    def step_s(self) -> float:
        parts = self.compute_s, self.bubble_s, self.tensor_s, self.pipeline_s, self.data_s
        return sum(parts)

    @property
    def bytes(self) -> float:
        return self.state_bytes + self.activation_bytes


def _send_tensor(model: Transformer, split: Split, tokens: float) -> float:
    """Bytes that a rank sends for tensor parallelism: two all-reduces of a layer and pass."""
    ring = 2 * (split.tensor - 1) / split.tensor
    return (
        (6 if split.checkpointed else 4)
        * ring
        * tokens
        * model.width
        * ITEM
        * model.layers
        / split.pipeline
    )


def _send_data(model: Transformer, split: Split, micro_batches: int) -> float:
    """Bytes that a rank sends for data parallelism: an all-reduce, or ZeRO-3's three halves."""
    own = ITEM * model.parameters / (split.tensor * split.pipeline)
    halves = 3 * micro_batches if split.zero == 3 else 2
    return halves * (split.data - 1) / split.data * own


def _count_activations(model: Transformer, split: Split, tokens: int, micro_batches: int) -> float:
    """Bytes of saved activations on the fullest rank; ``tokens`` are those of a micro-batch."""
    layer = SAVED * tokens * model.width / split.tensor
    kept = ITEM * tokens * model.width / split.tensor if split.checkpointed else layer
    stored = min(split.pipeline, micro_batches)
    whole = layer if split.checkpointed else 0.0  # the block that runs its backward pass
    return kept * model.layers / split.pipeline * stored + whole


def _count_state(model: Transformer, split: Split) -> float:
    """Bytes of weights, gradients and optimizer state on a rank."""
    own = model.parameters / (split.tensor * split.pipeline)
    if split.zero == 3:
        return own * (2 * ITEM + STATE) / split.data
    return own * (2 * ITEM + STATE / (split.data if split.zero else 1))


def estimate(
    model: Transformer,
    cluster: Cluster,
    split: Split,
    *,
    sequences: int,
    length: int = 4096,
    micro_batch: int = 1,
) -> Estimate:
    """Seconds and bytes of a step under the assumptions of this module.

    Ranks of one tensor group are neighbours, then those of a pipeline, then the replicas.

    Args:
        sequences: in the global batch, in all replicas together.
        length: tokens of a sequence.
        micro_batch: sequences of a micro-batch of the pipeline, or of an accumulation step.

    Raises:
        ValueError: the degrees do not make the cluster, or the batch cannot be dealt out.
    """
    gpus = split.data * split.tensor * split.pipeline
    if gpus != cluster.gpus:
        raise ValueError(f"{split} takes {gpus} GPUs, and the cluster has {cluster.gpus}")
    if sequences % (split.data * micro_batch):
        raise ValueError(f"{sequences} sequences cannot be dealt out to {split.data} replicas")
    micro_batches = sequences // (split.data * micro_batch)
    tokens = sequences * length / split.data  # of a replica
    operations = 8 if split.checkpointed else 6  # per parameter and token
    compute_s = operations * model.parameters * sequences * length / (gpus * cluster.flops)
    inner = split.tensor * split.pipeline
    sent_on = 0.0 if split.pipeline == 1 else 2 * tokens * model.width * ITEM / split.tensor
    return Estimate(
        split,
        compute_s,
        bubble_s=compute_s * (split.pipeline - 1) / micro_batches,
        tensor_s=_send_tensor(model, split, tokens) / cluster.find_link(split.tensor),
        pipeline_s=sent_on / cluster.find_link(inner),
        data_s=_send_data(model, split, micro_batches) / cluster.find_link(gpus),
        state_bytes=_count_state(model, split),
        activation_bytes=_count_activations(model, split, micro_batch * length, micro_batches),
    )


def _list_divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def list_splits(model: Transformer, cluster: Cluster, sequences: int) -> Iterator[Split]:
    """All splits of a cluster that are possible; ZeRO-3 is not joined with a pipeline.

    A pipeline would gather the weights of its stage again for each micro-batch.
    """
    degrees = _list_divisors(cluster.gpus)
    for tensor, pipeline in itertools.product(degrees, degrees):
        data, rest = divmod(cluster.gpus, tensor * pipeline)
        if rest or sequences % data or model.layers % pipeline or model.width % (128 * tensor):
            continue
        stages = (0,) if data == 1 else (0, 1, 3) if pipeline == 1 else (0, 1)
        for zero, checkpointed in itertools.product(stages, (False, True)):
            yield Split(data, tensor, pipeline, zero, checkpointed)


def find_fastest(
    model: Transformer,
    cluster: Cluster,
    *,
    sequences: int,
    length: int = 4096,
    splits: Iterable[Split] | None = None,
) -> Estimate | None:
    """The fastest of the splits that fit into the memory of a GPU; None: none fits.

    A replica takes its sequences in micro-batches of any equal size. Of two that are equally fast
    the one that needs less memory is taken.

    Args:
        splits: those that may be taken; None: all of them.
    """
    if splits is None:
        splits = list_splits(model, cluster, sequences)
    found = [
        estimate(model, cluster, x, sequences=sequences, length=length, micro_batch=micro_batch)
        for x in splits
        for micro_batch in _list_divisors(sequences // x.data)
    ]
    fitting = [each for each in found if each.bytes <= cluster.memory]
    return min(fitting, key=lambda each: (each.step_s, each.bytes), default=None)
