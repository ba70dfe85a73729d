"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

PLAN = """
def plan_workers(prepare_s, step_s, cores):
    workers = {workers}
    if {few}:
        waited = {waited}
        {tell}
    return {value}
"""


SHUFFLE = """
def shuffle_stream(items, buffer_size, rng):
    buffer = {before}
    for item in {items}:
        {each}
        if {full}:
            place = {place}
            {give}
    {end}
"""


# the function of the lesson that has five faults, with some of them put right
BATCHES = """
def to_batches(pipeline, num_images, batch_size, train):
    mean, std = torch.from_numpy(pipeline.mean), torch.from_numpy(pipeline.std)
    {before}
    for start in {starts}:
        images, labels = {run}
        left = {left}
        if {drop}:
            {dropped}
        pixels = torch.from_numpy(images[:left])
        images = {pixels}
        images = {axes}
        targets = {targets}
        {late}
        yield {value}
    {end}
"""


RIGHT_PLAN = {
    "workers": "math.ceil(prepare_s / step_s)",
    "few": "workers > cores - 1",
    "waited": "1 - step_s / (prepare_s / (cores - 1))",
    "tell": "raise ValueError(f'waits {waited:.0%} of the time')",
    "value": "workers",
}


RIGHT_SHUFFLE = {
    "before": "[]",
    "items": "items",
    "each": "buffer.append(item)",
    "full": "len(buffer) == buffer_size",
    "place": "rng.integers(len(buffer))",
    "give": "yield buffer.pop(place)",
    "end": "rng.shuffle(buffer); yield from buffer",
}


RIGHT_BATCHES = {
    "before": "pass",
    "starts": "range(0, num_images, batch_size)",
    "run": "pipeline.run()",
    "left": "min(batch_size, num_images - start)",
    "drop": "train and left < batch_size",
    "dropped": "break",
    "pixels": "(pixels / 255 - mean) / std",
    "axes": "images.permute(0, 3, 1, 2).contiguous()",
    "targets": "torch.from_numpy(labels[:left, 0]).clone()",
    "late": "pass",
    "value": "images, targets",
    "end": "pass",
}


FLOOR = "range(0, num_images // batch_size * batch_size, batch_size)"


def _plan(**changed: str) -> str:
    return PLAN.format(**RIGHT_PLAN | changed)


def _shuffle(**changed: str) -> str:
    return SHUFFLE.format(**RIGHT_SHUFFLE | changed)


def _batches(**changed: str) -> str:
    return BATCHES.format(**RIGHT_BATCHES | changed)


NOT_NORMAL = r"the level \d+ becomes .*, \(x / 255 - mean\) / std is"


WRONG_ANSWERS = {
    "measure_quality": plant_experiments("measure_quality"),
    "plan_workers": [
        (_plan(workers="round(prepare_s / step_s)"), "with 0 workers the main process"),
        (_plan(workers="max(1, round(prepare_s / step_s))"), "stall with 2, 3 workers are needed"),
        (_plan(workers="int(prepare_s // step_s)"), "with 0 workers the main process"),
        (_plan(workers="max(1, int(prepare_s / step_s))"), "stall with 2, 3 workers are needed"),
        (_plan(workers="int(prepare_s / step_s) + 1"), "3 workers are enough, 4 are too many"),
        (_plan(workers="math.ceil((prepare_s + step_s) / step_s)"), "1 worker is enough, 2 are"),
        (_plan(workers="math.ceil(step_s / prepare_s)"), "1 worker is enough, 3 are too many"),
        (_plan(workers="max(2, math.ceil(prepare_s / step_s))"), "1 worker is enough, 2 are"),
        (_plan(workers="cores - 1"), "1 worker is enough, 7 are too many"),
        (_plan(value="workers + 1"), "1 worker is enough, 2 are too many"),
        (_plan(few="workers > cores"), "3 workers are too few, so raise ValueError"),
        (_plan(few="workers >= cores - 1"), "no ValueError, 1 of 1 worker is enough"),
        (_plan(few="False"), "3 workers are too few, so raise ValueError"),
        (_plan(few="False", value="min(workers, cores - 1)"), "too few, so raise ValueError"),
        (_plan(workers="-(-prepare_s // step_s)"), "is whole, not 1.0"),
        (_plan(value="str(workers)"), "is whole, not '1'"),
        (_plan(value="None"), "is whole, not None"),
        (_plan(tell="return None"), "3 workers are too few, so raise ValueError"),
        (_plan(tell="raise ValueError('too few cores')"), "names no percentage"),
        (_plan(tell="raise ValueError(f'waits {waited}')"), "names no percentage"),
        (_plan(tell="raise RuntimeError(f'waits {waited:.0%}')"), "stopped with RuntimeError"),
        (_plan(waited="step_s / (prepare_s / (cores - 1))"), "25% of the time is waited, not 75%"),
        (_plan(waited="1 - step_s / (prepare_s / cores)"), "25% of the time is waited, not 0%"),
        (_plan(waited="1 - step_s / prepare_s"), "25% of the time is waited, not 75%"),
        (_plan(waited="prepare_s / (cores - 1) / step_s - 1"), "25% of the time is waited, not 33"),
        (_plan(waited="prepare_s / (cores - 1) - step_s"), "25% of the time is waited, not 4%"),
    ],
    "shuffle_stream": [
        ("def shuffle_stream(items, buffer_size, rng):\n    yield from items", "1 items are read"),
        ("def shuffle_stream(items, buffer_size, rng):\n    return list(items)",
         "20 items are read before the first one comes"),
        (_shuffle(items="rng.permutation(list(items))"), "20 items are read before the first"),
        (_shuffle(full="len(buffer) > 2 * buffer_size"), "11 items are read before the first"),
        (_shuffle(full="len(buffer) > buffer_size"), "A buffer of 1 cannot change the order"),
        (_shuffle(full="len(buffer) == buffer_size and rng.random() < 0.5"), "items are read"),
        (_shuffle(give="yield from rng.permutation(buffer); buffer.clear()"), "in chunks"),
        (_shuffle(end="pass"), "4 never come"),
        (_shuffle(end="yield from buffer"), "comes in no random order"),
        (_shuffle(end="yield from sorted(buffer)"), "comes in no random order"),
        (_shuffle(end="yield from [*buffer, *buffer]"), "more items come than there are"),
        (_shuffle(place="np.random.randint(len(buffer))"), "The same rng gives two orders"),
        (_shuffle(place="0", end="yield from buffer"), "Every rng gives the same order"),
        (_shuffle(place="0"), "Place 1 of the buffer is never drawn"),
        (_shuffle(place="-1"), "Place 0 of the buffer is never drawn"),
        (_shuffle(place="rng.integers(max(1, len(buffer) - 1))"), "Place 3 of the buffer is nev"),
        (_shuffle(place="min(rng.integers(len(buffer), size=2))"), "not equally likely"),
        (_shuffle(give="yield str(buffer.pop(place))"), "an item comes twice, or is none of them"),
        (_shuffle(place="rng.integers(len(buffer) + 1)"), "stopped with IndexError"),
    ],
    "to_batches": [
        (_batches(starts=FLOOR, pixels="(pixels - mean) / std", axes="images.reshape(-1, 3, 5, 7)",
                  targets="torch.from_numpy(labels)[:, 0]"), "The pixels are mixed"),
        (_batches(pixels="pixels.float()"), NOT_NORMAL),
        (_batches(pixels="pixels / 255 - mean"), NOT_NORMAL),
        (_batches(pixels="(pixels / 255 - mean) * std"), NOT_NORMAL),
        (_batches(pixels="(pixels / 256 - mean) / std"), NOT_NORMAL),
        (_batches(pixels="(pixels // 255 - mean) / std"), NOT_NORMAL),
        (_batches(pixels="(pixels / 255 - std) / mean"), NOT_NORMAL),
        (_batches(pixels="((pixels / 255 - mean) / std).flip(3)"), NOT_NORMAL),
        (_batches(before="pipeline.mean *= 1.5"), "pipeline.mean and pipeline.std have changed"),
        (_batches(pixels="pixels / 255; images -= mean[:, None, None]"), "stopped with Runtime"),
        (_batches(axes="images"), "4, 5, 7, 3., not .torch.float32, 4, 3, 5, 7."),
        (_batches(axes="images.permute(0, 3, 2, 1).contiguous()"), "4, 3, 7, 5., not"),
        (_batches(axes="images.permute(0, 3, 1, 2)"), "permute and transpose move no memory"),
        # astype and torch.tensor keep the strides of NumPy's transpose
        (_batches(pixels="(pixels / 255 - mean) / std; images = images.numpy()",
                  axes="torch.tensor(images.transpose(0, 3, 1, 2).astype(np.float32))"),
         "permute and transpose move no memory"),
        (_batches(axes="images.permute(0, 3, 1, 2).double()"), "images are .torch.float64"),
        (_batches(axes="images.permute(0, 3, 1, 2).half()"), "images are .torch.float16"),
        (_batches(before="out = torch.empty(batch_size, 3, 5, 7)",
                  late="images = out[:left].copy_(images)"), "Images change with the next run"),
        (_batches(targets="torch.from_numpy(labels[:left])"), "targets are .torch.int64, 4, 1."),
        (_batches(targets="torch.tensor(labels[:left])"), "targets are .torch.int64, 4, 1."),
        (_batches(targets="torch.from_numpy(labels[:left, 0])"), "Targets change with the next"),
        (_batches(targets="torch.from_numpy(labels).flatten()[:left]"), "Targets change with the"),
        (_batches(targets="torch.tensor(labels[:left]).squeeze()"), "int64,., not"),
        (_batches(targets="torch.tensor(labels[:left, 0]).int()"), "targets are .torch.int32"),
        (_batches(targets="torch.tensor(labels[:left, 0]).float()"), "targets are .torch.float32"),
        (_batches(targets="torch.tensor(labels[:, 0])"), "int64, 4., not .torch.int64, 2."),
        (_batches(targets="torch.tensor(labels[:left, 0]).flip(0)"), "not the labels of the"),
        (_batches(left="batch_size"), "4, 3, 5, 7., not .torch.float32, 2, 3, 5, 7."),
        (_batches(drop="False"), "train=True, 10 .* 2 batches are due, and more come"),
        (_batches(drop="left < batch_size"), "train=False, 10 .* 3 batches are due, 2 come"),
        (_batches(drop="not train and left < batch_size"), "train=False, 10 .* are due, 2 come"),
        (_batches(drop="train and start + batch_size >= num_images"),
         "train=True, 8 .* 2 batches are due, 1 come"),
        (_batches(starts=FLOOR), "train=False, 10 .* 3 batches are due, 2 come"),
        (_batches(starts="range(0, num_images + 1, batch_size)"), "8 .* are due, and more come"),
        (_batches(starts=f"{FLOOR} if train else {RIGHT_BATCHES['starts']}"),
         "train=True, 10 .* the pipeline has 3 runs, not 2"),
        (_batches(end="pipeline.run()"), "train=False, 10 .* has 3 runs, not 4"),
        (_batches(end="if train: pipeline.run()"), "train=True, 10 .* has 3 runs, not 4"),
        (_batches(starts=f"{FLOOR} if train else {RIGHT_BATCHES['starts']}",
                  end="if train: pipeline.run()"), "train=True, 8 .* has 2 runs, not 3"),
        (_batches(before="pipeline.run()"), "A later run comes before the yield"),
        (_batches(before="ahead = pipeline.run()", run="ahead; ahead = pipeline.run()"),
         "A later run comes before the yield"),
        (_batches(before="kept = []", late="kept.append((images, targets)); continue",
                  end="yield from kept"), "A later run comes before the yield"),
        (_batches(value="images"), "3, 5, 7., not .torch.float32, 4, 3, 5, 7."),
        (_batches(value="targets, images"), "images are .torch.int64"),
        (_batches(value="images.numpy(), targets.numpy()"), "images are .dtype"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "measure_quality": [
        # one training after the other, at other seeds; OpenCV's encoder
        """
import cv2

def measure_quality(config, data):
    def squeeze(image):
        _, code = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 30])
        return cv2.imdecode(code, cv2.IMREAD_COLOR)

    images = np.stack([squeeze(image) for image in data.train.images])
    squeezed = replace(data, train=type(data.train)(images, data.train.targets))
    columns = []
    for source in (data, squeezed):
        runs = [fit(config, source, seed=seed) for seed in (5, 6, 7)]
        columns.append([run.metrics["val_accuracy"] for run in runs])
    differences = np.subtract(columns[1], columns[0])
    half = 4.302652729911275 * differences.std(ddof=1) / np.sqrt(3)
    return *columns, differences.mean() - half, differences.mean() + half
""",
        # a loader of squeezed images
        """
def measure_quality(config, data):
    pixels = torch.from_numpy(data.train.images).permute(0, 3, 1, 2)
    squeezed = decode_jpeg([encode_jpeg(image, 25) for image in pixels])
    images = torch.stack(squeezed).permute(0, 2, 3, 1).numpy()

    def load(_, seed):
        return replace(data, train=replace(data.train, images=images)).train_loader(seed)

    found = compare(config, data, {"as is": {}, "25": {"make_loader": load}}, seeds=range(4))
    gap = found.difference("25")
    return [found.values("as is"), found.values("25"), gap.low, gap.high]
""",
    ],
    "plan_workers": [
        """
def plan_workers(prepare_s, step_s, cores):
    for workers in range(1, cores):
        if prepare_s / workers <= step_s:
            return workers
    share = step_s * (cores - 1) / prepare_s
    raise ValueError(f'{100 * share:.1f} % trained, {100 - 100 * share:.1f} % waited')
""",
        # whole steps that go into one batch's time, and one more worker for a rest
        """
def plan_workers(prepare_s, step_s, cores):
    whole, rest = divmod(prepare_s, step_s)
    needed = int(whole) + bool(rest)
    if needed >= cores:
        interval = prepare_s / (cores - 1)
        raise ValueError(f"training waits for {100 * (interval - step_s) / interval}% of the time")
    return needed
""",
    ],
    "shuffle_stream": [
        # the same with pop; the buffer may be longer than the stream
        _shuffle(),
        # numbers drawn in advance, and the last item takes the free place
        """
def shuffle_stream(items, buffer_size, rng):
    stream = iter(items)
    buffer = list(itertools.islice(stream, buffer_size))
    while buffer:
        place = int(len(buffer) * rng.random())
        buffer[place], buffer[-1] = buffer[-1], buffer[place]
        yield buffer.pop()
        buffer.extend(itertools.islice(stream, 1))
""".replace("def ", "import itertools\n\ndef ", 1),
    ],
    "to_batches": [
        # NumPy all the way
        """
def to_batches(pipeline, num_images, batch_size, train):
    whole, rest = divmod(num_images, batch_size)
    for number in range(whole + bool(rest)):
        x, y = map(np.array, pipeline.run())
        if number == whole:
            if train:
                continue
            x, y = x[:rest], y[:rest]
        x = (x.astype(np.float32) - 255 * pipeline.mean) / (255 * pipeline.std)
        x = np.ascontiguousarray(np.moveaxis(x, 3, 1))
        yield [torch.tensor(x), torch.tensor(y).flatten()]
""",
        # torchvision's transforms, counting the images that are left
        """
def to_batches(pipeline, num_images, batch_size, train):
    normalise = v2.Compose([
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(pipeline.mean.tolist(), pipeline.std.tolist()),
    ])
    left = num_images
    while left > 0:
        images, labels = pipeline.run()
        if left >= batch_size or not train:
            images = torch.tensor(images).permute(0, 3, 1, 2).contiguous()
            targets = torch.tensor(labels).squeeze(1)
            yield normalise(images)[:left], targets[:left]
        left -= batch_size
""",
    ],
}
