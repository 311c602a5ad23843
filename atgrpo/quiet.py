"""Silences what other packages say on their own account."""

from __future__ import annotations

import logging
import sys
import warnings

LOST_PROCESS = "another process of the run was killed or failed, so all end; go on with --resume last"
LAUNCHER = "lightning.fabric.strategies.launchers.subprocess_script"


def quiet() -> None:
    """Notices of other packages about hardware and loading say nothing that a run does not print itself."""
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    launcher = logging.getLogger(LAUNCHER)
    launcher.setLevel(logging.INFO)
    launcher.propagate = False
    launcher.handlers = [_LostProcess()]
    for name in ("bitsandbytes", "vllm", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


class _LostProcess(logging.Handler):
    """Says that a process is gone, which Lightning notes in passing before it kills all others."""

    def emit(self, record: logging.LogRecord) -> None:
        if "terminated with code" in record.getMessage():
            print(f"error: {LOST_PROCESS}", file=sys.stderr, flush=True)
