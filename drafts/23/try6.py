import torch; torch.set_num_threads(1)
from dataclasses import replace
from lesson_code.loops_and_engines.job import *
from lesson_code.loops_and_engines.faults import *
import lesson_code.loops_and_engines.plain as P
jobs = make_photograph_jobs(16)
norms=[]
clip=P.clip_grad_norm_
def spy(p, m):
    n = clip(p, m); norms.append(round(n.item(),2)); return n
for mx, lr in ((15.,.01),):
    job = replace(jobs[FULL], max_norm=mx, lr=lr)
    norms.clear(); P.clip_grad_norm_=spy; base = P.train_plain(job); P.clip_grad_norm_=clip
    print(mx, measure_loss(base, job), norms)
    for n, c in {**FAULTS}.items():
        m = change_loop(*c)(job); print("   ", n, f"{find_gap(m, base):.1e}", round(measure_loss(m, job),4))
    print(find_gap(change_loop(*SCALED)(job), base))
