from __future__ import annotations

from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from benchmarks.plot_run import curves, name_of, plot, plot_success


def test_a_figure_is_made_from_the_runs_own_logs(tmp_path: Path) -> None:
    tags = ["rollout/success", "rollout/tool/reward", "heldout/greedy/success", "heldout/greedy/low"]
    tags += ["heldout/greedy/high", "heldout/greedy/success_turn_1", "heldout/greedy/success_turn_2"]
    tags += [f"seconds/{phase}" for phase in ("sync", "rollout", "prepare", "train")]
    with SummaryWriter(str(tmp_path / "run")) as writer:
        for step in range(3):
            for tag in tags:
                writer.add_scalar(tag, step / 4, step)
        writer.add_scalar("rollout/success", 1.0, 2)
    assert curves(tmp_path / "run")["rollout/success"] == ([0, 1, 2], [0.0, 0.25, 1.0])
    plot(tmp_path / "run", tmp_path / "figure.png")
    plot_success([tmp_path / "run"] * 4, tmp_path / "figures.png")
    for name in ("figure", "figures"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_without_logs_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no TensorBoard scalars"):
        curves(tmp_path)


def test_a_panel_says_the_recipe_and_the_name_that_the_run_was_given(tmp_path: Path) -> None:
    assert name_of(tmp_path / "search" / "2026-01-31_12-00-00") == "search"
    assert name_of(tmp_path / "calculator" / "tool_is_worse") == "calculator: tool is worse"
