from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.grouping.report import resolved, write_report
from benchmarks.grouping.results import write
from tests.benchmarks.grouping.made import TASK, make_cell, make_result

CONTRASTS = [["at_grpo-tree-task", "grpo-parallel-task"]]
BETTER, WORSE = (0.80, 0.82, 0.79, 0.81, 0.83), (0.70, 0.71, 0.70, 0.72, 0.71)


def results(folder: Path, seeds: int, turned: bool = False) -> Path:
    file = folder / "mine.jsonl"
    rows = [
        make_result(make_cell(label, seed), 0.3, values[seed], values[seed])
        for label, values in (("at_grpo-tree-step", BETTER), ("grpo-parallel-outcome", WORSE))
        for seed in range(seeds)
    ]
    for row in rows[::-1] if turned else rows:
        write(file, row)
    return file


def test_a_report_is_the_same_bytes_whatever_the_order_of_the_results(tmp_path: Path) -> None:
    seen = []
    for name, turned in (("one", False), ("two", True)):
        target = write_report(results(tmp_path / name, 5, turned), CONTRASTS, {"letters": TASK})
        seen.append((target.read_bytes(), target.with_name("mine_letters.png").read_bytes()))
    assert seen[0] == seen[1]
    assert seen[0][1].startswith(b"\x89PNG")


def test_a_claim_is_made_where_it_holds_and_each_number_has_its_command(tmp_path: Path) -> None:
    text = write_report(results(tmp_path, 5), CONTRASTS, {"letters": TASK}).read_text()
    assert "first is better" in text
    assert f"```\n{make_cell(seed=4).command}\n```" in text


def test_tasks_are_compared_one_by_one_and_all_together(tmp_path: Path) -> None:
    """Of a task whose own credit makes both arms the same there is nothing to compare."""
    file = results(tmp_path, 5)
    words = replace(TASK, name="words")
    for label, values in (("at_grpo-tree-step", BETTER), ("grpo-parallel-outcome", WORSE)):
        for seed in range(5):
            write(file, make_result(replace(make_cell(label, seed), task=words), 0.3, values[seed], values[seed]))
    same = ["at_grpo-tree-task", "at_grpo-tree-step"]
    text = write_report(file, [*CONTRASTS, same], {"letters": TASK, "words": words}).read_text()
    assert "3 contrasts" in text
    # (.10 + .11 + .09 + .09 + .12) / 5 on either task
    assert "| all together | at_grpo-tree-task | grpo-parallel-task | 0.100 " in text
    assert "| 0.102 [" in text
    assert "| at_grpo-tree-task | 0.810 [" in text  # .80, .81, .82 on either task
    assert "| 10 | first is better |" in text


def test_few_seeds_claim_nothing(tmp_path: Path) -> None:
    text = write_report(results(tmp_path, 3), CONTRASTS, {"letters": TASK}).read_text()
    assert "too few seeds" in text
    assert "first is better" not in text


def test_swapped_policies_stand_beside_the_team_that_was_trained(tmp_path: Path) -> None:
    file, cell = results(tmp_path, 2), make_cell(policies="per_role")
    write(file, make_result(cell, 0.3, 0.9))
    write(file, make_result(cell, 0.1, kind="swap"))
    text = write_report(file, [], {"letters": TASK}).read_text()
    assert "| letters | at_grpo-tree-step-per_role | swap | 0.845 | 0.100 | 1 |" in text


def test_a_label_keeps_what_follows_the_method() -> None:
    assert resolved("at_grpo-parallel-task-per_role-k4", TASK) == "at_grpo-parallel-outcome-per_role-k4"


def test_nothing_to_report_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no results"):
        write_report(tmp_path / "none.jsonl", [], {})
