"""Planted answers of lesson 11: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_experiments

# Parts of the solutions.
CEIL = "math.ceil(prepare_s / step_s)"
WAITED = "1 - step_s / (prepare_s / (cores - 1))"
PLACE = "rng.integers(buffer_size)"
DRAIN = "rng.permutation(len(buffer))"
BEGIN = "    mean, std = torch.from_numpy(pipeline.mean), torch.from_numpy(pipeline.std)\n"
RAW = "torch.from_numpy(images[:left])"
PIXELS = f"({RAW} / 255 - mean) / std"
AXES = "images.permute(0, 3, 1, 2).contiguous()"
RANGE = "range(0, num_images, batch_size)"
RESHAPE = "images.reshape(-1, 3, 5, 7)"
MIXED = "The pixels are mixed: reshape keeps their order in memory, permute moves axes."
LEVEL = "(x / 255 - mean) / std is "
WHOLE = "range(0, num_images // batch_size * batch_size, batch_size)"
# Reshaped at once, and normalised with the channels first.
MIXED_FIRST = (RAW, f"{RAW}.reshape(-1, 3, 5, 7)", BEGIN,
               f"{BEGIN}    mean, std = mean[:, None, None], std[:, None, None]\n",
               AXES, "images")  # fmt: skip

WRONG = {
    "measure_quality": plant_experiments("measure_quality"),
    "plan_workers": [
        (CEIL, "round(prepare_s / step_s)", "with 0 workers the main process"),
        (CEIL, "max(1, round(prepare_s / step_s))", "a data stall with 2, "),
        (CEIL, "int(prepare_s / step_s) + 1", "4 workers are too many, "),
        (CEIL, "math.ceil(step_s / prepare_s)", "3 workers are too many, "),
        ("return workers", "return workers + 1", "2 workers are too many, "),
        ("> cores - 1", "> cores", "3 workers are too few, so raise ValueError"),
        ("> cores - 1", ">= cores - 1", "no ValueError, the cores are enough"),
        (CEIL, "-(-prepare_s // step_s)", "is whole, not 1.0"),
        ("{waited:.0%}", "{waited}", "names no percentage"),
        ("ValueError", "RuntimeError", "stopped with RuntimeError"),
        (WAITED, "step_s / (prepare_s / (cores - 1))", "25% of the time is waited, not 75%"),
        (WAITED, "1 - step_s / (prepare_s / cores)", "25% of the time is waited, not 0%"),
        (WAITED, "prepare_s / (cores - 1) / step_s - 1", "25% of the time is waited, not 33%"),
    ],
    "shuffle_stream": [
        ("in items", "in rng.permutation(list(items))", "20 items are read before the first one"),
        ("< buffer_size", "<= buffer_size", "7 items are read before the first one comes"),
        (PLACE, "buffer.append(item)", "buffer[place]\n        buffer[place] = item",
         "buffer.pop(rng.integers(len(buffer)))", "A buffer of 1 cannot change the order"),
        ("buffer[place]\n        buffer[place] = item\n",
         "from rng.permutation(buffer)\n        buffer = [item]\n", "in chunks"),
        (DRAIN, "()", "never come: yield what is left in the buffer at the end"),
        (DRAIN, "range(len(buffer))", "comes in no random order: draw it at random too"),
        (DRAIN, f"[*{DRAIN}] * 2", "more items come than there are"),
        (PLACE, "np.random.randint(buffer_size)", "The same rng gives two orders"),
        ("buffer = []", "buffer, rng = [], np.random.default_rng(0)", "Every rng gives the same"),
        (PLACE, "0", "Place 1 of the buffer is never drawn"),
        (PLACE, "rng.integers(max(1, buffer_size - 1))", "Place 3 of the buffer is never drawn"),
        (PLACE, "min(rng.integers(buffer_size, size=2))", "not equally likely"),
        ("in items", "in map(str, items)", "an item comes twice, or is none of them"),
    ],
    "to_batches": [
        (AXES, RESHAPE, MIXED),
        (AXES, RESHAPE, " / 255", "", MIXED),
        (AXES, RESHAPE, PIXELS, f"{RAW} / 255", MIXED),
        (*MIXED_FIRST, MIXED),
        (*MIXED_FIRST, " / 255", "", MIXED),
        (" / 255", "", "The pixels are not divided by 255."),
        (PIXELS, f"{RAW} / 255", "The images are not normalised."),
        (PIXELS, f"{RAW}.float()", LEVEL),
        (" - mean) / std", " - mean)", LEVEL),
        (" - mean) / std", " - mean) * std", LEVEL),
        (" / 255", " / 256", LEVEL),
        ("mean, std =", "std, mean =", LEVEL),
        (RAW, f"{RAW}.flip(3)", LEVEL),
        (BEGIN, f"    pipeline.mean *= 1.5\n{BEGIN}", "have changed: make new arrays"),
        (AXES, "images", "are (torch.float32, 4, 5, 7, 3), not (torch.float32, 4, 3, 5, 7)"),
        (".contiguous()", "", "permute and transpose move no memory"),
        (".contiguous()", ".double()", "The images are (torch.float64"),
        (BEGIN, f"{BEGIN}    out = torch.empty(batch_size, 3, 5, 7)\n",
         AXES, f"out[:left].copy_({AXES})", "Images change with the next run: copy them"),
        ("[:left, 0]", "[:left]", "The targets are (torch.int64, 4, 1)"),
        ("[:left, 0]).clone()", "[:left].copy()).squeeze()", "are (torch.int64,), not"),
        (".clone()", ".int()", "The targets are (torch.int32"),
        (".clone()", "", "Targets change with the next run: copy them"),
        (".clone()", ".flip(0)", "The targets are not the labels of the images"),
        ("min(batch_size, num_images - start)", "batch_size", "not (torch.float32, 2, 3, 5, 7)"),
        ("train and", "False and", "train=True, 10 images in batches of 4: 2 batches are due, and"),
        ("train and", "", "train=False, 10 images in batches of 4: 3 batches are due, 2 come"),
        ("left < batch_size", "left + start == num_images", "2 batches are due, 1 come"),
        (RANGE, "range(0, num_images + 1, batch_size)", "due, and more come"),
        (RANGE, f"{WHOLE} if train else {RANGE}", "the pipeline has 3 runs, not 2"),
        (f"{AXES}, targets", f"{AXES}, targets\n    pipeline.run()", "3 runs, not 4"),
        (BEGIN, f"{BEGIN}    pipeline.run()\n", "A later run comes before the yield"),
        (f"{AXES}, targets", AXES, "3, 5, 7), not (torch.float32, 4, 3, 5, 7)"),
        (f"{AXES}, targets", f"{AXES}.numpy(), targets.numpy()", "The images are (dtype"),
        (AXES, AXES.replace("images", "images[..., [0, 2, 1]]"), "or stand at another place"),
    ],
}  # fmt: skip

RIGHT = {
    "measure_quality": [
        ("encode_jpeg(torch.from_numpy(image).permute(2, 0, 1), quality=20)",
         'cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 30])[1]',
         "decode_image(code).permute(1, 2, 0).numpy()", "cv2.imdecode(code, cv2.IMREAD_COLOR)"),
        ('{"data": squeezed}', '{"make_loader": lambda _, seed: squeezed.train_loader(seed)}'),
    ],
    "plan_workers": [
        (CEIL, "1\n    while prepare_s / workers > step_s:\n        workers += 1",
         "{waited:.0%} of the time", "{1 - waited:.1%} of the time training, {waited:.1%} waiting"),
        (CEIL, "int(prepare_s // step_s) + bool(prepare_s % step_s)"),
    ],
    "shuffle_stream": [
        ("    for place in rng.permutation(len(buffer)):\n        yield buffer[place]",
         "    rng.shuffle(buffer)\n    yield from buffer"),
        # The last item takes the free place, and the next one is read after the yield.
        """
def shuffle_stream(items, buffer_size, rng):
    stream = iter(items)
    buffer = [item for _, item in zip(range(buffer_size), stream)]
    while buffer:
        place = int(len(buffer) * rng.random())
        buffer[place], buffer[-1] = buffer[-1], buffer[place]
        yield buffer.pop()
        buffer.extend(item for _, item in zip(range(1), stream))
""",
    ],
    "to_batches": [
        (PIXELS, "(images[:left].astype(np.float32) / 255 - pipeline.mean) / pipeline.std",
         AXES, "torch.from_numpy(np.ascontiguousarray(np.moveaxis(images, 3, 1)))"),
        (PIXELS, f"v2.ToDtype(torch.float32, scale=True)({RAW}.permute(0, 3, 1, 2))",
         AXES, "v2.Normalize(mean.tolist(), std.tolist())(images.contiguous())"),
    ],
}  # fmt: skip
