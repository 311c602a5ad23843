from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.marl.__main__ import main
from benchmarks.marl.cells import TASKS, run_cell
from benchmarks.marl.claims import CLAIMS, Claim, Finding, findings
from benchmarks.marl.report import write_report
from benchmarks.marl.results import Arm, Result, append, curves, read
from benchmarks.stats import Estimate

TINY = ["envs=4", "steps=5", "ppo.minibatch=20", "ppo.epochs=1", "heldout.episodes=2", "task.time_limit=4"]
SEEDS = range(5)


def results(task: str, **returns: float) -> list[Result]:
    """Returns rise by ``returns`` a million frames, from the seed's number; completion is a tenth of them."""
    return [
        Result(
            "benchmarl" if name == "ippo" else "atgrpo",
            task,
            name,
            seed,
            frames,
            {
                "return": seed + rise * frames / 1e6,
                "completion": (seed + rise * frames / 1e6) / 10,
                "coverage": 0.5,
                "collisions": 0.0,
            },
            4_000.0 if name == "ippo" else 20_000.0,
        )
        for name, rise in returns.items()
        for seed in SEEDS
        for frames in (0, 400_000, 1_200_000)
    ]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("algorithm", ["dec_ppo", "relative_linear_raw"])
def test_a_cell_trains_all_its_seeds_and_is_read_back(task: str, algorithm: str, tmp_path: Path) -> None:
    found = run_cell(task, algorithm, 2, 40, tmp_path, TINY)
    assert {(r.seed, r.frames) for r in found} == {(0, 0), (1, 0), (0, 40), (1, 40)}
    raw = tmp_path / "new" / "results.jsonl"
    append(found, raw)
    assert read(raw) == found
    assert "After 40 frames of each team" in write_report(raw, [1_000_000]).read_text()
    assert (tmp_path / "new" / f"results_{task}.png").stat().st_size > 0


def test_a_curve_is_read_between_its_scores() -> None:
    (run, *_) = curves(results("navigation", mappo=10.0))[Arm("atgrpo", "navigation", "mappo")]
    assert run.at("return", 200_000) == pytest.approx(2.0)
    assert run.mean("return", 1_000_000) == pytest.approx(5.0)


def test_the_last_score_counts_where_a_cell_was_run_again() -> None:
    old, new = results("navigation", mappo=1.0), results("navigation", mappo=2.0)
    (run, *_) = curves([*old, *new])[Arm("atgrpo", "navigation", "mappo")]
    assert run.at("return", 1_000_000) == pytest.approx(2.0)


def test_claims_are_measured_seed_by_seed() -> None:
    rows = results("navigation", mappo=1.0, relative=1.5, dec_ppo=1.0) + results("box_pushing", mappo=1, relative=1)
    found = {(f.claim.metric, f.claim.frames, f.claim.baseline, f.claim.task): f for f in findings(curves(rows))}
    early = found["return", 200_000, "mappo", "navigation"]
    # Means over the seeds 0..4 are 2 + .2 and 2 + .3; every seed gains .1, which is less than 15% of 2.2.
    assert (early.ours, early.baseline) == (pytest.approx(2.3), pytest.approx(2.2))
    assert (early.change.low, early.change.high) == (pytest.approx(0.1), pytest.approx(0.1))
    assert early.verdict == "holds, smaller than said"
    assert found["return", 1_000_000, "mappo", "navigation"].verdict == "holds"
    assert found["coverage", 1_000_000, "dec_ppo", "navigation"].verdict == "not shown"
    assert found["coverage", 1_000_000, "mappo", "navigation"].verdict == "not shown; what is said is excluded"
    assert ("return", 1_000_000, "dec_ppo", "box_pushing") not in found


@pytest.mark.parametrize(
    ("sign", "spread", "low", "high", "verdict"),
    [
        (1, False, 0.01, 0.3, "holds"),
        (1, False, -0.1, 0.3, "not shown"),
        (1, False, -0.3, -0.1, "the contrary holds"),
        (-1, False, -0.3, -0.1, "holds"),
        (-1, True, 0.4, 0.9, "holds"),
        (-1, True, 0.4, 1.2, "not shown"),
        (-1, True, 1.1, 2.0, "the contrary holds"),
    ],
)
def test_a_verdict_is_the_intervals(sign: int, spread: bool, low: float, high: float, verdict: str) -> None:
    claim = Claim("", "navigation", "return", 1, "mappo", sign=sign, spread=spread)
    assert Finding(claim, 0.0, 0.0, Estimate(0.0, low, high), 5).verdict == verdict
    assert Finding(claim, 0.0, 0.0, Estimate(0.0, low, high), 4).verdict == "too few seeds"


def test_a_report_compares_with_mappo_and_with_the_other_system(tmp_path: Path) -> None:
    raw = tmp_path / "some.jsonl"
    append(results("navigation", mappo=1.0, relative=2.0, dec_ppo=1.0, ippo=1.0), raw)
    first = write_report(raw, [200_000, 500_000, 2_000_000]).read_text()
    assert first == write_report(raw, [200_000, 500_000, 2_000_000]).read_text()
    assert "After 500,000 frames" in first
    assert "After 2,000,000 frames" not in first
    # Interquartile mean over the seeds 0..4 of seed + 2 * .5, and their deviation.
    assert "| relative | 3.000 [" in first
    assert "| 1.581 | 5 |" in first
    assert "| navigation | dec_ppo | 5 | 5 | 20,000 | 5.0 |" in first
    assert "| navigation | benchmarl ippo | 5 | 5 | 4,000 |  |" in first
    known = [c for c in CLAIMS if c.task == "navigation"]
    assert f"{len(known)} of {len(CLAIMS)} claims" in first


@pytest.mark.parametrize("more", [["--frames", "-6400"], ["--seeds", "0"], ["--threads", "x"], ["--to", "/proc/x"]])
def test_what_cannot_be_run_or_kept_is_told_first(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["marl", "run", "--to", str(tmp_path / "x"), *more])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code not in (0, None)


def test_a_mistake_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text('{"system": "atgrpo"}\n')
    for file, message in ((damaged, "damaged.jsonl, line 1: got no result"), (tmp_path / "none.jsonl", "none.jsonl")):
        monkeypatch.setattr("sys.argv", ["marl", "report", str(file)])
        with pytest.raises(SystemExit, match=message):
            main()
