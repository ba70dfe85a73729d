import time, torch
torch.set_num_threads(1)
from lesson_code.loops_and_engines.job import *
from lesson_code.loops_and_engines.loops import *
from lesson_code.loops_and_engines.faults import *
from lesson_code.loops_and_engines.who import *
from lesson_code.loops_and_engines.overhead import *
x, y = make_images(64)
small = Job(make_network, x, y)
print(trace_all(LOOPS, small).to_string())
t=time.time(); jobs = make_photograph_jobs(); print("jobs", time.time()-t, jobs[FULL].inputs.shape, jobs[FULL].count_batches())
for kind, job in jobs.items():
    base = train_plain(job); print(kind, "loss", measure_loss(base, job))
    t=time.time(); print({n: find_gap(f(job), base) for n,f in LOOPS.items()}, time.time()-t)
    for n, c in {**FAULTS, **OTHER_RULES}.items():
        m = change_loop(*c)(job); print("   ", n, f"{find_gap(m, base):.1e}", round(measure_loss(m, job),4))
from lesson_code.loops_and_engines.study import *
for n, f in LOOPS.items():
    t=time.time(); print(n, round(time_loop(f, 300)), round(time.time()-t,2))
