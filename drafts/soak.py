"""Start the three modules 20 times in a row; say what is left behind."""
import os, sys, tempfile, time
sys.path.insert(0,'/root/n/tmp_20b')
import psutil
from course_utils.processes.ranks import run_ranks, ON_CPU
from lesson_code.sharding import messages, pipeline, tensor_parallel
from lesson_code.sharding.simulator import Task, simulate
from solutions import ALL
tag, times = sys.argv[1], int(sys.argv[2])
with tempfile.TemporaryDirectory() as d:
    os.chdir(d)
    sims={n: simulate(s, Task(ranks=2,batches=2 if n!='pipeline' else 8, layers=2 if n=='pipeline' else 4)) for n,s in ALL.items()}
    messages.write_programs(sims)
    for i in range(times):
        while os.path.exists('/root/n/QUIET'): time.sleep(5)
        t=time.time(); f=run_ranks(tensor_parallel,pipeline,messages,arguments={"texts":8},processes=2,environment=ON_CPU)
        gaps=[w["gap"] for w in f["tensor parallel"].values()]+[w["gap"] for w in f["pipelines"].values()]+[r["gap"] for n in ALL for r in f[n]]
        same=all([r["sent_bytes"] for r in f[n]]==sims[n].sent_bytes for n in ALL)
        bub={k: round(pipeline.find_bubble([pipeline.Work(*w) for w in v["works"]]),3) for k,v in f["pipelines"].items()}
        left=len(psutil.Process().children(recursive=True))
        print(tag,i,f"{time.time()-t:.1f}",max(gaps)<1e-6,same,left,bub,flush=True)
