from __future__ import annotations

from dataclasses import replace

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from atgrpo.cli.config import find_recipe, load
from atgrpo.paths import conf_dir
from benchmarks.grouping.cells import Cell, Method, expand, fits, read_tasks
from tests.benchmarks.grouping.made import SETTINGS, TASK, make_cell

CONF = str(conf_dir().parent / "benchmarks" / "grouping" / "conf")
PRESETS = ("core", "quick", "wide", "credit", "ablations", "qwen3")


def labels(**more: object) -> list[str]:
    return [cell.method.label for cell in expand({**SETTINGS, "seeds": [0], **more}, {"letters": TASK})]


def test_everything_is_crossed_but_for_what_an_estimator_refuses() -> None:
    assert labels() == ["at_grpo-tree-step", "at_grpo-parallel-outcome", "grpo-parallel-outcome"]
    assert labels(credits=["step", "continuation", "outcome"], groupings=["c3", "rloo"]) == [
        "c3-tree-continuation",
        "rloo-tree-step",
        "rloo-tree-continuation",
        "rloo-parallel-step",
        "rloo-parallel-outcome",
    ]


def test_the_tasks_own_credit_and_its_name_are_one_cell() -> None:
    assert labels(arms=["at_grpo-tree-task", "at_grpo-tree-step"]) == ["at_grpo-tree-step"]


@pytest.mark.parametrize("label", ["grpo-tree-step", "c3-tree-step"])
def test_an_arm_that_its_estimator_refuses_is_named(label: str) -> None:
    with pytest.raises(ValueError, match=f"arms got {label}"):
        labels(arms=[label])


@pytest.mark.parametrize("label", ["at_grpo", "at_grpo-graph-step", "at_grpo-tree-outcome"])
def test_a_label_that_says_nothing_is_named(label: str) -> None:
    with pytest.raises(ValueError, match=f"method got '{label}'"):
        Method.parse(label)


def test_a_task_and_an_estimator_that_do_not_exist_are_named() -> None:
    with pytest.raises(ValueError, match="tasks got chess"):
        expand({**SETTINGS, "tasks": ["chess"]}, {"letters": TASK})
    with pytest.raises(ValueError, match="grouping got 'ppo'"):
        labels(groupings=["ppo"])


def test_a_selection_rule_makes_no_second_cell_of_trajectories() -> None:
    found = expand({**SETTINGS, "seeds": [0], "selection": ["greedy", "uniform"]}, {"letters": TASK})
    assert [cell.arm for cell in found] == [
        "at_grpo-tree-step",
        "at_grpo-tree-step-select_uniform",
        "at_grpo-parallel-outcome",
        "grpo-parallel-outcome",
    ]


def test_roles_that_are_trained_alone_share_the_budget() -> None:
    settings = {**SETTINGS, "seeds": [0], "arms": ["at_grpo-tree-step"], "policies": ["per_role"], "alone": True}
    team, tool, reasoner = expand(settings, {"letters": TASK})
    assert (team.tokens, tool.tokens, reasoner.tokens) == (1000, 500, 500)
    assert {"~agents.reasoner", "agents.tool=tool", "env.decider=tool"} <= set(tool.overrides())


def test_a_command_says_everything_that_differs() -> None:
    words = set(make_cell("dr_grpo-parallel-step", 3, branches=4, alpha="local", lr=1e-4).words)
    assert words >= {
        "seed=3",
        "warm_start.seed=3",
        "warm_start.steps=3",
        "advantage=dr_grpo",
        "batching.constant_length=8",
        "sampler=parallel",
        "sampler.trajectories=4",
        "sampler.alpha=0",
        "optimizer.lr=0.0001",
        "callbacks.budget.tokens=1000",
    }


def test_cells_that_differ_have_different_names() -> None:
    base = make_cell()
    others: list[Cell] = [
        replace(base, **change)  # type: ignore[arg-type]
        for change in (
            {"seed": 1},
            {"policies": "per_role"},
            {"alpha": "team"},
            {"branches": 4},
            {"selection": "first"},
            {"lr": 1e-3},
            {"only": "tool"},
            {"method": Method.parse("rloo-tree-step")},
        )
    ]
    assert len({cell.name for cell in [base, *others]}) == 9


@pytest.fixture(scope="module")
def shipped() -> dict[str, list[Cell]]:
    """Preset -> its cells of one seed."""
    found = {}
    for preset in PRESETS:
        with initialize_config_dir(CONF, version_base="1.3"):
            composed = OmegaConf.to_container(compose("config", [f"preset={preset}", "seeds=[0]"]))
        assert isinstance(composed, dict)
        found[preset] = expand(composed, read_tasks(composed["definitions"]))
    return found


def test_contrasts_and_arms_of_the_presets_fit(shipped: dict[str, list[Cell]]) -> None:
    assert all(fits(cell.method) for cells in shipped.values() for cell in cells)
    compared = {cell.method.grouping for cell in [*shipped["core"], *shipped["wide"]]}
    assert compared == {file.stem for file in (conf_dir() / "advantage").glob("*.yaml")}  # none is left out
    assert {cell.only for cell in shipped["ablations"]} == {None, "proposer", "critic"}


def test_every_kind_of_cell_composes(shipped: dict[str, list[Cell]]) -> None:
    """Each task with each sampler and split, and each estimator."""
    kinds = {}
    for cells in shipped.values():
        for cell in cells:
            kinds[cell.task.name, cell.method.sampler, cell.policies, cell.only] = cell
            kinds[cell.method.grouping] = cell
    base = next(cell for cell in shipped["core"] if cell.task.name == "plan_path" and cell.method.sampler == "tree")
    extras = [replace(base, alpha="team"), replace(base, alpha="local"), replace(base, selection="softmax", lr=1e-4)]
    for cell in [*kinds.values(), *extras]:
        config = load(find_recipe(cell.task.recipe), cell.overrides())
        assert (config.sampler.credit, config.run.name) == (cell.method.credit, cell.name)
        assert config.callbacks.budget.tokens == cell.tokens
        assert (config.schedule.name, config.schedule.warmup) == ("constant_with_warmup", 0)  # no length is known
