"""Texts: tokens, padding, masks, and a loss in which every predicted token counts the same."""

import copy
import inspect
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector
from torch.optim import SGD, AdamW
from torch.utils.data import DataLoader
from transformers import T5Config, T5ForConditionalGeneration
from transformers.modeling_outputs import CausalLMOutput

from course_utils.training import quiet_trainer

NOT_COMBINED = "texts are data, which every technique can be trained with"

VOCABULARY = 11
LENGTHS = (2, 3, 40, 25, 2, 7)  # of texts: micro-batches of two have 3, 63 and 7 predicted tokens
EXACT = {"atol": 1e-6, "rtol": 1e-5}


class BothWays(nn.Module):
    """Sees the mean of a text beside each token, so padding changes it unless it is masked."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, 6), nn.Linear(6, VOCABULARY)

    def forward(self, inputs, attention_mask):
        vectors = self.embed(inputs)  # (N, T, 6)
        real = attention_mask[..., None]
        mean = (vectors * real).sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True)
        return CausalLMOutput(logits=self.head(torch.tanh(vectors + mean)))


def make_texts(lengths=LENGTHS, lowest=0):
    return [torch.randint(lowest, VOCABULARY, (length,)) for length in lengths]


def sum_losses(model, texts):
    """Of each text alone, without padding: the loss of each token from the one before it."""
    total, count = 0.0, 0
    for text in texts:
        seen, following = text[None, :-1], text[1:]
        logits = model(seen, torch.ones_like(seen, dtype=torch.bool)).logits[0]
        total = total - logits.log_softmax(dim=1)[torch.arange(len(following)), following].sum()
        count += len(following)
    return total, count


def list_gradients(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def take_step(card, model, micro_batches, max_norm=1e6):
    """What the card's step returns, the gradient that it steps along, and how far it goes."""
    model = copy.deepcopy(model).eval()
    before = parameters_to_vector(model.parameters()).detach()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)  # left over from before
    loss = card["train_step"](model, SGD(model.parameters(), lr=1.0), micro_batches, max_norm)
    assert model.training, "a step has dropout"
    step = before - parameters_to_vector(model.parameters()).detach()
    return loss.detach(), list_gradients(model), step


def check_accumulation(card):
    """Any division into micro-batches gives the gradient of the texts one by one."""
    model, texts = BothWays(), make_texts()
    reference = copy.deepcopy(model)
    total, count = sum_losses(reference, texts)
    (total / count).backward()
    expected = list_gradients(reference)
    for size in (1, 2, 4, len(texts)):
        micro_batches = [
            card["collate"](texts[start : start + size]) for start in range(0, len(texts), size)
        ]
        loss, gradient, step = take_step(card, model, micro_batches)
        torch.testing.assert_close(gradient, expected, **EXACT)
        torch.testing.assert_close(step, expected, **EXACT)
        torch.testing.assert_close(loss, (total / count).detach())
    inputs, padding, labels = card["collate"](make_texts((5, 9)))
    nothing = inputs, padding, torch.full_like(labels, -100)
    _, gradient, _ = take_step(card, model, [*micro_batches, nothing])
    torch.testing.assert_close(gradient, expected, **EXACT)  # it has no predicted token
    _, _, step = take_step(card, model, micro_batches, max_norm=0.01)
    torch.testing.assert_close(step.norm(), torch.tensor(0.01), atol=1e-5, rtol=1e-3)


def check_two_processes(card):
    """The mean over the processes, as DDP takes it, counts the tokens of both the same."""
    model, shares = BothWays(), (make_texts((3, 4)), make_texts((30, 9)))
    reference = copy.deepcopy(model)
    sums = [sum_losses(reference, texts) for texts in shares]
    (sum(total for total, _ in sums) / sum(count for _, count in sums)).backward()
    gradients, losses = [], []
    for rank, texts in enumerate(shares):
        others = sums[1 - rank][1]
        with (
            mock.patch.object(dist, "is_initialized", return_value=True),
            mock.patch.object(dist, "get_world_size", return_value=2),
            mock.patch.object(dist, "all_reduce", lambda count, n=others: count.add_(n)),
        ):
            loss, gradient, _ = take_step(card, model, [card["collate"](texts)])
        gradients.append(gradient)
        losses.append(loss)
    mean = torch.stack(gradients).mean(dim=0)
    torch.testing.assert_close(mean, list_gradients(reference), **EXACT)
    expected = sum(total.detach() for total, _ in sums) / sum(count for _, count in sums)
    torch.testing.assert_close(torch.stack(losses).mean(), expected)


def check_collate(card):
    """Only padding is -100 and masked, also where a text has the id that pads."""
    texts = [torch.tensor([3, 0, 5, 0]), torch.tensor([4, 2])]
    inputs, padding, labels = card["collate"](texts)
    assert inputs[0].tolist() == [3, 0, 5]
    assert inputs[1, 0] == 4
    assert labels.tolist() == [[0, 5, 0], [2, -100, -100]]
    assert padding.tolist() == [[False, False, False], [False, True, True]]


def check_pytorch_card(card):
    """Its step has the gradient of the texts one by one, however they are divided."""
    with mock.patch.dict(card, {"device": "cpu"}):
        check_collate(card)
        check_accumulation(card)
        check_two_processes(card)
    assert inspect.signature(card["train_step"]).parameters["max_norm"].default == 1.0
    assert len(card["texts"]) == 64
    lengths = [len(batch[2][0]) for batch in card["micro_batches"]]
    assert lengths == sorted(lengths), "texts of similar lengths are in one micro-batch"
    assert [len(inputs) for inputs, *_ in card["micro_batches"]] == [4] * 4
    assert isinstance(card["optimizer"], AdamW)
    (group,) = card["optimizer"].param_groups
    assert group["lr"] == 1e-3
    steps = card["optimizer"].state[card["model"].lm_head.weight]["step"]
    assert steps == 4, "one step per loaded batch"


def make_t5():
    """A tiny T5 without dropout, with weights that tell its tokens apart."""
    sizes = {"vocab_size": VOCABULARY, "d_model": 8, "d_kv": 4, "d_ff": 16, "num_heads": 2}
    config = T5Config(**sizes, num_layers=1, dropout_rate=0.0, decoder_start_token_id=0)
    return T5ForConditionalGeneration(config)


def sum_t5_losses(model, pairs):
    """Of each pair alone, without padding: the decoder starts with T5's pad token, 0."""
    total, count = 0.0, 0
    for source, target in pairs:
        before = torch.cat([torch.zeros(1, dtype=torch.long), target[:-1]])
        logits = model(input_ids=source[None], decoder_input_ids=before[None]).logits[0]
        total = total + F.cross_entropy(logits, target, reduction="sum")
        count += len(target)
    return total, count


def check_lightning_card(card):
    """Loss and validation are those of the pairs one by one; the tuned network is saved."""
    model = make_t5()
    pairs = list(zip(make_texts((3, 9, 4, 6), 1), make_texts((2, 20, 3, 2), 1), strict=True))
    lit = card["LitT5"](model.eval(), lr=0.25)  # as from_pretrained gives it
    assert all(module.training for module in model.modules()), "dropout stays off"
    total, count = sum_t5_losses(model, pairs)
    loss = lit.training_step(card["collate"](pairs), 0)
    torch.testing.assert_close(loss, total / count)
    optimizer = lit.configure_optimizers()
    assert isinstance(optimizer, AdamW)
    (group,) = optimizer.param_groups
    assert group["lr"] == 0.25
    assert len(group["params"]) == len(list(model.parameters()))

    losses = [torch.true_divide(*sum_t5_losses(model, half)) for half in (pairs[:2], pairs[2:])]
    assert abs(sum(losses) / 2 - total / count) > 1e-3, "the mean of means is another number"
    loader = DataLoader(pairs, 2, collate_fn=card["collate"])
    (found,) = quiet_trainer(accelerator="cpu").validate(lit, loader, verbose=False)
    assert found["val_loss"] == pytest.approx((total / count).item(), abs=1e-6)

    trained, trainer = card["t5"], card["trainer"]
    assert "val_loss" in trainer.callback_metrics
    assert Path("t5-tuned").is_dir(), "the tuned network is saved"
    assert not trained.training, "it generates without dropout"
    total, count = sum_t5_losses(trained, card["pairs"])
    validated = trainer.callback_metrics["val_loss"].item()
    assert validated == pytest.approx((total / count).item(), abs=0.02), "in bf16"
    assert trainer.gradient_clip_val == 1.0
    assert trainer.global_step == 8, "two epochs of four batches"
    assert trainer.optimizers[0].param_groups[0]["lr"] == 3e-4
    saved = T5ForConditionalGeneration.from_pretrained("t5-tuned")
    weights = trained.state_dict()
    for name, weight in saved.state_dict().items():
        torch.testing.assert_close(weight, weights[name].cpu())
    assert len(card["generated"]) == len(card["pairs"])
