from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atgrpo.training.prompts import PromptStream
from atgrpo.types import Sample


def samples(n: int) -> list[Sample]:
    return [Sample(str(i), "the same text", "!") for i in range(n)]


def ids(stream: PromptStream, start: int, count: int) -> list[str]:
    return [sample.id for sample in stream.take(start, count)]


@given(n=st.integers(1, 12), seed=st.integers(0, 9), batch=st.integers(1, 15))
def test_each_sample_comes_once_per_pass_whatever_the_batch(n: int, seed: int, batch: int) -> None:
    stream = PromptStream(samples(n), seed)
    drawn = [i for start in range(0, 3 * n, batch) for i in ids(stream, start, batch)][: 3 * n]
    passes = [drawn[k * n : (k + 1) * n] for k in range(3)]
    assert all(sorted(one) == sorted(s.id for s in samples(n)) for one in passes)


def test_nine_prompts_in_batches_of_four() -> None:
    stream = PromptStream(samples(9), 0)
    batches = [ids(stream, start, 4) for start in range(0, 36, 4)]
    assert [len(batch) for batch in batches] == [4] * 9
    assert Counter(i for batch in batches for i in batch) == dict.fromkeys(map(str, range(9)), 4)


def test_a_batch_larger_than_the_data_is_filled_from_the_next_pass() -> None:
    batch = ids(PromptStream(samples(3), 0), 0, 4)
    assert len(batch) == 4
    assert sorted(batch[:3]) == ["0", "1", "2"]


def test_a_run_that_stops_after_four_of_ten_sees_the_other_six_when_it_goes_on() -> None:
    before = ids(PromptStream(samples(10), 5), 0, 4)
    resumed = ids(PromptStream(samples(10), 5), 4, 6)
    assert before + resumed == ids(PromptStream(samples(10), 5), 0, 10)
    assert sorted(before + resumed) == sorted(map(str, range(10)))


def test_positions_can_be_asked_in_any_order() -> None:
    stream = PromptStream(samples(4), 1)
    late, early = ids(stream, 20, 6), ids(stream, 0, 6)
    fresh = PromptStream(samples(4), 1)
    assert (ids(fresh, 0, 6), ids(fresh, 20, 6)) == (early, late)


def test_passes_and_seeds_shuffle_differently() -> None:
    orders = [ids(PromptStream(samples(20), seed), start, 20) for seed in (1, 2) for start in (0, 20)]
    assert len({tuple(order) for order in orders}) == 4


def test_no_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="got 0 samples, expected at least one"):
        PromptStream([], 0)
