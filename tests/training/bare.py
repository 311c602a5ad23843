"""A real trainer on CPU that writes and shows nothing."""

from __future__ import annotations

from typing import Any

import lightning as L


def bare_trainer(**settings: Any) -> L.Trainer:
    return L.Trainer(
        accelerator="cpu",
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )
