def edit(p, *pairs):
    s=open(p).read()
    for a,b in zip(pairs[::2],pairs[1::2]):
        assert s.count(a)>=1,(p,a)
        s=s.replace(a,b)
    open(p,'w').write(s)
edit('faults.py','__all__ = ["FAULTS", "OTHER_RULES", "change_loop"]','__all__ = ["FAULTS", "OTHER_RULES", "SCALED", "change_loop"]',
 'import inspect\nfrom types import FunctionType\n','import inspect\nfrom types import FunctionType\n\nfrom torch.amp import GradScaler\n',
 '# What libraries do with','''STEP = "                optimizer.step()"
SCALE = (
    "    for _ in range(job.epochs):",
    "    scaler = GradScaler('cpu')\\n    for _ in range(job.epochs):",
    BACKWARD, "scaler.scale(loss / group).backward()",
    STEP, "                scaler.step(optimizer)\\n                scaler.update()",
)  # fmt: skip
UNSCALED = f"scaler.unscale_(optimizer)\\n                {CLIP}"
SCALED = (*SCALE, CLIP, UNSCALED)  # as it is right
FAULTS["clipped before the gradient is unscaled"] = SCALE

# What libraries do with''','    names = dict(vars(plain))\n','    names = vars(plain) | {"GradScaler": GradScaler}\n')
edit('job.py','    max_norm: float = 20.0\n    lr: float = 0.02\n','    max_norm: float = 15.0\n    lr: float = 0.01\n',
'''    training the last micro-batch is left out, so that the last group has one alone.
''','''    training the last micro-batch is left out, so that the last group has one alone. It clips
    nothing, because clipping would hide by which number a loss was divided.
''','    return {FULL: job, INCOMPLETE: replace(job, inputs=images[:left], targets=targets[:left])}','    incomplete = replace(job, inputs=images[:left], targets=targets[:left], max_norm=1e6)\n    return {FULL: job, INCOMPLETE: incomplete}',
'from course_utils.training.schedules import warmup_cosine\n','',
'''        """Warm-up and cosine, to be stepped once per optimizer step."""
''','''        """Warm-up and cosine, to be stepped once per optimizer step."""
        from course_utils.training.schedules import warmup_cosine  # brings Lightning: seconds

''')
p='engines.py'; s=open(p).read()
i=s.index('    job = Job(partial(make_network, seed=seed), *make_images(64))'); j=s.index('def train_all')
s=s[:i]+'''    model, (images, targets) = make_network(seed), make_images(64)
    if dies:
        dies(model)
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(STEPS):
        loss = cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


'''+s[j:]
open(p,'w').write(s)
edit(p,'its loss afterwards.','its last loss.',
'from lesson_code.loops_and_engines.job import Job, make_images, make_network, measure_loss\nfrom lesson_code.loops_and_engines.plain import train_plain\n','from lesson_code.loops_and_engines.job import make_images, make_network\n',
'from torch import nn\nfrom torch.optim','from torch import nn\nfrom torch.nn.functional import cross_entropy\nfrom torch.optim',
'LOOPBACK = "127.0.0.1"','LOOPBACK = "127.0.0.1"\nSTEPS = 10  # of `train_seed`',
'''        start: starts a call, and returns its job.
        jobs: that are waited for at the same time.
    """

    def __init__(self, start: Callable[[Callable[[], Any]], Any], jobs: int):
        self._start, self._pool = start, ThreadPoolExecutor(jobs)
''','''        start: starts a call, and returns its job.
        jobs: that run at the same time.
        lost: what ``result()`` raises if the job's process has died; the call is started again.
    """

    def __init__(
        self, start: Callable[[Callable[[], Any]], Any], jobs: int, lost: type[Exception]
    ):
        self._start, self._lost, self._pool = start, lost, ThreadPoolExecutor(jobs)
''','''        return self._start(call).result()
''','''        try:
            return self._start(call).result()
        except self._lost:
            return self._start(call).result()
''','with JobExecutor(cluster.submit, workers) as executor:','lost = submitit.core.utils.UncompletedJobError\n        with JobExecutor(cluster.submit, workers, lost) as executor:',
'''        return ray.remote(num_cpus=1)(function).remote(*arguments, **options).future()
''','''        call = partial(function, *arguments, **options)
        return ray.remote(num_cpus=1)(_call).remote(call).future()
''','class RayExecutor(Executor):','def _call(call: Callable[[], Any]) -> Any:\n    return call()\n\n\nclass RayExecutor(Executor):',
'"dashboard_address": None}','"dashboard_address": ":0"}',
'''    environment = {"env_vars": {"OMP_NUM_THREADS": "1"}}
''','''    environment = {"env_vars": {"OMP_NUM_THREADS": "1"}}
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 lets all other programs go first
''')
edit('fastai_parts.py','combine_cos','combined_cos')
p='study_extras.py'; s=open(p).read()
s=s.replace("SEEDS = range(4)\nKILLED_SEEDS = range(8)","SEEDS = range(2)\nKILLED_SEEDS = range(4)")
i=s.index('def measure() ->'); j=s.index('if __name__')
s=s[:i]+'''def measure_part(name: str, expected: list[float]) -> Any:
    """One of `PARTS`; empty if its package is not installed."""
    if name == "fastai":
        return compare_fastai()
    if name == "wandb":
        return log_with_wandb()
    missing = describe_missing_engine(name)
    return {} if missing else measure_engine(name, expected)


def main(
    part: Annotated[list[str] | None, typer.Option(help="only these; stored others stay")] = None,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Measure; print, and keep, what was found."""
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers, too
    path = Path(__file__).with_suffix(".json")
    found = read_file(path) if part and path.is_file() else {"engines": {}}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COURSE_RUNS_DIR"] = folder
        config, data = load_small()
        start = time.perf_counter()
        expected = read_values(compare(config, data, list_variants(), seeds=SEEDS))
        alone = {"this process": {"seconds": round(time.perf_counter() - start, 1)}}
        engines = alone | {x: y for x, y in found["engines"].items() if x not in alone}
        facts = {name: found.get(name, {}) for name in ("fastai", "wandb")}
        for name in part or PARTS:
            (engines if name in ENGINES else facts)[name] = measure_part(name, expected)
            print(name, engines.get(name, facts.get(name)), flush=True)
            about = {"extras": find_versions(), "trainings": len(expected), "engines": engines}
            if save:  # so that an interrupted measurement leaves the parts that it has
                command = "python -m lesson_code.loops_and_engines.study_extras --save"
                keep(path, command, threads=1, **about, **facts)


'''+s[j:]
s=s.replace('METRIC = "val_loss"','METRIC = "val_loss"\nPARTS = (*ENGINES, "fastai", "wandb")').replace('from course_utils.training import compare\n','from course_utils.results import read_file\nfrom course_utils.training import compare\n')
s=s.replace("without a network. Everything but seconds is the same in each run. About four minutes:","without a network. Everything but seconds is the same in each run. About four minutes, and a part\nalone (``--part Ray``) leaves the others as they are:")
open(p,'w').write(s)
p='study.py'; s=open(p).read()
i=s.index('def measure(rounds'); j=s.index('if __name__')
s=s[:i]+'''def measure_gaps() -> dict[str, dict[str, float]]:
    """For each loop the largest difference of a weight from the plain loop, in both jobs."""
    jobs = make_photograph_jobs()
    plain = {kind: train_plain(job) for kind, job in jobs.items()}
    return {
        name: {kind: find_gap(loop(job), plain[kind]) for kind, job in jobs.items()}
        for name, loop in find_loops().items()
    }


def measure_times(rounds: int, batches: int) -> dict[str, Any]:
    """Microseconds of a batch of each loop, and milliseconds of a real one."""
    return {
        "rounds": rounds,
        "batches": batches,
        "real_batch_ms": round(time_real_batch(make_photograph_jobs()[FULL]), 2),
        "batch_us": measure_overhead(find_loops(), rounds, batches),
    }


def main(
    rounds: Annotated[int, typer.Option(min=2, help="each of them has all loops")] = 20,
    batches: Annotated[int, typer.Option(min=30, help="of a loop in a round")] = BATCHES,
    gaps_only: Annotated[bool, typer.Option(help="leave the stored times as they are")] = False,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Measure; print, and keep, what was found."""
    torch.set_num_threads(1)
    path, gaps = Path(__file__).with_suffix(".json"), measure_gaps()
    if gaps_only:
        stored = read_file(path)
        times = {name: stored[name] for name in ("rounds", "batches", "real_batch_ms")}
        times["batch_us"] = {row["loop"]: row["batch_us"] for row in stored["rows"]}
    else:
        times = measure_times(rounds, batches)
    rows = [
        {
            "loop": name,
            "version": name_version(name),
            "lines": count_lines(name) if name in LOOPS else count_extra_lines(name),
            "gaps": gaps[name],
            "batch_us": times["batch_us"][name],
        }
        for name in gaps
    ]
    del times["batch_us"]
    if save:
        command = f"python -m lesson_code.loops_and_engines.study --rounds {rounds} --save"
        keep(path, command, threads=1, tolerance=TOLERANCE, **times, rows=rows)
    for row in rows:
        median = sorted(row.pop("batch_us"))[times["rounds"] // 2]
        print(row, f"{median:.0f} µs")


'''+s[j:]
s=s.replace("import Job, Loop, find_gap","import FULL, Job, Loop, find_gap").replace("from course_tools.study.keep import keep\n","from course_tools.study.keep import keep\nfrom course_utils.results import read_file\n")
open(p,'w').write(s)
edit('answers.py','("if callable(value) and ", "if ", "on_ice','("if callable(value) and near", "if near", "on_ice')
