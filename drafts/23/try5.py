import time, torch, tempfile, sys
from pathlib import Path
from concurrent.futures import as_completed, BrokenExecutor
from contextlib import suppress
from functools import partial
import os
from lesson_code.loops_and_engines.engines import *
from course_utils.training import compare

def train_all(jobs, train, open_pool):
    kept, starts = {}, 0
    while missing := [job for job in jobs if job not in kept]:
        starts += 1
        with suppress(BrokenExecutor), open_pool() as pool:
            futures = {pool.submit(train, job): job for job in missing}
            for future in as_completed(futures):
                kept[futures[future]] = future.result()
    return kept, starts

if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ["COURSE_RUNS_DIR"] = tempfile.mkdtemp()
    config, data = load_small()
    seeds = range(2)
    quick = sys.argv[1] == "q"
    t = time.time(); base = None if quick else compare(config, data, list_variants(), seeds=seeds); print("here", time.time()-t)
    want = None if quick else base.values("AdamW", "val_loss")
    for name in sys.argv[2:]:
        t = time.time()
        with tempfile.TemporaryDirectory() as folder:
            dies = DieOnce(Path(folder, "m"))
            arms = list_variants()
            if name in ("Dask", "Ray"): arms["AdamW"]["model_transform"] = dies
            if not quick:
              with open_engine(name) as ex:
                    found = compare(config, data, arms, seeds=seeds, executor=ex)
              print(name, time.time()-t, found.values("AdamW", "val_loss"), (found.values("AdamW", "val_loss")==want).all(), dies.marker.exists())
            t = time.time()
            dies = DieOnce(Path(folder, "m2"))
            kept, starts = train_all(range(4), partial(train_seed, log=Path(folder, "log"), dies=dies), partial(open_engine, name))
            print("  train_all", kept, starts, Path(folder, "log").read_text().split(), time.time()-t)
