"""Algorithms and their training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from atgrpo.cli.config import ConfigError
from atgrpo.cli.runs import CHECKPOINTS, RunFolder
from atgrpo.marl.actors import GaussianActor
from atgrpo.marl.callbacks.algorithm import Algorithm, standardised
from atgrpo.marl.callbacks.dec_ppo import DecPPO
from atgrpo.marl.callbacks.heldout import HeldOutTeams
from atgrpo.marl.callbacks.mappo import MAPPO
from atgrpo.marl.callbacks.relative import Relative, correlation
from atgrpo.marl.evaluation import evaluate
from atgrpo.marl.simulator import Simulator, Starts
from atgrpo.marl.tasks import BoxPushing, Earned, Navigation
from atgrpo.marl.types import Experience
from atgrpo.training.callbacks.checkpoint import saved_iterations
from tests.marl.teams import fit, parts, same

ONES = ["algorithm=relative", "algorithm.form=ones"]


def experience(**changed: Any) -> Experience:
    """One seed, three steps, one environment, two agents; the time limit cuts after the second step."""
    flags = torch.tensor([False, True, False]).view(1, 3, 1)
    seen = torch.zeros(1, 3, 1, 2, 4)
    own = torch.tensor([[1.0, 0.0], [2.0, 1.0], [3.0, 0.0]]).view(1, 3, 1, 2)
    made = Experience(
        observations=seen,
        actions=torch.zeros(1, 3, 1, 2, 2),
        logprobs=torch.zeros(1, 3, 1, 2),
        rewards=own,
        group_rewards=torch.tensor([1.0, 0.0, -1.0]).view(1, 3, 1),
        next_observations=seen,
        terminated=torch.zeros_like(flags),
        ended=flags,
        values=torch.tensor([[2.0, 0.0], [4.0, 0.0], [8.0, 0.0]]).view(1, 3, 1, 2),
        next_values=torch.tensor([[4.0, 0.0], [6.0, 2.0], [2.0, 0.0]]).view(1, 3, 1, 2),
        group_values=torch.zeros(1, 3, 1),
        next_group_values=torch.tensor([0.0, 2.0, 0.0]).view(1, 3, 1),
    )
    return replace(made, **changed)


@pytest.mark.parametrize("algorithm", [DecPPO(0.5, 0.5), MAPPO(0.5, 0.5), Relative(gamma=0.5, lam=0.5)])
def test_targets_at_a_time_limit_by_hand(algorithm: Algorithm):
    scored = algorithm.on_rollout_end(None, None, experience())
    assert scored.targets is not None
    # agent 0: advantages 1.25, 1, -4; agent 1: 0.5, 2 (1 + .5*2), 0
    assert scored.targets.view(3, 2).tolist() == [[3.25, 0.5], [5.0, 2.0], [4.0, 0.0]]


def test_success_has_no_value_behind_it():
    ended = torch.tensor([False, True, False]).view(1, 3, 1)
    scored = MAPPO(0.5, 0.5).on_rollout_end(None, None, experience(terminated=ended))
    assert scored.targets is not None
    assert scored.targets.view(3, 2).tolist() == [[2.5, 0.25], [2.0, 1.0], [4.0, 0.0]]


def test_the_teams_targets_are_of_the_group_reward():
    scored = Relative(gamma=0.5, lam=0.5).on_rollout_end(None, None, experience())
    assert scored.group_targets is not None
    assert scored.group_targets.flatten().tolist() == [1.25, 1.0, -1.0]


def test_advantages_are_standardised_in_each_seed_by_itself():
    values = torch.tensor([[1.0, 3.0], [100.0, 300.0]])
    torch.testing.assert_close(standardised(values), torch.tensor([[-1.0, 1.0], [-1.0, 1.0]]) / 2**0.5)


@pytest.mark.parametrize("shape", [(1, 50, 128), (2, 1, 1)])
@pytest.mark.parametrize("value", [0.1, 1.0, 1.7, 1000.1])
def test_values_that_are_all_alike_have_no_advantage(shape: tuple[int, ...], value: float):
    """Their mean is not exact in float32, nor their deviation 0."""
    values = torch.full(shape, value)
    assert bool((standardised(values) == 0).all())
    assert bool((correlation(values, torch.randn(shape)) == 0).all())


def test_weights_metrics_tell_a_group_reward_that_is_only_the_sum():
    own = torch.randn(1, 50, 4)
    assert correlation(own.sum(-1), own.sum(-1)).item() == pytest.approx(1.0)
    assert correlation(torch.ones(1, 50), own.sum(-1)).item() == 0.0


def test_relative_needs_the_teams_value():
    with pytest.raises(ValueError, match="no values of the team"):
        Relative().on_rollout_end(None, None, experience(group_values=None))


def test_a_guard_of_no_width_is_refused_before_training():
    with pytest.raises(ValueError, match="eps: got 0"):
        Relative(eps=0.0)


def test_weights_of_one_are_mappo_to_the_last_bit(tmp_path: Path):
    mappo = fit(tmp_path / "a", "algorithm=mappo").state()
    ones = fit(tmp_path / "b", *ONES).state()
    assert any(name.startswith("group_critic") for name in ones)
    assert same(mappo, {name: value for name, value in ones.items() if not name.startswith("group_critic")})
    weighted = fit(tmp_path / "c", "algorithm=relative").state()
    assert not torch.equal(weighted["actor.network.mlp.weights.0"], ones["actor.network.mlp.weights.0"])


@pytest.mark.parametrize(
    "overrides", [["algorithm=relative"], ["algorithm=dec_ppo"], ["actor=categorical"], ["actor.shared=false"]]
)
def test_a_run_that_is_resumed_is_the_run_left_alone(overrides: list[str], tmp_path: Path):
    alone = fit(tmp_path / "a", "iterations=3", *overrides)
    fit(tmp_path / "b", "iterations=1", *overrides)
    resumed = fit(tmp_path / "b", "iterations=3", *overrides, resume=True)
    assert same(alone.state(), resumed.state())
    assert resumed.data.finished == 3


def test_a_seed_learns_the_same_alone_and_beside_another(tmp_path: Path):
    both = fit(tmp_path / "a", "seeds=2", "algorithm=relative").state()
    alone = fit(tmp_path / "b", "seed=1", "algorithm=relative").state()
    for name, value in alone.items():
        torch.testing.assert_close(both[name][1:], value, atol=1e-5, rtol=1e-4)
    assert not torch.equal(both["actor.network.mlp.weights.0"][:1], alone["actor.network.mlp.weights.0"])


def test_a_robot_learns_to_go_to_its_goal(tmp_path: Path):
    settings = ["seeds=2", "envs=64", "steps=40", "iterations=8", "task.agents=1", "task.time_limit=60"]
    settings += ["ppo.minibatch=320", "ppo.epochs=8", "algorithm=mappo"]
    built, judge = parts(*settings), HeldOutTeams(64)
    before = judge.score(built.task, built.module()).metrics["return"]
    after = judge.score(built.task, fit(tmp_path, *settings).module).metrics["return"]
    assert bool((after > before + 0.4).all())


def test_who_does_not_act_stays_where_it_was():
    task = BoxPushing(time_limit=20)
    simulator, starts = Simulator(task, 1, continuous=True), Starts.draw(task, 1, 1)
    actor = GaussianActor([0], simulator.spec)
    with torch.no_grad():
        actor.network.mlp.biases[-1] += 1
    places: list[torch.Tensor] = []
    evaluate(simulator, actor, starts, 1, acting=[True, False], watch=lambda s: places.append(s.positions()[0, :2]))
    way = places[-1] - places[0]
    assert way[0].norm() > 0.1
    assert way[1].tolist() == [0.0, 0.0]
    assert len(places) == 21


def test_a_gradient_that_is_no_number_stops_the_run_before_it_is_learned_from(tmp_path: Path):
    built = parts()
    module = built.module()
    with torch.no_grad():
        module.critic.network.mlp.biases[0].fill_(torch.nan)  # type: ignore[union-attr,index]
    with pytest.raises(FloatingPointError, match="nothing was updated"):
        built.trainer(RunFolder(tmp_path, None)).fit(module, datamodule=built.datamodule())


class Fails(MAPPO):
    """Once, in the middle of an iteration: the environments have moved by then."""

    def on_rollout_end(self, trainer: Any, pl_module: Any, experience: Experience) -> Experience:
        if trainer.datamodule.finished == 2:
            raise KeyError("mine")
        return super().on_rollout_end(trainer, pl_module, experience)


def test_what_stops_a_rollout_leaves_the_last_good_checkpoint_as_it_was(tmp_path: Path):
    alone = fit(tmp_path / "a", "iterations=4")
    failing = f"algorithm={{_target_: {__name__}.Fails}}"
    with pytest.raises(KeyError, match="mine"):
        fit(tmp_path / "b", "iterations=4", "checkpoint.every=2", failing)
    (saved,) = saved_iterations(tmp_path / "b" / CHECKPOINTS)
    assert saved.iteration == 2
    assert same(alone.state(), fit(tmp_path / "b", "iterations=4", resume=True).state())


def test_a_run_goes_on_at_the_rate_that_it_is_given(tmp_path: Path):
    fit(tmp_path / "a", "iterations=1")
    module = fit(tmp_path / "a", "iterations=2", "ppo.lr=1e-9", resume=True).module
    assert [group["lr"] for group in module.optimizers().param_groups] == [1e-9]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "setting",
    [
        "ppo.clip=1.5", "ppo.value_clip=0", "ppo.huber=-1", "ppo.entropy=nan", "ppo.value=-1", "ppo.lr=inf",
        "ppo.critic_hidden=[0]", "algorithm.gamma=2", "algorithm.lam=nan", "task.agents=0", "task.agents=100",
        "task.time_limit=0",
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_starts(setting: str):
    with pytest.raises(ConfigError, match=f"{setting.partition('=')[0]}: got .*, expected"):
        parts(setting)


@pytest.mark.parametrize("setting", ["task.mass=0", "task.friction=-1", "task.progress=nan", "task.start=[0.7,0.6]"])
def test_boxes_that_cannot_be_are_refused(setting: str):
    with pytest.raises(ConfigError, match=f"{setting.partition('=')[0]}: got .*, expected"):
        parts(setting, recipe="box_pushing")


def test_deviations_may_start_at_a_whole_number():
    assert parts("actor.log_std=-1").module().actor.log_std.unique().tolist() == [-1.0]


def test_rewards_of_another_shape_are_not_taken_for_the_agents():
    class Turned(Navigation):
        def earned(self, *given: Any) -> Earned:
            found = super().earned(*given)
            return Earned(found.own.t(), found.group)

    simulator = Simulator(Turned(), 8, continuous=True)
    with pytest.raises(ValueError, match=r"Turned\.earned: got own rewards of shape \(4, 8\), expected \(8, 4\)"):
        simulator.advance(torch.zeros(8, 4, 2))
