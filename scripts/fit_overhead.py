"""How much slower is `fit` than a plain PyTorch loop? The ratio of their images per second.

Both train the same model on the same batches at the same precision, in turn (A B B A), and
both clocks run as `course_utils.measure.Throughput` does: from batch to batch, loading included,
without the first three steps. Run it on an otherwise idle machine.
"""

import os
import tempfile
import time
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
import typer

from course_utils.config import Config, load_config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.measure.provenance import describe_hardware, read_versions
from course_utils.measure.timing import synchronize
from course_utils.models.create import create_model
from course_utils.training.fit import fit

WARMUP_STEPS = 3


def time_plain_loop(config: Config, data: ImageData, seed: int) -> float:
    """Images per second of the loop that a textbook would write."""
    torch.manual_seed(seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = create_model(config.model, data.num_classes).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.peak_lr)
    step, images_seen, time_s = 0, 0, 0.0
    loader = data.train_loader(seed)
    for _ in range(config.epochs):
        start = time.perf_counter()
        for images, targets in loader:
            images, targets = images.to(device), targets.to(device)
            optimizer.zero_grad()
            F.cross_entropy(model(images), targets).backward()
            optimizer.step()
            step += 1
            if step == WARMUP_STEPS:
                synchronize(device)
                start = time.perf_counter()
            elif step > WARMUP_STEPS:
                images_seen += len(targets)
        synchronize(device)
        time_s += time.perf_counter() - start
    return images_seen / time_s


def main(
    rounds: Annotated[int, typer.Option(help="rounds of plain, fit, fit, plain; at least 3")] = 4,
    epochs: Annotated[int, typer.Option(help="of one run")] = 6,
) -> None:
    """Print the ratio fit / plain loop, its median and its spread."""
    config = load_config("quick", dataset="photos").replace(epochs=epochs)
    data = load_data(config)
    ratios = []
    with tempfile.TemporaryDirectory() as runs:
        os.environ["COURSE_RUNS_DIR"] = runs
        for seed in range(rounds):
            first_plain = time_plain_loop(config, data, seed)
            ours = [fit(config, data, seed=seed).examples_per_s for _ in range(2)]
            last_plain = time_plain_loop(config, data, seed)
            plain = (first_plain + last_plain) / 2  # A B B A: a drift of the machine cancels
            ratios.append(sum(ours) / 2 / plain)
            print(f"round {seed + 1}: plain {plain:,.0f}, fit {sum(ours) / 2:,.0f} images/s")
    hardware, versions = describe_hardware(), read_versions()
    print(
        f"fit / plain loop: median {np.median(ratios):.3f}, "
        f"{min(ratios):.3f} to {max(ratios):.3f} over {rounds} alternating rounds "
        f"({config.model}, batch {config.batch_size}, fp32; {hardware['gpu'] or hardware['cpu']}, "
        f"{hardware['cores']} cores, torch {versions['torch']}, lightning {versions['lightning']})"
    )


if __name__ == "__main__":
    typer.run(main)
