"""What VMAS does by itself and what we need it to do."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from atgrpo.cli.marl import TRAINED_ON
from atgrpo.marl.callbacks.heldout import HELD_OUT
from atgrpo.marl.environments import Environments
from atgrpo.marl.seeding import generator
from atgrpo.marl.simulator import Simulator, Starts
from atgrpo.marl.tasks import BoxPushing, Measures, Navigation, Task

TASKS = [Navigation(agents=3, time_limit=7), BoxPushing(time_limit=7)]
EVERYWHERE = torch.ones(4, dtype=torch.bool)


def placed(task: Task, envs: int = 4, seed: int = 1) -> tuple[Simulator, Starts]:
    starts = Starts.draw(task, 32, seed)
    simulator = Simulator(task, envs, continuous=True)
    simulator.place(torch.ones(envs, dtype=torch.bool), starts.positions[:envs])
    return simulator, starts


def environments(task: Task, *seeds: int, envs: int = 4) -> Environments:
    return Environments(Simulator(task, envs * len(seeds), continuous=True), Starts.draw(task, 32, 1), seeds)


def actions(task: Task, envs: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(envs, task.agents, 2, generator=torch.Generator().manual_seed(seed))


def play(where: Environments, steps: int) -> list[Tensor]:
    draws = [generator(seed, 1, 0) for seed in where.seeds]
    shape = (where.envs, where.spec.agents, 2)
    seen = []
    for _ in range(steps):
        where.step(torch.stack([torch.randn(shape, generator=draw) for draw in draws]), draws)
        seen.append(where.observations.clone())
    return seen


@pytest.mark.parametrize("task", TASKS)
def test_starts_are_the_same_whoever_drew_before(task: Task):
    first = Starts.draw(task, 16, 5)
    Simulator(task, 2, continuous=True)  # VMAS seeds all its environments at once
    again = Starts.draw(task, 16, 5)
    assert torch.equal(first.positions, again.positions)
    assert not torch.equal(first.positions, Starts.draw(task, 16, 6).positions)


@pytest.mark.parametrize("task", TASKS)
def test_no_state_to_train_on_is_held_out(task: Task):
    trained, held_out = (
        {tuple(state) for state in Starts.draw(task, 256, seed).positions.flatten(1).tolist()}
        for seed in (TRAINED_ON, HELD_OUT)
    )
    assert len(trained) == len(held_out) == 256
    assert not trained & held_out


@pytest.mark.parametrize("task", TASKS)
def test_a_placed_state_is_seen_as_where_it_was_drawn(task: Task):
    simulator, starts = placed(task)
    simulator.advance(actions(task))
    simulator.place(EVERYWHERE, starts.positions[4:8])
    assert torch.equal(simulator.observe(), starts.observations[4:8])


@pytest.mark.parametrize("task", TASKS)
def test_nobody_is_rewarded_for_being_placed_elsewhere(task: Task):
    simulator, starts = placed(task)
    only = torch.tensor([True, False, False, False])
    simulator.place(only, starts.positions[8:12])
    earned = simulator.advance(torch.zeros(4, task.agents, 2)).earned
    assert earned.own.abs().max() < 1e-5
    assert earned.group.abs().max() < 1e-5


def test_the_seed_of_the_user_is_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    simulator, _ = placed(TASKS[0])
    simulator.advance(actions(TASKS[0]))
    assert torch.equal(torch.rand(1), expected)


def test_actions_out_of_range_are_clamped_and_not_refused():
    task = TASKS[0]
    simulator, starts = placed(task)
    far = simulator.advance(torch.full((4, 3, 2), 50.0)).observations
    simulator.place(EVERYWHERE, starts.positions[:4])
    assert torch.equal(far, simulator.advance(torch.ones(4, 3, 2)).observations)


def test_navigation_rewards_by_hand():
    task = Navigation(agents=2)
    simulator = Simulator(task, 1, continuous=True)
    # robots at rest at 0 and 1 on the x axis, their goals 0.2 to the right and 0.5 above
    place = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [0.2, 0.0], [1.0, 0.5]]])
    simulator.place(torch.ones(1, dtype=torch.bool), place)
    assert simulator.measures["farthest"].item() == pytest.approx(0.5)
    step = simulator.advance(torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]))
    moved = simulator.positions()[0, 0, 0].item()
    assert moved > 0
    assert step.earned.own[0].tolist() == pytest.approx([moved, 0.0])
    assert step.earned.group.item() == pytest.approx(0.0)  # the one that has farthest to go stood still
    assert step.measures["coverage"].item() == 0.0


def test_navigation_ends_where_all_are_covered_and_pays_the_team_for_it():
    simulator = Simulator(Navigation(agents=2), 1, continuous=True)
    place = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [0.07, 0.0], [1.0, 0.05]]])  # within .1, not within VMAS's .05
    simulator.place(torch.ones(1, dtype=torch.bool), place)
    step = simulator.advance(torch.zeros(1, 2, 2))
    assert step.done.tolist() == [True]
    assert step.measures["coverage"].item() == 1.0
    assert step.earned.group.item() == pytest.approx(1.0)


def test_a_collision_costs_both_robots_and_is_one_to_the_team():
    simulator = Simulator(Navigation(agents=2), 1, continuous=True)
    place = torch.tensor([[[0.0, 0.0], [0.3, 0.0], [5.0, 0.0], [-5.0, 0.0]]])
    simulator.place(torch.ones(1, dtype=torch.bool), place)
    towards = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
    apart = simulator.advance(towards)
    together = next(step for step in (simulator.advance(towards) for _ in range(20)) if step.measures["collisions"])
    assert apart.measures["collisions"].item() == 0.0
    assert together.measures["collisions"].item() == 1.0
    assert together.earned.own[0].tolist() == pytest.approx([-1.0, -1.0], abs=0.1)
    assert together.earned.group.item() == pytest.approx(-1.0, abs=0.1)


def test_pushing_is_paid_by_the_way_of_the_box_whatever_the_way_of_the_robots():
    task = BoxPushing()
    simulator, _ = placed(task)
    before, total = simulator.measures["box_distance"], torch.zeros(4)
    approach, way = simulator.measures["behind"], torch.zeros(4, 2)
    for seed in range(60):
        step = simulator.advance(actions(task, seed=seed) + 0.5)
        total += step.earned.group
        way += task.approach * (approach - step.measures["behind"])
        approach = step.measures["behind"]
    torch.testing.assert_close(total, task.progress * (before - simulator.measures["box_distance"]))


@given(
    way=st.lists(st.integers(0, 20), min_size=1, max_size=8),
    touching=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=10, max_size=10),
)
def test_a_box_that_is_back_where_it_was_has_earned_nobody_anything(
    way: list[int], touching: list[tuple[bool, bool]]
) -> None:
    """Whoever touched it on which part of the way: two could push forth and one back."""
    task, there = BoxPushing(), [10, *way, 10]
    states = [
        {
            "box_distance": torch.tensor([distance / 10]),
            "behind": torch.full((1, 2), 0.3),
            "touching": torch.tensor([touching[i]]),
        }
        for i, distance in enumerate(there)
    ]
    steps = [task.earned(a, b, torch.zeros(1, 2), torch.zeros(1, dtype=torch.bool)) for a, b in pairwise(states)]
    assert bool((sum(step.own for step in steps) <= 1e-5).all())
    torch.testing.assert_close(sum(step.group for step in steps), torch.zeros(1), atol=1e-5, rtol=0)


def test_the_boxs_way_is_gained_by_who_touches_it_and_lost_by_all() -> None:
    task = BoxPushing(progress=5.0, approach=2.0, delivery=2.0)

    def state(distance: float, *touching: bool) -> Measures:
        behind = torch.tensor([[0.3, 0.3]])
        return {"box_distance": torch.tensor([distance]), "behind": behind, "touching": torch.tensor([touching])}

    def own(before: Measures, after: Measures, done: bool = False) -> list[float]:
        return task.earned(before, after, torch.zeros(1, 2), torch.tensor([done])).own[0].tolist()

    assert own(state(0.6, True, False), state(0.5, True, False)) == pytest.approx([0.5, 0.0])
    assert own(state(0.5, True, False), state(0.6, True, False)) == pytest.approx([-0.5, -0.5])
    assert own(state(0.2, True, False), state(0.1, True, False), done=True) == pytest.approx([2.5, 0.0])


def push(robots: int, start: float) -> bool:
    """Whether robots that stand behind the box, and do nothing but push, deliver it in time."""
    task = BoxPushing(agents=robots)
    simulator = Simulator(task, 1, continuous=True)
    sides = [0.0] if robots == 1 else [0.04, -0.04]
    robot_places = [[-0.12, side] for side in sides]
    simulator.place(torch.ones(1, dtype=torch.bool), torch.tensor([[*robot_places, [start, 0.0], [0.0, 0.0]]]))
    force = torch.tensor([[[1.0, 0.0]] * robots])
    return any(bool(simulator.advance(force).done) for _ in range(task.time_limit))


def test_one_robot_cannot_deliver_the_box_in_time_and_two_can():
    near, far = BoxPushing().start
    assert not push(1, near)
    assert push(2, far)


def test_boxes_start_within_their_range():
    task = BoxPushing()
    starts = Starts.draw(task, 64, 3)
    box, goal = starts.positions[:, -1], starts.positions[:, -2]
    distance = (box - goal).norm(dim=-1)
    assert task.start[0] <= distance.min() <= distance.max() <= task.start[1]


def test_too_narrow_a_range_of_starts_is_refused():
    with pytest.raises(ValueError, match="too few states"):
        Starts.draw(BoxPushing(start=(5.0, 6.0)), 4, 0)


@pytest.mark.parametrize("task", TASKS)
def test_a_time_limit_ends_an_episode_and_does_not_call_it_completed(task: Task):
    where = environments(task, 0)
    where._clock.fill_(task.time_limit - 1)
    draws = [generator(0, 1, 0)]
    step = where.step(torch.zeros(1, 4, task.agents, 2), draws)
    assert step.ended.all()
    assert not step.terminated.any()
    assert not torch.equal(step.observations, where.observations)  # the last state, and the first one of the next
    assert where._clock.tolist() == [[0] * 4]


def test_only_whole_episodes_are_counted():
    task = TASKS[0]
    where = environments(task, 0, envs=16)
    cut_short = int((where._clock > 0).sum())
    assert 0 < cut_short < 16
    play(where, task.time_limit)
    assert int(where.pop_episodes().count) == 16 - cut_short
    play(where, task.time_limit)
    episodes = where.pop_episodes()
    assert int(episodes.count) == 16
    assert episodes.means()["length"].item() == pytest.approx(task.time_limit)


@pytest.mark.parametrize("task", TASKS)
def test_a_seed_plays_the_same_alone_and_beside_another(task: Task):
    together, alone = environments(task, 4, 5), environments(task, 5)
    for both, one in zip(play(together, 12), play(alone, 12), strict=True):
        torch.testing.assert_close(both[1:], one)


@pytest.mark.parametrize("task", TASKS)
def test_a_restored_state_goes_on_to_the_last_bit(task: Task):
    first = environments(task, 0)
    play(first, 5)
    saved: dict[str, Any] = first.state_dict()
    expected = play(first, 9)
    second = environments(task, 0)
    second.load_state_dict(saved)
    for got, wanted in zip(play(second, 9), expected, strict=True):
        assert torch.equal(got, wanted)
