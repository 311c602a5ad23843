from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.grouping import follow, runner
from benchmarks.grouping.follow import scores_in, swapped, trained_alone
from benchmarks.grouping.results import read, write
from benchmarks.grouping.runner import CellFailedError, call, estimate, missing, run_all, shares, span
from tests.benchmarks.grouping.made import TASK, make_cell, make_result

PRINTED = """\
held-out success (greedy, 16 problems): 43.8% [20.0%, 60.0%]; after each turn 36.0%, 43.8%
held-out success (sampled, 16 problems): 100.0% [90.0%, 100.0%]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_done_is_not_run_again_unless_its_command_has_changed(here: Path) -> None:
    cells, file = [make_cell(seed=s) for s in (0, 1)], here / "r.jsonl"
    write(file, make_result(cells[0], 0.1, 0.2))
    assert missing(cells, file) == cells[1:]
    longer = replace(cells[0], task=replace(TASK, tokens=2000))
    assert missing([longer], file) == [longer]


def test_the_estimate_goes_by_what_runs_took(here: Path) -> None:
    cells, file = [make_cell(seed=s) for s in range(4)], here / "r.jsonl"
    assert estimate(cells, file, jobs=2) == 60
    write(file, make_result(cells[0], 0.1, 0.2))  # took 60 s, not the 30 s that were guessed
    assert estimate(cells[1:], file, jobs=2) == 90
    assert estimate([], file, jobs=2) == 0


def test_cores_are_dealt_out() -> None:
    assert shares([0, 1, 2, 3], 2) == [[0, 1], [2, 3]]
    assert shares([5], 2) == [[5], [5]]


@pytest.mark.parametrize(("seconds", "text"), [(59.6, "60 s"), (150, "2 min"), (9000, "2.5 h")])
def test_times_for_people(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_command_that_fails_is_named_with_its_last_line(here: Path) -> None:
    with pytest.raises(CellFailedError, match=r"x failed with exit code 3: no room .*x\.log"):
        call([sys.executable, "-c", "print('no room'); raise SystemExit(3)"], here / "logs" / "x.log")


def fake_call(words: Sequence[str], log: Path, cores: Sequence[int] = (), threads: int = 1) -> str:
    """A run that reaches its budget; that of seed 1 stops too early."""
    settings = dict(word.lstrip("+").split("=", 1) for word in words if "=" in word)
    folder = Path(settings["run.root"]) / "debug" / settings["run.name"]
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("seed: 0\n")
    tokens = int(settings["callbacks.budget.tokens"]) - (settings["seed"] == "1")
    line = {"tokens": tokens, "iterations": 1, "seconds": 1.0, "sampled": 0.5, "greedy": 0.5, "metrics": {}}
    (folder / "curve.jsonl").write_text(json.dumps(line) + "\n")
    return PRINTED


def test_a_run_that_stops_early_fails_by_itself(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "call", fake_call)
    cells, file = [make_cell(seed=s) for s in (0, 1, 2)], here / "r.jsonl"
    assert run_all(cells, file, jobs=2) == [cells[1].name]
    assert sorted(result.cell for result in read(file)) == [cells[0].name, cells[2].name]
    assert missing(cells, file) == [cells[1]]


def test_what_another_command_left_behind_is_cleared_away(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "call", fake_call)
    cell = make_cell()
    (here / cell.folder / "checkpoints").mkdir(parents=True)
    assert runner.run(cell).curve[-1]["tokens"] == cell.tokens


def test_scores_are_read_off() -> None:
    assert scores_in(PRINTED) == {"greedy": pytest.approx(0.438), "sampled": 1.0}
    with pytest.raises(CellFailedError, match="the scores"):
        scores_in("nothing")


def test_swapped_policies_play_each_others_roles() -> None:
    (words,) = swapped(make_cell(policies="per_role"))
    assert words[-2:] == ["agents.tool=reasoner", "agents.reasoner=tool"]
    assert words[words.index("--checkpoint") + 1] == make_cell(policies="per_role").folder


def test_policies_that_were_trained_alone_meet_for_the_first_time() -> None:
    cell = make_cell(policies="per_role")
    *exports, evaluate = trained_alone(cell)
    assert [words[3] for words in exports] == ["export", "export"]
    assert "--checkpoint" not in evaluate
    assert evaluate[-3] == "warm_start.steps=0"
    assert evaluate[-1] == f"policies.reasoner.model={replace(cell, only='reasoner').folder}/exported/reasoner"


def test_policies_are_played_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "call", lambda *args, **settings: PRINTED)
    cell, file = make_cell(policies="per_role"), here / "r.jsonl"
    write(file, make_result(cell, 0.1, 0.2))
    for _ in range(2):
        assert follow.follow_all([cell], file, swap=True, alone=True) == []
    assert [(r.kind, r.curve[-1]["sampled"]) for r in read(file)] == [("run", 0.2), ("swap", 1.0)]
