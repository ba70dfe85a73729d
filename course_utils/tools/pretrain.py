"""``course pretrain`` makes the backbone that the lessons on transfer start from."""

from pathlib import Path

from torch import channels_last, nn
from torch.optim.lr_scheduler import OneCycleLR

from course_utils.config import Config
from course_utils.data.image_data import load_data
from course_utils.models.backbone import write_backbone
from course_utils.training.fit import fit

__all__ = ["RECIPE", "pretrain"]

RECIPE = Config(
    profile="pretrain",
    dataset="shapes_source",
    model="resnet_tiny",
    num_train=16_000,
    num_val=4_000,
    epochs=10,
    batch_size=64,
    peak_lr=3e-3,
    num_workers=0,
    num_seeds=1,
    progress=True,
)


def _to_channels_last(model: nn.Module) -> nn.Module:
    return model.to(memory_format=channels_last)  # a fifth faster on two cores


def pretrain(folder: Path, seed: int, recipe: Config) -> dict:
    """Train the backbone, write it into ``folder``, and return what its JSON says.

    The head is left out: every lesson brings its own classes.
    """
    run = fit(
        recipe,
        load_data(recipe),
        seed=seed,
        model_transform=_to_channels_last,
        make_schedule=lambda optimizer, total_steps: OneCycleLR(
            optimizer, recipe.peak_lr, total_steps=total_steps, pct_start=0.1
        ),
        trainer={"enable_progress_bar": recipe.progress},
        arm="pretrain",
    )
    state = run.model.state_dict()
    weights = {name: tensor for name, tensor in state.items() if not name.startswith("fc.")}
    about = {
        "command": f"course pretrain --seed {seed}",
        "model": recipe.model,
        "data": f"{recipe.dataset}: {recipe.num_train:,} training, {recipe.num_val:,} validation",
        "epochs": recipe.epochs,
        "batch_size": recipe.batch_size,
        "make_optimizer": f"AdamW, one cycle up to {recipe.peak_lr}",
        "seed": seed,
        "val_accuracy": run.metrics["val_accuracy"],
        "time_s": run.time_s,
        **{key: run.provenance[key] for key in ("versions", "hardware", "commit")},
    }
    write_backbone(weights, about, folder)
    return about
