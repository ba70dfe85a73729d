"""What processes that the course starts inherit: kernels, torchrun, JupyterLab, trainings."""

import sys
from collections.abc import Mapping, MutableMapping

__all__ = ["clean_environment", "forget_cluster"]

# The job that this process runs in. Lightning and PyTorch would take the new process for one of
# the job's ranks: Lightning reads SLURM's and LSF's variables, MPI those of its own launchers.
CLUSTER_PREFIXES = (
    "SLURM",  # also SLURMD_NODENAME
    "SRUN_",
    "PMI_",
    "PMIX_",
    "PALS_",
    "OMPI_",
    "MV2_",
    "MPI_LOCAL",
    "JSM_",
    "LSB_",
    "PBS_",
    "FLUX_",
)
# A rank of a training, as torchrun and Lightning tell it to the processes that they start.
RANK_PREFIXES = ("TORCHELASTIC_", "ROLE_")
RANK_NAMES = (
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "GROUP_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
OTHER_NAMES = (
    "MPLBACKEND",  # a kernel stores figures through its own backend, if it is not told another
    "PYTHONOPTIMIZE",  # asserts would not run, and a lesson would pass without them
    "PYTHONSTARTUP",  # IPython would run the person's file in every kernel
    "PYTHONINSPECT",  # Python would go on after its script, and wait for input
    "PYTHONSAFEPATH",  # a script would not find the modules that lie beside it
)


def _is_of_cluster(name: str) -> bool:
    return name.startswith(CLUSTER_PREFIXES)


def _is_unwanted(name: str) -> bool:
    is_of_rank = name in RANK_NAMES or name.startswith(RANK_PREFIXES)
    return _is_of_cluster(name) or is_of_rank or name in OTHER_NAMES


def clean_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """``variables`` without those that belong to another job, or to the person's own shell.

    What is removed, and why, stands at the lists above. Everything else stays, such as devices,
    proxies, network interfaces and numbers of threads.
    """
    return {name: value for name, value in variables.items() if not _is_unwanted(name)}


def forget_cluster(variables: MutableMapping[str, str]) -> None:
    """Remove the cluster's variables if this process is a Jupyter kernel, which is never a rank.

    JupyterHub starts kernels inside a job of SLURM, and what such a kernel forks or spawns inherits
    its variables. A script keeps them, because ``srun`` may have started it as a rank.
    """
    if "ipykernel" in sys.modules:
        for name in filter(_is_of_cluster, list(variables)):
            del variables[name]
