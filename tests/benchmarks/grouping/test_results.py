from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.grouping.results import arms_of, by_seed, read, write
from tests.benchmarks.grouping.made import make_cell, make_result


def test_runs_that_went_over_are_compared_at_exactly_the_budget() -> None:
    result = make_result(make_cell(), 0.2, 0.4, 0.7)  # at 0, 500 and 1100 tokens
    assert result.at(1000) == pytest.approx(0.4 + 0.3 * 500 / 600)
    assert result.at(250, "greedy") == pytest.approx(0.15)


def test_what_was_not_run_by_then_is_missing_and_not_its_last_value() -> None:
    result = make_result(make_cell(), 0.2, 0.4)  # after 0 and 3 seconds
    assert result.after(1.5) == pytest.approx(0.3)
    assert math.isnan(result.after(3.1))


def test_what_is_written_is_read_and_a_cell_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "deeper" / "r.jsonl"
    old, new = make_result(make_cell(), 0.1, 0.2), make_result(make_cell(), 0.1, 0.3)
    swap = make_result(make_cell(), 0.0, kind="swap")
    assert read(file) == []
    for result in (old, swap, new):
        write(file, result)
    assert read(file) == [new, swap]


def test_arms_and_seeds_are_found() -> None:
    results = [make_result(make_cell(seed=s), 0.1, 0.2) for s in (1, 0)]
    results.append(make_result(make_cell(only="tool", policies="per_role"), 0.1, 0.2))
    assert arms_of(results, "letters") == ["at_grpo-tree-step"]
    assert list(by_seed(results, "letters", "at_grpo-tree-step")) == [0, 1]
