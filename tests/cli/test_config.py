from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from atgrpo.cli.config import find_recipe, load
from atgrpo.cli.main import main


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("iteratoins=3", "iteratoins"),
        ("+iteratoins=3", "iteratoins"),
        ("optimizer.lrr=1e-5", "did you mean lr?"),
        ("+optimizer.lrr=1e-5", "did you mean lr?"),
        ("iterations=many", "iterations"),
        ("sampler.turns=many", "sampler.turns"),
        ("sampler.turns=0", "turns"),
        ("sampler.temperature=0", "sampler.temperature"),
        ("sampler.credit=outcome", "sampler=parallel"),
        ("batching.aggregation=mean", "batching.aggregation"),
        ("advantage=no_such", "no_such"),
        ("env._target_=no.such.Env", "no.such.Env"),
        ("agents.judge=solver", "judge"),
        ("policies.other.model=tiny", "no agent uses this policy"),
        ("loss.eps_low=none", "loss.eps_low"),
        ("iterations=[", "iterations"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(override: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--config", "debug", "--dry-run", override]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("error: ") and error.count("\n") == 1


def test_a_missing_recipe_names_the_shipped_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--config", "maths.yaml"]) == 2
    assert "math" in capsys.readouterr().err


def test_scientific_notation_is_a_number_and_a_run_id_stays_text() -> None:
    config = load(find_recipe("debug"), ["optimizer.lr=1e-6", "run.name=123E456"])
    assert config.optimizers.solver.lr == 1e-6
    assert config.run.name == "123E456"


def test_a_recipe_anywhere_may_build_on_the_shipped_configuration(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "defaults: [config, {override advantage: rloo}, _self_]\n"
        "agents: {tool: a, reasoner: b}\noptimizer: {lr: 1e-5}\n"
        "policies: {b: {model: tiny}}\noptimizers: {b: {lr: 3e-5}}\n"
    )
    config = load(recipe, [])
    assert config.advantage._target_.endswith("RLOO")
    assert (config.policies.a.model, config.policies.b.model) == ("smollm2", "tiny")
    assert (config.optimizers.a.lr, config.optimizers.b.lr) == (1e-5, 3e-5)


def test_dry_run_prints_the_arithmetic_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", "debug", "--dry-run"]) == 0
    out = capsys.readouterr().out
    # 2 prompts x 2 turns x K=3 for each of two agents.
    assert "tool (solver): 2 prompts x 2 turns x K=3 = 12 responses <= 8 tokens" in out
    assert "8 groups of one prompt, agent and turn; 24 responses, 192 sampled tokens" in out
    assert "2 optimiser steps of each policy" in out
    assert "GB" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [[], ["fit"], ["evaluate"], ["rollout"], ["export"]])
def test_help_teaches(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0
    assert "usage: python -m atgrpo" in capsys.readouterr().out


def test_an_unknown_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["fit", "--config", "debug", "--dryrun"])
    assert end.value.code == 2
    assert "--dryrun" in capsys.readouterr().err


def test_hydra_and_the_answer_judge_parse_in_one_process() -> None:
    code = (
        "from atgrpo.cli.config import find_recipe, load; from atgrpo.envs.answers import equal; "
        "load(find_recipe('debug'), []); assert equal(r'\\frac{63}{400}', '63/400'); assert not equal('2', '3')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
