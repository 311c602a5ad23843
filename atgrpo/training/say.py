"""One voice: of several processes only the first one speaks."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.utilities import rank_zero_only
from tqdm import tqdm


@rank_zero_only
def say(text: str) -> None:
    """A line that does not tear a progress bar apart."""
    tqdm.write(text)


def bar(**settings: Any) -> Any:
    """A progress bar, on a terminal only."""
    first: Any = rank_zero_only
    return tqdm(disable=None if first.rank == 0 else True, **settings)
