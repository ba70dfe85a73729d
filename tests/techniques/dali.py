"""DALI: the training images are read from JPEG files."""

import tempfile
from pathlib import Path

import torch

from course_utils.data.dali import DaliLoader, has_dali
from course_utils.data.jpegs import write_jpegs

MISSING = "" if has_dali() else "DALI is not installed: no training combines it with the others"


class ReadByDali:
    """The data seam: the training images as JPEG files, read by DALI; keeps what it delivers.

    In memory the channels of a pixel stand together, as in the default loader's batches: without,
    bf16 convolutions make all these trainings on a CPU three times as long.
    """

    def __init__(self, data, seed):
        self.folder = tempfile.TemporaryDirectory()
        files = write_jpegs(data.train, Path(self.folder.name))
        self.loader = DaliLoader(files, data.mean, data.std, data.batch_size, seed=seed)
        self.delivered = []

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for images, targets in self.loader:
            batch = images.contiguous(memory_format=torch.channels_last), targets
            self.delivered.append(batch)
            yield batch


SEAM = {"make_loader": ReadByDali}


def invariant(record):
    """The first that changes a batch, or the loss, gets DALI's batches: every image once."""
    images, targets = (list(part) for part in zip(*record.loader.delivered, strict=True))
    assert sorted(torch.cat(targets).tolist()) == sorted(record.data.train.targets)
    different = {image.sum().item() for batch in images for image in batch}
    assert len(different) == len(record.data.train)
    for name in list(record.batch_transforms)[:1]:
        for batch, ((before, _), _) in zip(images, record.batches[name], strict=True):
            assert torch.equal(batch, before)
    if not record.batch_transforms:
        for batch, (_, used, _) in zip(targets, record.losses, strict=True):
            assert torch.equal(batch, used)


class RepeatABatch(ReadByDali):
    """In place of the last one: what a pipeline does that fills up its last batch."""

    def __iter__(self):
        batches = list(super().__iter__())
        self.delivered[-1] = batches[0]
        yield from self.delivered


FAULTS = [("make_loader", RepeatABatch)]


# Planted answers of the lesson's exercises.
PLAN = """
def plan_workers(prepare_s, step_s, cores):
    workers = {workers}
    if {few}:
        waited = {waited}
        {tell}
    return {value}
"""

# a semaphore counts the free places of a queue without limit
PREFETCH = """
def prefetch(batches, depth):
    ready, free, stop = queue.Queue({room}), threading.Semaphore({places}), threading.Event()

    def prepare():
        try:
            source = iter({source})
            while {go_on}:
                ready.put({pair})
        except StopIteration:
            {end}
        except Exception as error:
            {error}

    thread = threading.Thread(target=prepare, daemon=True)
    thread.start()
    try:
        while {more}:
            {taken}
            yield item[1]
            {used}
        {last}
    finally:
        {close}
"""

# without semaphore: a queue of limited room, from which closing must free the thread
QUEUE = """
def prefetch(batches, depth):
    ready, stop, errors, END = queue.{queue}({room}), threading.Event(), [], {mark}

    def put(item):
        {put}

    def prepare():
        try:
            for batch in {source}:
                if stop.is_set():
                    return
                {each}
            {end}
        except Exception as error:
            {error}

    thread = threading.Thread(target=prepare)
    thread.start()
    {start}
    try:
        while {more}:
            {check}
            item = {take}
            if {is_end}:
                break
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        {close}
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
RIGHT_PREFETCH = {
    "room": "",
    "places": "depth",
    "source": "batches",
    "go_on": "free.acquire() and not stop.is_set()",
    "pair": "('batch', next(source))",
    "end": "ready.put(('end', None))",
    "error": "ready.put(('error', error))",
    "more": "(item := ready.get())[0] == 'batch'",
    "taken": "free.release()",
    "used": "pass",
    "last": "if item[0] == 'error': raise item[1]",
    "close": "stop.set(); free.release()",
}
RIGHT_QUEUE = {
    "queue": "Queue",
    "room": "depth",
    "mark": "object()",
    "put": """while not stop.is_set():
            try:
                return ready.put(item, timeout=0.02)
            except queue.Full:
                pass""",
    "source": "batches",
    "each": "put(batch)",
    "end": "put(END)",
    "error": "put(error)",
    "start": "pass",
    "more": "True",
    "check": "pass",
    "take": "ready.get()",
    "is_end": "item is END",
    "close": "stop.set(); thread.join()",
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


def _prefetch(**changed: str) -> str:
    return PREFETCH.format(**RIGHT_PREFETCH | changed)


def _queue(**changed: str) -> str:
    return QUEUE.format(**RIGHT_QUEUE | changed)


def _batches(**changed: str) -> str:
    return BATCHES.format(**RIGHT_BATCHES | changed)


NOT_NORMAL = r"the level \d+ becomes .*, \(x / 255 - mean\) / std is"
WRONG_ANSWERS = {
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
    "prefetch": [
        ("def prefetch(batches, depth):\n    yield from batches", "by the thread that asks"),
        ("def prefetch(batches, depth):\n    yield from list(batches)", "by the thread that asks"),
        ("def prefetch(batches, depth):\n    return list(batches)", "'list' object is not an iter"),
        ("def prefetch(batches, depth):\n    return iter(batches)", "by the thread that asks"),
        (_prefetch(source="list(batches)"), "depth=1, and more than 2 are begun ahead"),
        (_prefetch(places="9"), "depth=1, and more than 2 are begun ahead"),
        (_prefetch(places="2 * depth + 1"), "depth=1, and more than 2 are begun ahead"),
        (_prefetch(taken="free.release(2)"), "depth=1, and more than 2 are begun ahead"),
        (_prefetch(go_on="not stop.is_set()"), "depth=1, and more than 2 are begun ahead"),
        (_prefetch(places="1"), "depth=4, batch 1 in use: 1 begun ahead"),
        (_prefetch(taken="pass", used="free.release()"), "depth=1, batch 1 in use: 0 begun ahead"),
        (_prefetch(end="pass"), "waits for ever after 3 of 3 batches"),
        (_prefetch(error="ready.put(('end', None))"), "exception of the source is lost"),
        (_prefetch(last="if item[0] == 'error': raise RuntimeError('failed') from item[1]"),
         "The batches raise OSError, and RuntimeError comes out"),
        (_prefetch(close="stop.set()"), "a thread is left behind"),
        (_prefetch(close="free.release(99)"), "the thread goes on"),
        (_prefetch(pair="('batch', str(next(source)))"), "Batch 1 is not the one that is due"),
        (_prefetch(used="yield item[1]"), "Batch 2 is not the one that is due"),
        # the call starts the thread, not the first next
        (_prefetch().replace("    try:\n        wh", "    def stream():\n     try:\n        wh")
         .replace("    finally", "     finally") + "    return stream()\n",
         "before the first batch is asked for"),
        (_queue(queue="LifoQueue", mark="None", is_end="not thread.is_alive() and ready.empty()"),
         r"Batch \d is not the one that is due"),
        (_queue(room="0"), "depth=1, and more than 2 are begun ahead"),
        (_queue(room="depth - 1"), "depth=1, and more than 2 are begun ahead"),
        (_queue(room="depth + 1"), "depth=1, and more than 2 are begun ahead"),
        (_queue(mark="None"), "The stream ends at a batch that is None"),
        (_queue(mark="None", is_end="item == END"), "Compare a batch by `is`"),
        (_queue(mark="'end of data'", is_end="item == END"), "Compare a batch by `is`"),
        (_queue(is_end="not item"), "Compare a batch by `is`"),
        (_queue(is_end="item is not None and not item"), "Compare a batch by `is`"),
        (_queue(is_end="item is END or isinstance(item, str)"), "Only 6 of 8 batches come"),
        (_queue(), "Batch 2 is itself an exception object"),
        (_queue(each="batch is not None and put(batch)"), "The stream ends at a batch that"),
        (_queue(more="thread.is_alive()"), r"Only \d of \d batches come"),
        (_queue(more="not ready.empty()"), r"Only \d of \d batches come"),
        (_queue(error="errors.append(error); put(END)", check="if errors: raise errors[0]"),
         "An error overtakes batch 2"),
        (_queue(put="ready.put(item)"), "close.. never returns"),
        (_queue(end="ready.put(END)", close="stop.set()"), "waits to hand over the end"),
        # as many threads as batches ahead
        ("def prefetch(batches, depth):\n"
         "    source, ready = iter(batches), queue.Queue(depth)\n"
         "    def work():\n"
         "        try:\n"
         "            while True:\n"
         "                ready.put((next(source), None))\n"
         "        except Exception as error:\n"
         "            ready.put((None, error))\n"
         "    for _ in range(depth):\n"
         "        threading.Thread(target=work).start()\n"
         "    while True:\n"
         "        batch, error = ready.get()\n"
         "        if isinstance(error, StopIteration):\n"
         "            return\n"
         "        if error:\n"
         "            raise error\n"
         "        yield batch", "already executing"),
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
    "prefetch": [
        # a queue with limited room; the thread looks now and then whether it should stop
        """
def prefetch(batches, depth):
    ready, stop = queue.Queue(depth), threading.Event()

    def hand_over(*pair):
        while not stop.is_set():
            try:
                return ready.put(pair, timeout=0.02)
            except queue.Full:
                continue

    def prepare():
        try:
            for batch in batches:
                hand_over(batch, None)
                if stop.is_set():
                    return
            hand_over(None, StopIteration())
        except Exception as error:
            hand_over(None, error)

    thread = threading.Thread(target=prepare)
    thread.start()
    try:
        while True:
            batch, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield batch
    finally:
        stop.set()
        thread.join()
""",
        # a pool of one thread, which is given as many orders as there may be batches ahead
        """
from collections import deque
from concurrent.futures import ThreadPoolExecutor

def prefetch(batches, depth):
    source, end = iter(batches), object()
    pool = ThreadPoolExecutor(max_workers=1)
    orders = deque(pool.submit(next, source, end) for _ in range(depth))
    try:
        while True:
            orders.append(pool.submit(next, source, end))
            batch = orders.popleft().result()
            if batch is end:
                return
            yield batch
    finally:
        pool.shutdown(cancel_futures=True)
""",
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
