import pytest
import torch

from course_utils.measure.calibration import FinalLogits, calibration_error
from course_utils.training.fit import fit


def test_calibration_error_by_hand():
    probabilities = torch.tensor([[0.8, 0.2]] * 10)
    targets = torch.tensor([0] * 6 + [1] * 4)  # 80 % sure, 60 % right
    assert calibration_error(probabilities.log(), targets) == pytest.approx(0.2, abs=1e-5)


def test_logits_between_zero_and_one_are_still_logits():
    logits = torch.tensor([[0.9, 0.1]] * 10)
    targets = torch.zeros(10, dtype=torch.int64)
    expected = 1 - logits[0].softmax(0)[0].item()
    assert calibration_error(logits, targets) == pytest.approx(expected, abs=1e-5)


def test_final_logits_are_those_of_the_trained_model_in_eval_mode(tiny_config, tiny_data):
    given = FinalLogits(tiny_data.eval_loader())
    run = fit(tiny_config, tiny_data, trainer={"callbacks": given})
    assert given.logits is given.targets is None  # a copy of it observed the training
    found = run.callback(FinalLogits)
    images, targets = (torch.cat(part) for part in zip(*tiny_data.eval_loader(), strict=True))
    assert torch.equal(found.targets, targets)
    with torch.no_grad():
        torch.testing.assert_close(found.logits, run.model(images))
    right = (found.logits.argmax(dim=1) == targets).float().mean().item()
    assert run.metrics["val_accuracy"] == pytest.approx(right)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_final_logits_come_in_the_trainers_precision_and_leave_as_float(
    precision, tiny_config, tiny_data
):
    observer = FinalLogits(tiny_data.eval_loader())
    run = fit(tiny_config, tiny_data, trainer={"callbacks": observer, "precision": precision})
    found = run.callback(FinalLogits)
    assert found.logits.dtype == torch.float32
    right = (found.logits.argmax(dim=1) == found.targets).float().mean().item()
    one_image = 1 / len(found.targets)  # validation runs in inference mode: a near tie may flip
    assert run.metrics["val_accuracy"] == pytest.approx(right, abs=1.01 * one_image)
