import time, torch
from lesson_code.loops_and_engines.job import *
from lesson_code.loops_and_engines.loops import *
from lesson_code.loops_and_engines.extras import EXTRAS, find_versions
from dataclasses import replace
print(find_versions(), torch.__version__)
x, y = make_images(128)
job = Job(make_network, x, y)
seven = replace(job, inputs=x[:112], targets=y[:112])
odd = replace(job, inputs=x[:100], targets=y[:100])
for name, j in {"even": job, "seven": seven, "odd": odd}.items():
    base = train_plain(j)
    print(name, measure_loss(base, j))
    for n, f in EXTRAS.items():
        t=time.time()
        try:
            m = f(j)
            print("  ", n, find_gap(base, m), round(time.time()-t,2))
        except Exception as e:
            import traceback; traceback.print_exc()
