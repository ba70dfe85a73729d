import sys, time, tempfile, os
import torch
from lesson_code.loops_and_engines.study_extras import measure_engine, read_values, SEEDS
from lesson_code.loops_and_engines.engines import *
from functools import partial
from pathlib import Path
if __name__ == "__main__":
    torch.set_num_threads(1)
    name = sys.argv[1]
    t=time.time()
    with tempfile.TemporaryDirectory() as folder:
        log=Path(folder,"log"); dies = DieOnce(Path(folder,"d")) if len(sys.argv)>2 else None
        print(train_all(range(3), partial(train_seed, log=log, dies=dies), partial(open_engine, name)), time.time()-t)
