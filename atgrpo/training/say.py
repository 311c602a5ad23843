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
    return tqdm(disable=None if is_first() else True, **settings)


def is_first() -> bool:
    """This process speaks."""
    return bool(vars(rank_zero_only)["rank"] == 0)
