import time, torch
from lesson_code.loops_and_engines.job import *
from lesson_code.loops_and_engines.loops import *
from dataclasses import replace
x, y = make_images(128)
job = Job(make_network, x, y)
odd = replace(job, inputs=x[:100], targets=y[:100])  # 7 batches, last of 4
seven = replace(job, inputs=x[:112], targets=y[:112])
for name, j in {"even": job, "seven": seven, "odd": odd}.items():
    base = train_plain(j)
    print(name, measure_loss(base, j))
    for n, f in LOOPS.items():
        t=time.time()
        try:
            m = f(j)
            print("  ", n, find_gap(base, m), round(time.time()-t,2), count_lines(n))
        except Exception as e:
            import traceback; traceback.print_exc()
