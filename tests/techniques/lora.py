"""LoRA: adapters in the convolutions of the last stage, and a new head."""

from peft import LoraConfig, get_peft_model

from course_utils.models.freeze import freeze_before


def lora_without_freezing(model):
    settings = {"r": 2, "target_modules": r"layer4\..*conv\d", "modules_to_save": ["fc"]}
    return get_peft_model(model, LoraConfig(**settings))


def add_lora(model):
    return lora_without_freezing(freeze_before(model, "fc"))


SEAM = {"model_transform": add_lora}


def invariant(record):
    """Adapters and the head move, and nothing else does."""
    assert all(".lora_" in name or name.startswith("fc") for name in record.moved)
    assert any(".lora_" in name for name in record.moved)


FAULTS = [("model_transform", lora_without_freezing)]
