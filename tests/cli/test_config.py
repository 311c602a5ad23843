from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from atgrpo.cli import commands
from atgrpo.cli.config import ConfigError, find_recipe, load
from atgrpo.cli.main import main
from atgrpo.paths import conf_dir, recipes_dir


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
        ("sampler.credit=outcome", "sampler.credit"),
        ("batching.aggregation=mean", "batching.aggregation"),
        ("advantage=no_such", "Could not find 'advantage/no_such', expected one of agent_wise, at_grpo, c3, "),
        ("sampler.branches=0", "sampler got branches=0, expected at least 1"),
        ("sampler.branches={tool: 0}", "sampler got branches={'tool': 0}, expected at least 1"),
        ("sampler.max_tokens=0", "sampler got max_tokens=0, expected at least 1"),
        ("env._target_=no.such.Env", "no.such.Env"),
        ("agents.judge=solver", "judge"),
        ("policies.other.model=tiny", "no agent uses this policy"),
        ("loss.eps_low=none", "loss.eps_low"),
        ("iterations=[", "iterations"),
        ("iterations=-1", "iterations: got -1, expected 1 or more"),
        ("prompts_per_iteration=0", "prompts_per_iteration: got 0, expected 1 or more"),
        ("max_prompt_tokens=0", "max_prompt_tokens: got 0, expected 1 or more"),
        ("workers=-1", "workers: got -1, expected 0 or more"),
        ("clip_norm=0", "clip_norm: got 0.0, expected more than 0"),
        ("clip_norm=nan", "clip_norm: got nan, expected more than 0"),
        ("batching=token", "batching: got 'token', expected a mapping"),
        ("policy=null", "Config group override"),
        ("run={name: 1e5}", "run.name: got the float 100000.0, expected text: put it in quotes"),
        ("++run.name=7", "run.name: got the int 7, expected text"),
        ("agents={tool: 123E456, reasoner: 7E999}", "agents.tool: got the float inf, expected text: put it in quotes"),
        ("agents={tool: 010, reasoner: 8}", "agents.reasoner: got the int 8, expected text"),
        ("agents.tool=true", "agents.tool: got the bool True, expected text"),
        ("agents={1: solver}", "the role 1 of agents: got the int 1, expected text"),
        ("sampler.branches={tool: 2, typo: 3, reasoner: 2}", "sampler.branches: got 'typo', expected some of tool, "),
        ("sampler.max_tokens={tool: 2, typo: 3, reasoner: 2}", "sampler.max_tokens: got 'typo', expected some of tool"),
        ("batching.aggregation=trajectory_mean", "got a tree, expected trajectories: use sampler=parallel"),
        (
            "engine.vllm.max_model_len=1031",
            "max_prompt_tokens: got 1024 and 8 of sampler.max_tokens, "
            "expected at most engine.vllm.max_model_len=1031 together",
        ),
        ("policies.solver=tiny", "policies.solver: got 'tiny', expected a mapping of settings"),
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


@pytest.mark.parametrize("override", ["run={name: '1e5'}", "run.name=1e5", "++run.name='1e5'"])
def test_a_run_may_be_called_by_a_number_in_quotes(override: str) -> None:
    assert load(find_recipe("debug"), [override]).run.name == "1e5"


def test_null_turns_off_what_may_be_off(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "defaults: [config, {override logger: csv}, _self_]\nagents: {tool: a}\n"
        "logger: {prefix: x}\nsamples: {every: 2}\n"
    )
    assert load(recipe, []).logger.prefix == "x"
    config = load(recipe, ["logger=null", "heldout=null", "samples=null"])
    assert (config.logger, config.heldout, config.samples) == (None, None, None)


@pytest.mark.parametrize(
    "overrides",
    [
        ["engine.vllm.max_model_len=1032"],
        ["engine.vllm.max_model_len=8", "engine=transformers"],  # which has no such limit
        ["batching.aggregation=trajectory_mean", "sampler=parallel", "~sampler.branches"],
    ],
    ids=lambda overrides: " ".join(overrides),
)
def test_settings_that_fit_each_other_pass(overrides: list[str]) -> None:
    assert main(["fit", "--config", "debug", "--dry-run", *overrides]) == 0


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


@pytest.mark.parametrize("first", ["hydra", "judge"])
def test_hydra_and_the_answer_judge_parse_in_one_process(first: str) -> None:
    # Both bring grammars for antlr; the second answer needs math-verify's, the first is plain arithmetic.
    parts = {
        "hydra": "from atgrpo.cli.config import find_recipe, load\n"
        "config = load(find_recipe('debug'), ['optimizer.betas=[0.5,0.75]'])\n"
        "assert list(config.optimizers.solver.betas) == [0.5, 0.75]\n",
        "judge": "from atgrpo.envs.answers import equal\n"
        "assert equal(r'\\frac{63}{400}', '63/400')\n"
        "assert equal(r'\\frac{\\sqrt{63}}{3}', r'\\sqrt{7}') and not equal(r'\\sqrt{8}', r'\\sqrt{7}')\n"
        "import sys; assert 'math_verify' in sys.modules\n",
    }
    code = "".join(parts[name] for name in sorted(parts, key=lambda name: name != first))
    subprocess.run([sys.executable, "-c", code], check=True)


RECIPE = "defaults: [config, _self_]\nagents: {tool: a, reasoner: a}\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            f"{RECIPE}sampler: parallel\n",
            "sampler: got 'parallel', expected a mapping; choose a group with "
            "defaults: [config, {override sampler: parallel}, _self_] or sampler=parallel on the command line",
        ),
        (f"{RECIPE}loss: clipped\n", "loss: got 'clipped', expected a mapping"),
        ("agents: {tool: a}\n", "env: got None, expected a mapping; choose a group with "),
        ("agents: {tool: a}\nenv: {depth: 1}\n", "env: got no _target_, expected a mapping with one; choose"),
        ("defaults: [config, _self_]\nagents: {}\n", "agents: got none, expected role: policy"),
        ("iterations: [\n", "line 2, column 1"),
        ("- iterations\n", "must be a DictConfig"),
        (f"{RECIPE}run: {{name: 123E456}}\n", "run.name: got the float inf, expected text: put it in quotes"),
        (f"{RECIPE}run: {{name: 007}}\n", "run.name: got the int 7, expected text: put it in quotes"),
        (f"{RECIPE}run: {{root: true}}\n", "run.root: got the bool True, expected text: put it in quotes"),
    ],
)
def test_a_wrong_recipe_is_told_in_one_line(body: str, said: str, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(body)
    with pytest.raises(ConfigError) as refusal:
        load(recipe, [])
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["math", "math.yaml", "recipes/math.yaml", "./recipes/math", "recipes/math"])
def test_a_shipped_recipe_is_found_from_anywhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_recipe(name) == recipes_dir() / "math.yaml"


@pytest.mark.parametrize("name", ["experiments/math.yaml", "my/recipes/math.yaml", "../math", "/recipes/math.yaml"])
def test_a_mistyped_path_does_not_run_a_shipped_recipe(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        find_recipe(name)


def test_an_own_recipe_goes_before_a_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "math.yaml").write_text(RECIPE)
    assert find_recipe("math.yaml") == tmp_path / "math.yaml"


def test_a_yml_file_is_refused_instead_of_its_yaml_twin(tmp_path: Path) -> None:
    for ending in ("yml", "yaml"):
        (tmp_path / f"mine.{ending}").write_text(RECIPE)
    with pytest.raises(ConfigError, match=r"mine\.yml, expected a file that ends in \.yaml"):
        find_recipe(str(tmp_path / "mine.yml"))


def test_paths_may_hold_spaces_commas_and_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "it's a, b [c]"
    shutil.copytree(conf_dir(), odd / "conf")
    (odd / "my recipe.yaml").write_text(RECIPE)
    monkeypatch.setattr("atgrpo.cli.config.conf_dir", lambda: odd / "conf")
    config = load(find_recipe(str(odd / "my recipe.yaml")), ["sampler=parallel"])
    assert config.sampler._target_.endswith("ParallelSampler")


def test_settings_after_the_roles_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[argparse.Namespace] = []
    monkeypatch.setattr(commands, "score", seen.append)
    words = ["evaluate", "--config", "debug", "seed=3", "--agents", "tool", "data.steps=[3]", "--seed", "7"]
    assert main([*words, "iterations=1"]) == 0
    assert seen[0].agents == ["tool"]
    assert sorted(seen[0].overrides) == ["data.steps=[3]", "iterations=1", "seed=3"]
    assert seen[0].seed == 7


def test_settings_alone_are_no_roles(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["evaluate", "--config", "debug", "--agents", "data.steps=[3]"])
    assert end.value.code == 2
    assert "--agents: expected at least one role" in capsys.readouterr().err


def test_a_module_beside_the_recipe_is_found_wherever_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_this_recipe.py").write_text("from atgrpo.envs.math import MathTeam as Mine\n")
    (tmp_path / "own.yaml").write_text(
        "defaults: [config, _self_]\nagents: {tool: a}\nenv: {_target_: beside_this_recipe.Mine}\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load(tmp_path / "own.yaml", []).env._target_ == "beside_this_recipe.Mine"


def test_a_team_that_is_named_whole_takes_the_place_of_the_recipes() -> None:
    whole = load(find_recipe("plan_path"), ["agents={tool: solver, planner: other}", "seed=3"])
    assert (dict(whole.agents), whole.seed) == ({"tool": "solver", "planner": "other"}, 3)
    added = load(find_recipe("plan_path"), ["agents.tool=solver"])
    assert list(added.agents) == ["proposer", "critic", "tool"]
    changed = load(
        find_recipe("plan_path"), ["agents={tool: solver, critic: solver}", "agents.tool=own", "~agents.critic"]
    )
    assert dict(changed.agents) == {"tool": "own"}
    with pytest.raises(ConfigError, match=r"agents: got ~agents.critic, expected one of tool"):
        load(find_recipe("plan_path"), ["agents={tool: solver}", "~agents.critic"])
