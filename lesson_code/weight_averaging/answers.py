"""Planted answers of lesson 13: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_experiments

MEAN = "parts.mean(dim=0)"
FLOATING = "if tensor.is_floating_point():"
NO_STATES = "if not states:"
OTHER_NAMES = "if any(state.keys() != states[0].keys() for state in states):"
DECAY = "start_share ** (1 / (total_steps - 1))"
RULE = "That is the rule of thumb: here the share of the first weights decides."
COPY = "averaged = AveragedModel(model)\n"
COPY_AND_UPDATE = f"{COPY}    averaged.update_parameters(model)\n"
STEP = "        optimizer.step()\n"
SECOND_HALF = "if step >= len(batches) // 2:"
UPDATE = f"        {SECOND_HALF}\n            averaged.update_parameters(model)\n"
SAVED = "averaged.module.state_dict()"
LAST_LOSS = "The loss is that of the last weights: validate the averaged network, which is saved."

WRONG = {
    "measure_ema": plant_experiments("measure_ema"),
    "average_checkpoints": [
        (MEAN, "parts.sum(dim=0)", "The tensors are summed: divide by the number of checkpoints."),
        ("parts = torch.stack([state[name].double() for state in states])",
         "for state in states:", f"averaged[name] = {MEAN}.to(tensor.dtype)",
         "    averaged[name] = (averaged[name] + state[name]) / 2",
         "averaged[name] = tensor.clone()",
         "averaged[name] = states[0][name] if tensor.is_floating_point() else tensor.clone()",
         "Each tensor is averaged with the result so far, so the last checkpoints count most: all "
         "have the same share."),
        (MEAN, "parts[1:].mean(dim=0)", "The first checkpoint is left out."),
        (MEAN, "parts[:-1].mean(dim=0)", "The last checkpoint is left out."),
        (FLOATING, "if False:", "That is the last checkpoint, and nothing is averaged."),
        (FLOATING, "if tensor.is_floating_point() and 'running' not in name:",
         "The buffers are not averaged: BatchNorm's statistics are floating-point tensors too."),
        (FLOATING, "if True:",
         "BatchNorm's counter is averaged: take that of the last checkpoint."),
        ("in states[-1].items()", "in states[0].items()",
         "BatchNorm's counter is that of the first checkpoint: take that of the last."),
        (".double()", "", MEAN, "(sum(parts) / len(parts))",
         "A sum in fp16 overflows: add in float32 or float64, and convert the mean."),
        ("tensor.clone()", "tensor", "shares memory with a checkpoint"),
        ("    averaged[name] = tensor.clone()\n    ", "", "names are not those of the checkpoints"),
        (NO_STATES, "if False:", "With an empty list it raises IndexError"),
        (OTHER_NAMES, "if False:", "With state_dicts with different names it raises"),
        (".to(tensor.dtype)", "", "has to stay a tensor of torch."),
        (f"{MEAN}.to(tensor.dtype)", "tensor.zero_()", "given state_dicts are changed"),
        (MEAN, "parts.amax(dim=0)", "Not the mean over the checkpoints"),
        ("return averaged", "averaged", "Return a dictionary: is there a return?"),
    ],
    "choose_decay": [
        (DECAY, "start_share ** (1 / total_steps)",
         "The first update copies the weights, so their share is multiplied by the decay one time "
         "less."),
        (DECAY, "start_share",
         "That is the decay by which the share of the first weights falls in one update: take the "
         "root."),
        (DECAY, f"1 - {DECAY}",
         "That is the share that the new weights get: return one minus it."),
        (DECAY, "1 - 1 / total_steps", RULE),
        (DECAY, "1 - 10 / total_steps", RULE),
        (DECAY, "1 - start_share", "one minus the decay is"),
        ("if total_steps == 1:", "if False:", "ZeroDivisionError"),
        ("return 0.0", "return start_share", "return 0"),
        (f"return {DECAY}", DECAY, "Return a number: is there a return on every path?"),
    ],
    "train_averaged": [
        (SAVED, "model.state_dict()",
         "The file holds the last weights: save the averaged network."),
        (COPY, COPY_AND_UPDATE,
         "The initial weights are in the average: update it after steps of the second half only."),
        (STEP + UPDATE, UPDATE + STEP,
         "The average is updated before the optimizer's step: the last step is missing in it."),
        (COPY, COPY_AND_UPDATE, STEP + UPDATE, UPDATE + STEP,
         "The initial weights are in the average, and it is updated before the optimizer's step."),
        (SECOND_HALF, "if step > len(batches) // 2:",
         "The average begins one step too late: the second half begins with step "
         "len(batches) // 2."),
        (SECOND_HALF, "if True:", "All steps are averaged: take those of the second half."),
        ("    update_bn(batches, averaged)\n", "",
         "BatchNorm's statistics are those of the last weights: call update_bn for the average, "
         "before it is saved."),
        ("averaged.eval()", "model.eval()", "averaged(val_images)", "model(val_images)", LAST_LOSS),
        ("averaged(val_images)", "model(val_images)", LAST_LOSS),
        ("    averaged.eval()\n", "",
         "The loss is measured in train mode: averaged.eval() comes first."),
        (SAVED, "averaged.state_dict()", "state_dict of averaged.module"),
        (SAVED, "averaged.module", "has to hold a state_dict"),
        (SAVED, "list(averaged.module.parameters())", "The file has to hold a state_dict."),
        (f"    torch.save({SAVED}, path)\n", "", "Nothing is saved"),
        ("lr=lr", "lr=2 * lr", "not the mean of those after each step of the second half"),
        ("update_bn(batches,", "update_bn(batches[:1],", "not those of the averaged network"),
        ("return F", "return 2 * F", "The validation loss is"),
        (".item()", "", "as a number: .item()"),
    ],
}  # fmt: skip

RIGHT = {
    "measure_ema": [
        ("decay=0.8", "decay=0.5", "seeds=(0, 1, 2)", "seeds=(3, 4, 5)"),
        ("partial(AdamW, lr=0.003)", "partial(torch.optim.SGD, lr=0.02)",
         "seeds=(0, 1, 2)", "seeds=range(4)"),
    ],
    "average_checkpoints": [
        ("parts = torch.stack([state[name].double() for state in states])",
         "total = sum(state[name].float() for state in states)", MEAN, "(total / len(states))"),
        (NO_STATES, "if len({tuple(state) for state in states}) != 1:", f"    {OTHER_NAMES}\n"
         "        raise ValueError(\"the state_dicts have different names: are they of the same "
         "network?\")\n", ""),
    ],
    "choose_decay": [
        (DECAY, "float(np.exp(np.log(start_share) / (total_steps - 1)))"),
        ("if total_steps == 1:\n        return 0.0\n    ", "", DECAY,
         "torch.tensor(start_share).pow(1 / (total_steps - 1)).item() if total_steps > 1 else 0"),
    ],
    "train_averaged": [
        ("update_bn(batches, averaged)", "update_bn(batches, averaged.module)",
         "averaged.eval()", "averaged.module.eval()", "averaged(val", "averaged.module(val"),
        (COPY, "averaged, weights = copy.deepcopy(model), []\n",
         "averaged.update_parameters(model)",
         "weights.append(parameters_to_vector(model.parameters()).detach())",
         "    update_bn",
         "    mean = torch.stack(weights).mean(dim=0)\n"
         "    torch.nn.utils.vector_to_parameters(mean, averaged.parameters())\n    update_bn",
         SAVED, "averaged.state_dict()"),
    ],
}  # fmt: skip
