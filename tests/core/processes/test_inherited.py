import sys

import pytest

from course_utils.processes.inherited import clean_environment, forget_cluster

SLURM = {"SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_JOB_NAME": "spawner-jupyterhub"}


@pytest.mark.parametrize(
    "inherited",
    [
        {"MPLBACKEND": "Agg"},
        {"MPLBACKEND": "module://backend_interagg"},
        {"MPLBACKEND": "module://matplotlib_inline.backend_inline"},  # of a kernel: for torchrun
        {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
        {"TORCHELASTIC_RUN_ID": "x", "ROLE_RANK": "0", "GROUP_RANK": "0", "NODE_RANK": "1"},
        SLURM | {"SLURMD_NODENAME": "node7", "SRUN_DEBUG": "3"},
        {"PMI_RANK": "0", "PMIX_RANK": "1", "PALS_RANKID": "3"},
        {"OMPI_COMM_WORLD_SIZE": "4", "MV2_COMM_WORLD_RANK": "1", "FLUX_TASK_RANK": "0"},
        {"LSB_JOBID": "1", "LSB_DJOB_RANKFILE": "f", "JSM_NAMESPACE_SIZE": "2"},
        {"PBS_JOBID": "1", "PBS_NODEFILE": "f"},
        {"PYTHONOPTIMIZE": "1"},
        {"PYTHONSTARTUP": "/home/kim/.pythonrc", "PYTHONINSPECT": "1", "PYTHONSAFEPATH": "1"},
    ],
    ids=lambda inherited: next(iter(inherited)),
)
def test_what_belongs_to_another_job_or_shell_is_not_inherited(inherited):
    assert clean_environment(inherited) == {}


def test_what_a_person_may_have_set_for_the_lessons_stays():
    own = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "OMP_NUM_THREADS": "4",
        "GLOO_SOCKET_IFNAME": "lo",
        "MPLCONFIGDIR": "/tmp/m",
        "PYTHONPATH": "/here",
        "PYTHONHASHSEED": "0",
        "COURSE_PROFILE": "smoke",
        "HTTP_PROXY": "http://proxy",
    }
    assert clean_environment(own) == own
    given = SLURM.copy()
    clean_environment(given)
    assert given == SLURM, "it is a copy that is cleaned"


def test_only_a_kernel_forgets_the_cluster(monkeypatch):
    """A script may be a rank that `srun` has started; a kernel never is one."""
    variables = SLURM | {"RANK": "1", "HOME": "/home/kim"}
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    forget_cluster(variables)
    assert variables == SLURM | {"RANK": "1", "HOME": "/home/kim"}
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    forget_cluster(variables)
    assert variables == {"RANK": "1", "HOME": "/home/kim"}
