"""Silences what other packages say on their own account."""

from __future__ import annotations

import logging
import warnings


def quiet() -> None:
    """Notices of other packages about hardware and loading say nothing that a run does not print itself."""
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("bitsandbytes", "vllm", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
