from __future__ import annotations

import pytest

from atgrpo.data.seeds import HELDOUT_SHARE, Seeds


def test_no_seed_is_in_both_splits_whatever_the_run() -> None:
    runs = [Seeds(train_size=3000, heldout_size=500, seed=seed) for seed in (0, 1)]
    train = {sample.meta["seed"] for run in runs for sample in run.split("train")}
    heldout = {sample.meta["seed"] for run in runs for sample in run.split("heldout")}
    assert not train & heldout
    assert all(seed % HELDOUT_SHARE == 0 for seed in heldout)
    assert max(train | heldout) < 2**32


def test_every_sample_has_an_id_and_a_seed_of_its_own_and_the_prompt() -> None:
    data = Seeds("Play.", train_size=3000, heldout_size=500)
    samples = [*data.split("train"), *data.split("heldout")]
    assert len({sample.id for sample in samples}) == len({sample.meta["seed"] for sample in samples}) == 3500
    assert {sample.prompt for sample in samples} == {"Play."}


def test_equal_settings_give_equal_samples_and_other_seeds_others() -> None:
    first, same, other = (Seeds(heldout_size=50, seed=seed).split("heldout") for seed in (0, 0, 1))
    assert first == same
    assert len({sample.id for sample in first} & {sample.id for sample in other}) < 5


def test_wrong_sizes_and_splits_are_refused() -> None:
    with pytest.raises(ValueError, match="train_size got 0"):
        Seeds(train_size=0)
    with pytest.raises(ValueError, match="split got 'test'"):
        Seeds().split("test")  # type: ignore[arg-type]
