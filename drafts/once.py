"""one execution of a kind in a folder of its own"""
import os, sys, tempfile, time
from pathlib import Path
from course_utils.errors import CourseError
from course_utils.processes.ranks import ON_CPU, run_ranks
from lesson_code.sharding import checkpoints, nodes, trainer_checkpoints
import torch
def main():
    kind = sys.argv[1]; t=time.time()
    with tempfile.TemporaryDirectory() as d:
        os.chdir(d)
        if kind == "checkpoints":
            os.mkdir("saved")
            try: run_ranks(checkpoints, arguments={"folder":"saved","die_at":15}, environment=ON_CPU); raise SystemExit("nobody died")
            except CourseError as e: assert "rank 1 was killed (SIGKILL" in str(e), e
            f = run_ranks(checkpoints, trainer_checkpoints, arguments={"folder":"saved"}, processes=3, environment=ON_CPU)
            assert f["begun at"] == 10
            assert checkpoints.find_gap(f["loaded"], torch.load("saved/whole_000010.pt"))==0
            assert checkpoints.find_gap(torch.load("saved/whole_000020.pt"), checkpoints.run_undisturbed())<1e-12
            assert torch.equal(f["trainer, at once"], f["trainer, resumed"])
        elif kind == "nodes":
            f = run_ranks(nodes, processes=1, nodes=2, static=True, environment=ON_CPU)
            assert f["nodes"]==[0,1] and checkpoints.find_gap(f["trained"], checkpoints.run_undisturbed(nodes.STEPS))<1e-12
        elif kind == "dask":
            f = nodes.run_by_dask(nodes.train_few)
            assert checkpoints.find_gap(f[0], checkpoints.run_undisturbed(nodes.STEPS))<1e-12
        elif kind == "deepspeed":
            from lesson_code.sharding import deepspeed_extra as d2
            f = d2.run(); w=f["ways"]
            assert all(w[f"ZeRO {s}"][r]["losses"]==w["DDP"][r]["losses"] for s in (1,2) for r in (0,1))
        os.chdir("/")
    print(kind, "ok", f"{time.time()-t:.0f} s", flush=True)
if __name__ == "__main__": main()
