"""ZeRO by DeepSpeed on CPU ranks, beside DDP. DeepSpeed is an extra, see `MISSING`.

The notebook reads what it gives from ``study_deepspeed.json``, which `study_deepspeed` writes.
"""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from course_utils.errors import CourseError
from course_utils.ranks import ON_CPU, run_ranks
from lesson_code.sharding import zero

MISSING = (
    "DeepSpeed is not installed, so its numbers are stored ones: "
    "DS_BUILD_OPS=0 pip install --no-build-isolation '.[deepspeed]'"
)
ON_CPU_RANKS = ON_CPU | {"DS_ACCELERATOR": "cpu"}
WEIGHT_DECAY = 0.01
STEPS, TEXTS, DEPTH = 5, 8, 2


def has_deepspeed() -> bool:
    """Whether it can be imported; the import itself takes seconds."""
    return find_spec("deepspeed") is not None


def make_config(
    stage: int, texts: int, accumulate: int = 1, offload: str = "none", clip: float = 0.0
) -> dict[str, Any]:
    """A configuration of DeepSpeed: ZeRO with AdamW, in fp32.

    Args:
        stage: of ZeRO, 0 to 3.
        texts: in a micro-batch of one rank.
        accumulate: micro-batches per step.
        offload: where the optimizer state lies: ``"none"``, ``"cpu"``, or ``"nvme"``, which takes
            DeepSpeed's operator for asynchronous input and output, and with it libaio.
        clip: the norm to which gradients are clipped, 0 for none. If the line is left out,
            DeepSpeed 0.19 clips to a norm of 1, and says nothing.
    """
    return {
        "train_micro_batch_size_per_gpu": texts,
        "gradient_accumulation_steps": accumulate,
        "optimizer": {
            "type": "AdamW",
            # PyTorch's own, because the fused one has to be compiled
            "params": {"lr": zero.LR, "weight_decay": WEIGHT_DECAY, "torch_adam": True},
        },
        "gradient_clipping": clip,
        "zero_force_ds_cpu_optimizer": False,  # or offloading takes DeepSpeed's own Adam alone
        "zero_optimization": {
            "stage": stage,
            "offload_optimizer": {"device": offload},
            # parameters with fewer numbers stay whole on every rank; by default 100,000
            "stage3_param_persistence_threshold": 0,
        },
    }


def _prepare() -> Any:
    """DeepSpeed, with every message through gloo."""
    import deepspeed

    # ranks of one machine could add up in shared memory; to compile that takes a minute
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    return deepspeed


def _make_batches(rank: int, size: int) -> list[zero.Batch]:
    return [zero.take_shard(zero.make_batch(TEXTS, seed=s), rank, size) for s in range(STEPS)]


def _count(tensors: Iterable[Any]) -> int:
    """Bytes of vectors; AdamW's step counters are left out."""
    found = [x for x in tensors if isinstance(x, Tensor) and x.ndim]
    return sum(x.numel() * x.element_size() for x in found)


def _train_by_ddp(batches: list[zero.Batch], network: nn.Module) -> dict[str, Any]:
    model = DistributedDataParallel(network)
    optimizer = AdamW(model.parameters(), zero.LR, weight_decay=WEIGHT_DECAY)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = zero.compute_loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    moments = _count(x for entry in optimizer.state.values() for x in entry.values())
    return {"losses": losses, "moments": moments, "copy": 0, "weights": _count(model.parameters())}


def _train_by_deepspeed(deepspeed: Any, config: dict, batches: list[zero.Batch]) -> dict[str, Any]:
    """Losses, and bytes that this rank holds: moments, an own copy of weights, weights."""
    model = zero.make_model(DEPTH)
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config=config)
    losses = []
    for batch in batches:
        loss = zero.compute_loss(engine, batch)
        engine.backward(loss)
        engine.step()  # also clears the gradients
        losses.append(loss.item())
    inner = getattr(optimizer, "optimizer", optimizer)
    # what the optimizer steps: with ZeRO this rank's part, in a tensor of its own
    own = getattr(optimizer, "fp32_partitioned_groups_flat", None)
    own = own or getattr(optimizer, "single_partition_of_fp32_groups", [])
    held = [getattr(p, "ds_tensor", p) for p in model.parameters()]  # stage 3: this rank's part
    return {
        "losses": losses,
        "moments": _count(x for entry in inner.state.values() for x in entry.values()),
        "copy": _count(own),
        "weights": _count(held),
    }


def _split(batch: zero.Batch) -> Iterator[zero.Batch]:
    """The two micro-batches of a step."""
    return zip(*(tensor.chunk(2) for tensor in batch), strict=True)


def _train_by_accelerate(batches: list[zero.Batch], accumulate: bool) -> dict[str, Any]:
    """Two micro-batches per step by Accelerate: by its ``accumulate``, or by hand, as without it.

    Returns:
        How many optimizer steps DeepSpeed has taken, and all weights (P,).
    """
    from accelerate import Accelerator, DeepSpeedPlugin
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(True)  # of the way before
    GradientState._reset_state()
    config = make_config(2, len(batches[0][0]) // 2, accumulate=2 if accumulate else 1)
    del config["optimizer"]  # it comes from outside
    config["zero_allow_untested_optimizer"] = True
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config))
    model = zero.make_model(DEPTH)
    optimizer = AdamW(model.parameters(), zero.LR, weight_decay=WEIGHT_DECAY)
    engine, optimizer = accelerator.prepare(model, optimizer)
    for batch in batches:
        for number, micro_batch in enumerate(_split(batch)):
            loss = zero.compute_loss(engine, micro_batch)
            with accelerator.accumulate(engine) if accumulate else nullcontext():
                accelerator.backward(loss if accumulate else loss / 2)
                if accumulate or number == 1:
                    optimizer.step()  # does nothing: `backward` has taken the step, if any
                    optimizer.zero_grad()
    return {"steps": engine.global_steps, "weights": zero.read_weights(model)}


def _compare_accelerate(batches: list[zero.Batch]) -> dict[str, dict[str, float]]:
    """Steps of each way, and its largest difference in a weight from DDP with whole batches."""
    whole = zero.make_model(DEPTH)
    _train_by_ddp(batches, whole)
    found = {}
    for name, accumulate in {"accumulate": True, "by hand": False}.items():
        trained = _train_by_accelerate(batches, accumulate)
        gap = (trained["weights"] - zero.read_weights(whole)).abs().max().item()
        found[name] = {"steps": trained["steps"], "gap": gap}
    return found


def measure(rank: int, size: int, **_: object) -> dict[str, Any]:
    """What every rank found of each way, and what rank 0 found of Accelerate's two ways."""
    deepspeed, batches = _prepare(), _make_batches(rank, size)
    configs = {f"ZeRO {stage}": make_config(stage, TEXTS // size) for stage in (1, 2, 3)}
    configs["ZeRO 2, offloaded"] = make_config(2, TEXTS // size, offload="cpu")
    configs["ZeRO 2, clipped"] = make_config(2, TEXTS // size, clip=1.0)
    unsaid = make_config(2, TEXTS // size)
    configs["ZeRO 2, clipping unsaid"] = {k: v for k, v in unsaid.items() if "clipping" not in k}
    found = {"DDP": _train_by_ddp(batches, zero.make_model(DEPTH))}
    for way, config in configs.items():
        found[way] = _train_by_deepspeed(deepspeed, config, batches)
    everywhere: list[Any] = [None] * size
    dist.all_gather_object(everywhere, found)
    return {
        "ways": {way: [ranks[way] for ranks in everywhere] for way in found},
        "accelerate": _compare_accelerate(batches),
    }


def run(processes: int = 2) -> dict[str, Any]:
    """Start the ranks and return what they found.

    Raises:
        CourseError: DeepSpeed is not installed, or a rank failed.
    """
    if not has_deepspeed():
        raise CourseError(MISSING)
    return run_ranks(__name__, processes=processes, environment=ON_CPU_RANKS)
