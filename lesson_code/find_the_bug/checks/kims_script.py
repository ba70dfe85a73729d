"""Kim's script: fine-tune a pretrained network on new photographs, and keep its best weights."""

import torch
import torch.nn.functional as F
from torch import nn

VAL_SHARE = 0.2
BATCH_SIZE = 16
SMOOTHING = 0.1
MAX_NORM = 5.0


def split_images(images, targets, seed):
    """Shuffle the photographs (N, 3, H, W), and hold out a fifth for validation."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(images), generator=generator)
    num_val = int(VAL_SHARE * len(images))
    val, train = order[:num_val], order[num_val:]
    return (images[train], targets[train]), (images[val], targets[val])


def normalise(images):
    """Bring each channel to mean 0 and standard deviation 1."""
    mean = images.mean(dim=(0, 2, 3), keepdim=True)
    std = images.std(dim=(0, 2, 3), keepdim=True)
    return (images - mean) / std


def make_schedule(optimizer, total_steps):
    """A tenth of warm-up, then linearly down to 0; advanced after each optimizer step."""
    warmup = max(1, total_steps // 10)

    def factor(step):
        return min((step + 1) / warmup, (total_steps - step) / max(1, total_steps - warmup))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


@torch.no_grad()
def evaluate(model, images, targets):
    """The share of the photographs that the model classifies correctly."""
    model.eval()
    hits = 0
    for part in torch.arange(len(images)).split(4 * BATCH_SIZE):
        logits = model(normalise(images[part]))
        hits += (logits.argmax(dim=1) == targets[part]).sum().item()
    return hits / len(images)


def fine_tune(model, images, targets, num_classes, epochs, lr, seed):
    """Train a new head and the network below it; returns the best model and all accuracies."""
    (images, targets), val = split_images(images, targets, seed)
    images = normalise(images)
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    model.fc = nn.Linear(model.fc.in_features, num_classes).to(images)
    total_steps = epochs * -(-len(images) // BATCH_SIZE)
    schedule = make_schedule(optimizer, total_steps)
    best, best_accuracy, accuracies = None, -1.0, []
    model.train()
    for _ in range(epochs):
        for part in torch.randperm(len(images)).split(BATCH_SIZE):
            if len(part) == 1:
                continue  # BatchNorm needs two images
            optimizer.zero_grad()
            logits = model(images[part])
            loss = F.cross_entropy(logits, targets[part], label_smoothing=SMOOTHING)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            optimizer.step()
            schedule.step()
        accuracies.append(evaluate(model, *val))
        if accuracies[-1] > best_accuracy:
            best, best_accuracy = model.state_dict(), accuracies[-1]
    model.load_state_dict(best)
    return model, accuracies
