from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import atgrpo.envs.sokoban as sokoban
from atgrpo.data.sokoban import SokobanLevels
from atgrpo.envs.sokoban import Level, SokobanTeam
from tests.envs.puzzles import LEVEL, act, seen, team

SAMPLES = SokobanLevels(boxes=2, train_size=16, heldout_size=16).split("heldout")


def test_the_hand_made_level_takes_five_moves() -> None:
    level = Level.parse(LEVEL)
    assert level.shortest == 5
    assert len(level.solution(level.start) or "") == 5


@pytest.mark.parametrize(
    ("plan", "local", "last"),
    [
        ("R", 0.192, "#-@-#\n#-$-#\n#--.#"),
        ("RD", 0.384, "#---#\n#-@-#\n#-$.#"),
        ("RDLDR", 0.96, "#---#\n#---#\n#-@*#"),
        ("RDD", 0.364, "#---#\n#-@-#\n#-$.#"),  # the box stands before the wall
        ("DR", 0.384, "#---#\n#-@$#\n#--.#"),
        ("U", -0.02, "#@--#\n#-$-#\n#--.#"),
        ("RRDL", 0.0, "#---#\n#$@-#\n#--.#"),  # the box can never leave the wall again
    ],
)
def test_a_plan_is_paid_for_the_moves_it_saves(plan: str, local: float, last: str) -> None:
    env = team(SokobanTeam, LEVEL)
    result = act(env, "planner", plan)
    assert result.local_reward == pytest.approx(local)
    if not result.done:
        assert seen(env, "planner").split("\nPlanner")[0] == f"#####\n{last}\n#####"
    assert result.done == (last == "#---#\n#---#\n#-@*#")
    assert env.success == result.team_reward == float(result.done)


def test_a_level_that_can_no_longer_be_solved_earns_nothing_more() -> None:
    env = team(SokobanTeam, LEVEL)
    act(env, "planner", "RRDL")
    assert env.demonstrate("planner") is None
    assert act(env, "planner", "R").local_reward == 0.0
    assert not env.done


def test_a_box_does_not_push_another_and_a_player_stands_on_goals() -> None:
    env = team(SokobanTeam, "#######\n#-----#\n#@$$--#\n#-.-.-#\n#######")
    assert act(env, "planner", "R").info == {"illegal": "blocked at move 1"}
    act(env, "planner", "DR")
    assert seen(env, "planner") == "#######\n#-----#\n#-$$--#\n#-+-.-#\n#######"


def test_the_critic_reads_where_the_proposal_ends() -> None:
    env = team(SokobanTeam, LEVEL)
    act(env, "proposer", "RDD")
    note = "Proposer: RDD blocked at move 3, ends at (3,3), 0/1 done"
    assert seen(env, "critic") == f"{LEVEL}\n{note}"


def forward(text: str) -> int:
    """Fewest moves by playing forward on sets of cells: another program than the one under test."""
    cells = {(r, c): cell for r, row in enumerate(text.split("\n")) for c, cell in enumerate(row)}
    goals = {key for key, cell in cells.items() if cell in ".*+"}
    boxes = frozenset(key for key, cell in cells.items() if cell in "$*")
    layer = {(next(key for key, cell in cells.items() if cell in "@+"), boxes)}
    known, moves = set(layer), 0
    while layer:
        if any(boxes == goals for _, boxes in layer):
            return moves
        following = set()
        for (r, c), boxes in layer:
            for dr, dc in ((0, 1), (1, 0), (0, -1), (-1, 0)):
                to, beyond = (r + dr, c + dc), (r + 2 * dr, c + 2 * dc)
                pushed = to in boxes
                if cells[to] == "#" or (pushed and (cells[beyond] == "#" or beyond in boxes)):
                    continue
                following.add((to, boxes - {to} | {beyond} if pushed else boxes))
        layer, moves = following - known, moves + 1
        known |= layer
    raise AssertionError(f"no solution: {text}")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_the_shortest_solution_is_that_of_another_solver(sample: object) -> None:
    level = Level.parse(sample.prompt)  # type: ignore[attr-defined]
    assert level.shortest == forward(sample.prompt)  # type: ignore[attr-defined]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 15), st.lists(st.text("UDLR", min_size=1, max_size=8), max_size=6))
def test_boxes_are_neither_lost_nor_made_and_success_is_all_of_them_on_goals(index: int, plans: list[str]) -> None:
    env = team(SokobanTeam, SAMPLES[index].prompt)
    for plan in plans:
        if env.done:
            break
        act(env, "planner", plan)
        grid = seen(env, "planner").split("\nPlanner")[0]
        assert sum(map(grid.count, "$*")) == sum(map(grid.count, ".*+")) == 2
        assert sum(map(grid.count, "@+")) == 1
        assert env.done == ("$" not in grid)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#####\n#-$.#\n#####", "level got 0 players, expected one"),
        ("#@@$.#", "level got 2 players"),
        ("#@$.-.#", "level got 1 boxes and 2 goals"),
        ("#@--#", "level got 0 boxes and 0 goals"),
        ("#$@.#", "no solution"),
        ("#@*-#", "one already solved"),
        ("#@$.!", "grid got '!'"),
    ],
)
def test_levels_that_cannot_be_solved_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        team(SokobanTeam, text)


def test_other_floors_are_read_and_levels_without_walls_around() -> None:
    assert Level.parse("@_$ .").shortest == 3
    assert Level.parse("@$.").shortest == 1


def test_a_level_too_large_to_search_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sokoban, "MAX_POSITIONS", 20)
    with pytest.raises(ValueError, match="level got more than 20 positions"):
        Level.parse(LEVEL)
