md("exercises", """
## Exercises

Write each function in place of the body that stands there, and run the check below it. An answer may use the lesson's imports and what you define from here on.

### ☆ Experiment: which fault of preprocessing costs most? (15 minutes)

**Predict first:** which of these three costs most points on photographs, *BGR*, *resized to 36, middle 32*, or *not normalised*? Write `preprocessing_experiment(config, data)` for the one that you think it is. Train at three seeds or more, and let each network answer the validation images twice, prepared as in training and with the fault. `preprocessing.list_image_faults(data.mean, data.std)` has both. Return the accuracies as in training, those with the fault, and the two edges of the 95 % interval of the mean difference. The check uses tiny data. Then call it with the lesson's `config` and `data` for all three, and compare with the figure of the First result, whose networks were trained in the same way.

<details><summary>Hint</summary><code>fit(config, data, seed=seed, save=False).model.eval()</code> is a network, and <code>torch.from_numpy(data.val.images).permute(0, 3, 1, 2)</code> are the pixels that a fault takes. <code>paired_difference(one, other)</code> has <code>low</code> and <code>high</code>.</details>
""", "skip")
solution("preprocessing-experiment", '''
def preprocessing_experiment(config, data):
    """Accuracies without and with a fault of preprocessing, and the interval's edges."""
    ### BEGIN SOLUTION
    prepare = preprocessing.list_image_faults(data.mean, data.std)
    pixels = torch.from_numpy(data.val.images).permute(0, 3, 1, 2)
    targets = torch.from_numpy(data.val.targets)
    found = {preprocessing.AS_TRAINED: [], "not normalised": []}
    for seed in (0, 1, 2):
        model = fit(config, data, seed=seed, save=False).model.eval()
        for name, accuracies in found.items():
            with torch.no_grad():
                chosen = model(prepare[name](pixels)).argmax(dim=1)
            accuracies.append((chosen == targets).float().mean().item())
    right, wrong = found.values()
    gap = paired_difference(right, wrong)
    return right, wrong, gap.low, gap.high
    ### END SOLUTION
''', "preprocessing_experiment")
check("check-preprocessing-experiment", "preprocessing_experiment", 1)
md("answer-experiment", """
<details><summary>Worked answer</summary>Without normalisation the inputs keep a positive mean and have a quarter of the usual spread, so all layers behind see numbers that they never met. It costs most of the three, although no colour is wrong. BGR keeps mean and spread, and confuses what was learned about colours. A cut of the middle changes sizes by an eighth, for which the augmentation of the training has prepared the network in part. That the harmless-looking fault costs most is the reason for a parity check: one cannot see from the pixels which logits will change.</details>

### ★ Exercise 1: fold a BatchNorm (10 minutes)

Write `fold_batchnorm(weight, bias, norm)`. `weight` `(O, I, K, K)` and `bias` `(O,)`, or None, belong to a convolution, and `norm` is the `nn.BatchNorm2d` behind it, in eval mode. Return the weight and the bias of the one convolution that computes both. The layer itself stays as it is.

<details><summary>Hint</summary>In eval mode a channel becomes γ (x − μ) / √(σ² + ε) + β, with <code>norm.weight</code> γ, <code>norm.bias</code> β, <code>norm.running_mean</code> μ and <code>norm.running_var</code> σ². Which factor does each output channel get, and what happens to a constant that was added before?</details>
""", "skip")
solution("fold-batchnorm", '''
def fold_batchnorm(weight, bias, norm):
    """Weight (O, I, K, K) and bias (O,) of a convolution with its BatchNorm inside."""
    ### BEGIN SOLUTION
    factor = norm.weight / (norm.running_var + norm.eps).sqrt()  # (O,)
    before = 0 if bias is None else bias
    folded = weight * factor[:, None, None, None]
    return folded.detach(), ((before - norm.running_mean) * factor + norm.bias).detach()
    ### END SOLUTION
''', "fold_batchnorm")
check("check-fold-batchnorm", "fold_batchnorm", 1)
md("answer-fold", """
<details><summary>Worked answer</summary>The factor stands at the output channel, which is the first dimension of the weight, so it needs three more dimensions. A bias of the convolution is added before the norm, so it is shifted by the mean and scaled as well. The batch's own statistics play no part: in training mode there is nothing constant to fold. Whoever folds and leaves the norm in its place applies it twice, and no shape complains.</details>

### ★★ Exercise 2: a scale for each channel (15 minutes)

Write `quantize_per_channel(weight)`. `weight` has the shape `(O, …)`, with one dimension or more behind the first. Return the whole numbers, a tensor of the type `torch.int8` and the same shape, and the scales, `(O,)` in fp32. The zero point is 0, and the largest absolute value of each channel becomes 127 or −127. A channel of zeros gets the scale 1, so that nothing is divided by zero.

<details><summary>Hint</summary><code>weight.flatten(1).abs().amax(dim=1)</code> is one number per channel. To divide by it, give it as many dimensions as the weight. Round before you change the type, because a conversion cuts off.</details>
""", "skip")
solution("quantize-per-channel", '''
def quantize_per_channel(weight):
    """Whole numbers (O, …) int8 and scales (O,), with weight ≈ numbers times scales."""
    ### BEGIN SOLUTION
    largest = weight.flatten(1).abs().amax(dim=1)
    scales = torch.where(largest > 0, largest / 127, 1.0)
    shape = (-1, *[1] * (weight.ndim - 1))
    return (weight / scales.view(shape)).round().to(torch.int8), scales
    ### END SOLUTION
''', "quantize_per_channel")
check("check-quantize-per-channel", "quantize_per_channel", 2)
md("answer-quantize", """
<details><summary>Worked answer</summary>The scale belongs to the output channel because all products of one output share it: it can be multiplied once, after the sum. A scale for each input channel would stand inside the sum, where products of whole numbers could no longer be added. That is why the axis matters more than it seems. With the wrong axis of a square weight every shape fits, and the logits are nonsense.</details>

### ★★★ Exercise 3: find the bugs (15 minutes)

This function of a service should answer with the probabilities that the network had in validation. It has **four** faults. Write `answer_photographs` without them.

```python
def answer_photographs(model, photographs, mean, std):
    pixels = torch.from_numpy(np.stack(photographs)[..., ::-1].copy())
    images = pixels.permute(0, 3, 1, 2).float()
    images = (images - mean.view(3, 1, 1)) / std.view(3, 1, 1) / 255
    with torch.no_grad():
        logits = model.train(False)(images) if len(images) > 1 else model(images)
    return logits.softmax(dim=0)
```

`photographs` are arrays `(H, W, 3)` uint8 in RGB, all of one size. `mean` and `std` `(3,)` are those of the training, in units of 255, so that a white pixel is 1. The model was trained on RGB, and may be in train mode when it comes: its mode at the end does not matter. Return probabilities `(N, C)` that do not depend on what else is in the batch, and need no gradient.

<details><summary>Hint</summary>Follow one white pixel through the function. Then ask for one photograph alone, and for the same one beside another, and add up the numbers of one answer.</details>
""", "skip")
solution("answer-photographs", '''
def answer_photographs(model, photographs, mean, std):
    """Probabilities (N, C) for photographs (H, W, 3) uint8 in RGB, as in validation."""
    ### BEGIN SOLUTION
    pixels = torch.from_numpy(np.stack(photographs))
    images = pixels.permute(0, 3, 1, 2).float() / 255
    images = (images - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    model.eval()
    with torch.no_grad():
        logits = model(images)
    return logits.softmax(dim=1)
    ### END SOLUTION
''', "answer_photographs")
check("check-answer-photographs", "answer_photographs", 3)
md("answer-bugs", """
<details><summary>Worked answer</summary>(1) The last dimension is turned round, so the network gets BGR: OpenCV delivers BGR, and these photographs are RGB already. (2) The division by 255 comes after the mean was subtracted, so the mean counts for nothing. (3) A single photograph meets the network in train mode, if it came so: dropout is on, and BatchNorm normalises the photograph by itself. A batch hides it. (4) The softmax runs over the photographs, so the answer to one depends on the others, and for a single one it is 1 for every class. All four return numbers of the right shape.</details>
""", "skip")
