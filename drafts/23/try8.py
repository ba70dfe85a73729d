import torch; torch.set_num_threads(1)
from lesson_code.loops_and_engines.test_loops_and_engines import make_job
from lesson_code.loops_and_engines.job import *
from lesson_code.loops_and_engines.faults import *
import lesson_code.loops_and_engines.plain as P
norms=[]; clip=P.clip_grad_norm_
def spy(p, m):
    n = clip(p, m); norms.append(round(n.item(),2)); return n
for mx in (0.3,0.35,.4,0.45,.5):
    job = make_job(max_norm=mx); norms.clear(); P.clip_grad_norm_=spy; base = P.train_plain(job); P.clip_grad_norm_=clip
    print(mx, norms, {n[:14]: f"{find_gap(change_loop(*c)(job), base):.1e}" for n,c in FAULTS.items()})
