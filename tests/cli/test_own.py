"""Every example of recipes/own, as its page says to run it: from its own folder."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from atgrpo.cli.main import main
from atgrpo.paths import recipes_dir

OWN = recipes_dir() / "own"
EXAMPLES = {
    "environment": "relay",
    "reward_functions": "lists",
    "functions": "arithmetic_tools",
    "reasoning_gym": "spell",
    "aec": "guess",
}
TAUGHT = {"reasoning_gym"}
"""Begin by imitation."""
SMALL = [
    "policy.model=tiny",
    "engine=transformers",
    "prompts_per_iteration=2",
    "iterations=1",
    "sampler.max_tokens=8",
    "sampler.branches=2",
    "max_prompt_tokens=2000",
    "heldout.problems=2",
]


@pytest.fixture(params=sorted(EXAMPLES))
def folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An example's folder, where the user stands: python -m puts it on the path."""
    place = OWN / request.param
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    return place


def test_every_example_does_one_iteration(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = f"{EXAMPLES[folder.name]}.yaml"
    taught = ["warm_start.steps=2"] if folder.name in TAUGHT else []
    assert main(["fit", "--config", recipe, f"run.root={tmp_path}", *SMALL, *taught]) == 0
    said = capsys.readouterr().out
    assert "iteration 1/1" in said and "after training:" in said
    assert "warning" not in said


def test_every_page_names_its_command_and_files(folder: Path) -> None:
    page = (folder / "README.md").read_text()
    name = EXAMPLES[folder.name]
    assert f"cd recipes/own/{folder.name}\npython -m atgrpo fit --config {name}.yaml" in page
    named = set(re.findall(rf"`({name}\.\w+)`", page))
    assert named == {path.name for path in folder.iterdir() if path.stem == name}
    assert f"({folder.name}/README.md)" in (OWN / "README.md").read_text()


def test_the_recipe_in_a_page_is_the_one_beside_it(folder: Path) -> None:
    page = (folder / "README.md").read_text()
    blocks = re.findall(r"```(?:yaml|python)\n(.*?)```", page, re.DOTALL)
    beside = [path.read_text() for path in folder.iterdir() if path.suffix in (".py", ".yaml")]
    assert blocks and all(any(block in text for text in beside) for block in blocks)


def test_an_environment_takes_less_than_sixty_lines() -> None:
    source = (OWN / "environment" / "relay.py").read_text()
    assert len(source.splitlines()) < 60
    assert any(isinstance(node, ast.ClassDef) for node in ast.parse(source).body)


def test_the_shown_environment_is_learnt_by_a_tiny_random_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(OWN / "environment")
    monkeypatch.syspath_prepend(OWN / "environment")
    settings = ["engine=transformers", "iterations=12", "heldout.every=0", "heldout.problems=32", "logger=null"]
    assert main(["fit", "--config", "relay.yaml", f"run.root={tmp_path}", *settings]) == 0
    before, after = (
        float(found) for found in re.findall(r"(?:before|after) training: .*?: ([\d.]+)%", capsys.readouterr().out)
    )
    assert before < 25 and after >= 40


BROKEN = """
import relay
from relay import Relay
from atgrpo.types import StepResult

class Pair(Relay):
    def step(self, agent, action):
        return (1.0, 0.0, True)

class Sure(Relay):
    success = 2.0

def count(completions, **columns):
    return len(completions)

def play(client, sample):
    raise KeyError("mine")
"""
RECIPE = """
defaults: [config, {{override env: {env}}}, {{override data: seeds}}, {sampler}, _self_]
agents: {{first: solver, second: solver}}
"""


@pytest.mark.parametrize(
    ("recipe", "settings", "message", "traceback"),
    [
        ("relay.yaml", ["env._target_=broken.Pair"], "Pair.step returned (1.0, 0.0, True), expected an object", False),
        ("relay.yaml", ["env._target_=broken.Sure"], "Sure.success got 2.0, expected 0 to 1, or NaN where", False),
        ("rewards.yaml", ["env.rewards=[broken.count]"], "reward broken.count returned 1, expected a list", False),
        ("play.yaml", ["env.play._target_=broken.play"], "play failed on sample 'train-", True),
    ],
    ids=["step", "success", "reward", "play"],
)
def test_what_an_own_part_does_wrong_is_one_line(
    recipe: str,
    settings: list[str],
    message: str,
    traceback: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With where it broke before it, if it is the user's own code that raised an error."""
    (tmp_path / "broken.py").write_text(BROKEN)
    rewards = RECIPE.format(env="reward_functions", sampler="{override sampler: tree}")
    (tmp_path / "rewards.yaml").write_text(rewards + "env: {roles: [first, second]}\n")
    play = RECIPE.format(env="external", sampler="{override sampler: endpoint}")
    (tmp_path / "play.yaml").write_text(play + "env: {roles: [first, second]}\n")
    (tmp_path / "relay.yaml").write_text((OWN / "environment" / "relay.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    for place in (OWN / "environment", tmp_path):
        monkeypatch.syspath_prepend(place)
    small = [s for s in SMALL if recipe != "play.yaml" or not s.startswith("sampler.branches")]
    assert main(["fit", "--config", recipe, f"run.root={tmp_path}", *small, *settings]) == 2
    said = capsys.readouterr().err
    assert f"error: {message}" in said.splitlines()[-1]
    assert ("Traceback" in said and "KeyError: 'mine'" in said) == traceback
