"""Where paths point: to the place where the user stands, whatever the recipe or the run does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from atgrpo.cli.main import main
from atgrpo.policies.sources import model_folder

RECIPE = """\
defaults: [debug, {override data: jsonl}, {override engine: transformers}, _self_]
data: {train: mine/problems.jsonl}
policy: {model: mine/model}
run: {root: mine/runs}
iterations: 1
heldout: null
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user stands here; the recipe lies elsewhere, and so does all that it could be mistaken for."""
    here, recipes = tmp_path / "here", tmp_path / "recipes"
    (here / "mine").mkdir(parents=True)
    recipes.mkdir()
    shutil.copy(Path(__file__).parents[2] / "recipes" / "debug.yaml", recipes)
    (recipes / "own.yaml").write_text(RECIPE)
    rows = [json.dumps({"prompt": f"What is {i} plus 1?", "answer": str(i + 1)}) for i in range(40)]
    (here / "mine" / "problems.jsonl").write_text("\n".join(rows))
    shutil.copytree(model_folder("tiny"), here / "mine" / "model")
    monkeypatch.chdir(here)
    return here


# PyTorch Lightning issue 2691: a changed working directory moved every relative path.
def test_every_relative_path_starts_where_the_user_stands(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = "../recipes/own.yaml"
    assert main(["fit", "--config", recipe, "run.name=one"]) == 0
    run = place / "mine" / "runs" / "own" / "one"
    assert f"done: {run}" in capsys.readouterr().out
    assert (run / "checkpoints" / "iteration_00001" / "state.ckpt").is_file()
    assert list(run.glob("events.out.tfevents.*"))
    for checkpoint in ("mine/runs/own/one", "./mine/runs/own/one/checkpoints/iteration_00001", "last"):
        assert main(["export", "--config", recipe, "--checkpoint", checkpoint, "--to", "out"]) == 0
        assert (place / "out" / "solver" / "config.json").is_file()
        shutil.rmtree(place / "out")
    assert main(["fit", "--config", recipe, "--resume", "mine/runs/own/one", "iterations=2"]) == 0
    assert (run / "checkpoints" / "iteration_00002").is_dir()
    assert Path.cwd() == place
    assert sorted(path.name for path in place.iterdir()) == ["mine"]
    assert sorted(path.name for path in (place.parent / "recipes").iterdir()) == ["debug.yaml", "own.yaml"]


SEARCH = """\
defaults: [search, {override data: jsonl}, _self_]
data: {train: mine/problems.jsonl}
env: {corpus: mine/corpus.jsonl}
policy: {model: mine/model}
warm_start: {steps: 0}
"""


def test_a_relative_corpus_is_read_where_the_user_stands(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipes, corpus = place.parent / "recipes", place / "mine" / "corpus.jsonl"
    shutil.copy(Path(__file__).parents[2] / "recipes" / "search.yaml", recipes)
    (recipes / "own.yaml").write_text(SEARCH)
    (recipes / "mine").mkdir()
    (recipes / "mine" / "corpus.jsonl").write_text("another one, which is no corpus")
    corpus.write_text(json.dumps({"title": "Numbers", "text": "1 and 1 are 2."}))
    command = ["fit", "--config", "../recipes/own.yaml", "--dry-run"]
    assert main(command) == 0
    assert "corpus: mine/corpus.jsonl" in capsys.readouterr().out
    corpus.write_text("no json")
    assert main(command) == 2
    assert f"error: {corpus}:1: not JSON" in capsys.readouterr().err
    corpus.unlink()
    assert main(command) == 2
    assert "error: mine/corpus.jsonl: no such file" in capsys.readouterr().err
