import torch; torch.set_num_threads(1)
from dataclasses import replace
from functools import partial
from lesson_code.loops_and_engines.job import *
from lesson_code.loops_and_engines.loops import *
from lesson_code.loops_and_engines.faults import *
from lesson_code.loops_and_engines.who import *
import lesson_code.loops_and_engines.loops as L
x, y = make_images(64)
small = Job(make_network, x, y)
print(trace_all(LOOPS, small).to_string())
jobs = make_photograph_jobs()
norms=[]
clip=L.clip_grad_norm_
def spy(p, m):
    n = clip(p, m); norms.append(round(n.item(),2)); return n
for lr in (0.02, 0.05, 0.1):
  for mx in (2.0,):
    for kind, job in jobs.items():
        job = replace(job, lr=lr, max_norm=mx)
        norms.clear(); L.clip_grad_norm_=spy; base = train_plain(job); L.clip_grad_norm_=clip
        print(lr, mx, kind, "loss", measure_loss(base, job), norms)
        for n, c in {**FAULTS, **OTHER_RULES}.items():
            m = change_loop(*c)(job); print("   ", n, f"{find_gap(m, base):.1e}", round(measure_loss(m, job),4))
job=replace(jobs[INCOMPLETE], optimizer=partial(torch.optim.AdamW), lr=2e-3,max_norm=0.5)
base=train_plain(job)
for n, c in {**FAULTS, **OTHER_RULES}.items():
            m = change_loop(*c)(job); print("   ", n, f"{find_gap(m, base):.1e}", round(measure_loss(m, job),4))
