"""Settings of the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from atgrpo.functional.losses import RatioLevel, check_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """The loss of one token; how tokens add up is ``rollout.collate.Batching``.

    Args:
        eps_low: Ratio is clipped below at 1 - eps_low.
        eps_high: Ratio is clipped above at 1 + eps_high.
        dual_clip: Bound c > 1 on the ratio where the advantage is negative; None for no bound.
        ratio_level: ``token``, or ``sequence`` (GSPO).
        mismatch: Correction for an engine whose log-probs are not the trainer's own: ``truncate`` (TIS), ``mask``
            (MIS), ``none``; ``auto`` is ``truncate`` unless the engine is exact.
        mismatch_cap: Largest correction factor.
        entropy: Weight of the entropy bonus.
        kl: Weight of the KL penalty towards the reference: the policy before training (under LoRA its base).
        kl_estimator: ``k2`` for KL(policy || reference), ``k3`` for KL(reference || policy); see ``functional.kl``.
    """

    eps_low: float = 0.2
    eps_high: float = 0.2
    dual_clip: float | None = None
    ratio_level: RatioLevel = "token"
    mismatch: Literal["auto", "none", "truncate", "mask"] = "auto"
    mismatch_cap: float = 2.0
    entropy: float = 0.0
    kl: float = 0.0
    kl_estimator: Literal["k2", "k3"] = "k3"

    def __post_init__(self) -> None:
        check_bounds(self.eps_low, self.eps_high, self.dual_clip)
        if self.mismatch_cap < 1:
            raise ValueError(f"mismatch_cap: got {self.mismatch_cap}, expected 1 or more")
        if self.kl < 0 or self.kl_estimator not in ("k2", "k3"):
            raise ValueError(f"kl: got {self.kl} by {self.kl_estimator}, expected 0 or more by k2 or k3")

    @property
    def policy_gradient_only(self) -> bool:
        """A token without an advantage has no loss."""
        return not self.entropy and not self.kl
