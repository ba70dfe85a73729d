import sys; sys.path.insert(0,'/root/n/p19a')
import lib, build1, build2, build3, build4
from texts import TEXTS
for c in lib.CELLS:
    for k,v in TEXTS.items():
        if k in c["source"]: c["source"]=c["source"].replace(k,v.strip("\n"))
lib.write("/root/n/wt_l19a/notebooks/19_profiling.ipynb", dict(budget_s=90, headline=[dict(claim=TEXTS["HEADCLAIM"])], key="", minutes=120, outputs="", peak_mb=1, question="Where do the seconds of a step go?", seam="trainer", technique="profiling: phases, traces, rooflines, compiling, overhead", time_s=1, timing=True))

import subprocess
R=["nice","/work/main/.venv/bin/ruff"]
subprocess.run([*R,"format","-q","notebooks/19_profiling.ipynb","lesson_code/profiling"],cwd="/root/n/wt_l19a")
subprocess.run([*R,"check","notebooks/19_profiling.ipynb","lesson_code/profiling"],cwd="/root/n/wt_l19a")
