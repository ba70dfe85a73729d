"""What the course's notebooks import.

`load_config` and `load_data` say what is trained on, `create_model` makes a network, `fit` trains
it with an argument for every seam, `compare` measures over paired seeds, and `claim` states what
was found. These six can be imported from here; everything else from the folder of its subject.
"""

from importlib import import_module

_HOMES = {
    "claim": "course_utils.claims",
    "compare": "course_utils.training",
    "create_model": "course_utils.models",
    "fit": "course_utils.training",
    "load_config": "course_utils.config",
    "load_data": "course_utils.data",
}

__all__ = ["claim", "compare", "create_model", "fit", "load_config", "load_data"]


def __getattr__(name: str) -> object:
    """Import a module when the first of its names is used: `course list` needs no PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
