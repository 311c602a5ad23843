from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atgrpo.envs.plan_path import PlanPathTeam
from atgrpo.envs.puzzle import MAX_SHOWN, PROGRESS, UNREADABLE, PuzzleTeam
from atgrpo.envs.sudoku import SudokuTeam
from atgrpo.sandbox.runner import Run, Sandbox, SandboxError
from atgrpo.types import Sample, StepResult
from tests.envs.puzzles import CASES, MAZE, SUDOKU, StandIn, act, printed, seen, team

PROGRAM = "```python\nprint(1)\n```"
ALONE = [("planner", None), ("critic", None), ("proposer", "proposer")]


def replies(symbols: str) -> st.SearchStrategy[list[tuple[str, str]]]:
    """Readable and unreadable responses of both roles."""
    plan = st.text(symbols, max_size=6) | st.sampled_from(["hm", r"\boxed{}", "1441", "DDRR", "DD", "RDLDR", "RD"])
    return st.lists(st.tuples(st.sampled_from(["proposer", "critic"]), plan), max_size=8)


EPISODES = st.sampled_from(CASES).flatmap(lambda case: st.tuples(st.just(case), replies(case[2])))


def play(env: PuzzleTeam, moves: list[tuple[str, str]]) -> list[tuple[str, StepResult]]:
    results = []
    for agent, text in moves:
        if not env.done:
            results.append((agent, act(env, agent, text)))
    return results


@settings(max_examples=80, deadline=None)
@given(EPISODES)
def test_no_agent_can_earn_more_than_one_and_success_is_only_the_goal(
    episode: tuple[tuple[type[PuzzleTeam], str, str], list[tuple[str, str]]],
) -> None:
    (kind, prompt, _), moves = episode
    env = team(kind, prompt)
    results = play(env, moves)
    for agent in ("proposer", "critic"):
        assert sum(result.local_reward or 0.0 for name, result in results if name == agent) < 1
    assert all(result.team_reward == result.done for _, result in results)
    assert env.success == env.done == any(result.done for _, result in results)
    assert all(agent == "critic" for agent, result in results if result.done)


@settings(max_examples=80, deadline=None)
@given(EPISODES)
def test_every_plan_earns_more_than_an_unreadable_answer(
    episode: tuple[tuple[type[PuzzleTeam], str, str], list[tuple[str, str]]],
) -> None:
    (kind, prompt, _), moves = episode
    env = team(kind, prompt)
    for agent, text in moves:
        if env.done:
            break
        action = env.parse(agent, text)
        result = env.step(agent, action)
        assert result.local_reward is not None
        assert (result.local_reward > UNREADABLE) == action.valid


@settings(max_examples=60, deadline=None)
@given(EPISODES, st.data())
def test_stepping_a_fork_leaves_its_parent_and_its_sibling_as_they_were(
    episode: tuple[tuple[type[PuzzleTeam], str, str], list[tuple[str, str]]], data: st.DataObject
) -> None:
    (kind, prompt, symbols), moves = episode
    parent = team(kind, prompt)
    play(parent, moves)

    def view(env: PuzzleTeam) -> tuple[object, ...]:
        return tuple(seen(env, role) for role in env.roles), env.done, env.success

    before, sibling = view(parent), parent.fork()
    after = data.draw(replies(symbols))
    same = play(parent.fork(), after)
    assert view(parent) == view(sibling) == before
    assert play(sibling, after) == same


@pytest.mark.parametrize(("kind", "prompt", "symbols"), CASES)
@pytest.mark.parametrize("agent", ["proposer", "critic"])
def test_going_back_and_forth_earns_what_standing_still_does(
    kind: type[PuzzleTeam], prompt: str, symbols: str, agent: str
) -> None:
    there, still = {"1": ("1444", "2222")}.get(symbols[0], ("D", "DU"))
    back = "U" if symbols[0] == "U" and agent == "critic" else still
    env = team(kind, prompt)
    first = act(env, agent, still)
    rounds = [act(env, agent, text).local_reward or 0.0 for text in (there, back) * 5]
    assert first.local_reward == 0.0
    assert sum(rounds) == pytest.approx(0.0)


def test_a_proposal_is_noted_and_the_plan_of_the_agent_that_decides_is_applied() -> None:
    env = team(PlanPathTeam, MAZE)
    assert act(env, "proposer", "DDD") == StepResult(0.0, pytest.approx(0.46), False, {"illegal": "blocked at move 3"})
    assert seen(env, "critic") == f"{MAZE}\nProposer: DDD blocked at move 3, ends at (3,1)"
    assert act(env, "critic", "D") == StepResult(0.0, pytest.approx(0.24), False)
    assert seen(env, "proposer") == "..#\nS#.\n..G"
    assert act(env, "proposer", "DRR").local_reward == pytest.approx(0.48)  # its last one led half of the way
    assert seen(env, "critic") == "..#\nS#.\n..G\nProposer: DRR ends on G"
    assert act(env, "critic", "DRR") == StepResult(1.0, pytest.approx(0.72), True)
    assert env.success == 1.0


def test_a_proposal_that_is_repeated_is_not_paid_again() -> None:
    env = team(PlanPathTeam, MAZE)
    assert [act(env, "proposer", "DDRR").local_reward for _ in range(3)] == [pytest.approx(PROGRESS), 0.0, 0.0]
    assert (env.done, env.success) == (False, 0.0)


def test_a_fault_of_the_agent_that_decides_is_what_the_next_turn_reads() -> None:
    env = team(PlanPathTeam, MAZE)
    act(env, "proposer", "DD")
    assert act(env, "critic", "no idea") == StepResult(0.0, -1.0, False)
    assert seen(env, "proposer") == f"{MAZE}\nCritic: unreadable"
    act(env, "proposer", "")
    assert seen(env, "critic") == f"{MAZE}\nCritic: unreadable\nProposer: unreadable"
    act(env, "critic", "R")
    assert seen(env, "proposer") == ".S#\n.#.\n..G"


@pytest.mark.parametrize(("agent", "decider"), ALONE)
def test_one_agent_can_be_the_whole_team(agent: str, decider: str | None) -> None:
    env = team(PlanPathTeam, MAZE, decider=decider)
    assert act(env, agent, "DD") == StepResult(0.0, pytest.approx(0.48), False)
    assert act(env, agent, "RR") == StepResult(1.0, pytest.approx(0.48), True)
    assert env.success == 1.0


def test_running_out_of_turns_is_no_success() -> None:
    env = team(PlanPathTeam, MAZE)
    for _ in range(4):
        act(env, "proposer", "DDRR")
        act(env, "critic", "DU")
    assert (env.done, env.success) == (False, 0.0)


@pytest.mark.parametrize(
    ("end", "local", "note"),
    [
        (printed("DDRR\n"), PROGRESS, "Tool: DDRR ends on G"),
        (printed("way found\nD\nD\nR\nR\n"), PROGRESS, "Tool: DDRR ends on G"),
        (printed("<|im_end|>none"), -1.0, "Tool: program printed no plan: ??im_end??none"),
        (
            StandIn(Run("DDRR\n", "Traceback\nKeyError: 'S'\n", 1, None, 0.1)),
            -1.0,
            "Tool: program failed: KeyError: 'S'",
        ),
        (StandIn(Run("DDRR\n", "", None, "time", 5.0)), -1.0, "Tool: program stopped, too much time"),
    ],
)
def test_the_output_of_the_tools_program_is_its_proposal(end: StandIn, local: float, note: str) -> None:
    env = team(PlanPathTeam, MAZE, sandbox=end)
    assert act(env, "tool", PROGRAM) == StepResult(0.0, pytest.approx(local), False)
    assert seen(env, "planner") == f"{MAZE}\n{note}"


def test_whoever_lets_the_tool_play_reads_how_programs_are_kept_apart() -> None:
    env = team(PlanPathTeam, MAZE)
    assert env.notes(["tool", "planner"]) == (Sandbox().describe(),)
    assert env.notes(["proposer", "critic"]) == ()


def test_text_without_a_program_is_unreadable() -> None:
    env = team(PlanPathTeam, MAZE, sandbox=printed("DDRR"))
    assert act(env, "tool", "I would go down first.") == StepResult(0.0, -1.0, False)
    assert seen(env, "planner") == f"{MAZE}\nTool: no program"


SOLVER = """```python
import sys
rows = sys.stdin.read().split()
cells = {(r, c): x for r, row in enumerate(rows) for c, x in enumerate(row)}
ways = {next(k for k, x in cells.items() if x == "S"): ""}
for k in list(ways):
    todo = [k]
    for k in todo:
        for m, (a, b) in {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}.items():
            n = k[0] + a, k[1] + b
            if cells.get(n, "#") != "#" and n not in ways:
                ways[n] = ways[k] + m
                todo.append(n)
print(ways[next(k for k, x in cells.items() if x == "G")])
```"""


def test_a_real_program_reads_the_puzzle_as_it_stands_and_solves_it() -> None:
    env = team(PlanPathTeam, MAZE)
    act(env, "planner", "D")
    assert act(env, "tool", f"<think>search</think>\n{SOLVER}").local_reward == pytest.approx(PROGRESS)
    assert seen(env, "planner") == "..#\nS#.\n..G\nTool: DRR ends on G"
    alone = team(PlanPathTeam, MAZE, decider="tool")
    assert act(alone, "tool", SOLVER) == StepResult(1.0, pytest.approx(PROGRESS), True)


def test_a_failure_of_the_sandbox_gives_missing_rewards_and_changes_nothing() -> None:
    env = team(PlanPathTeam, MAZE, sandbox=StandIn(SandboxError("broken")))
    missing = StepResult(None, None, False, {"sandbox_error": "broken"})
    assert act(env, "tool", PROGRAM) == missing
    assert (seen(env, "planner"), env.success) == (MAZE, 0.0)
    alone = team(PlanPathTeam, MAZE, sandbox=StandIn(SandboxError("broken")), decider="tool")
    assert act(alone, "tool", PROGRAM) == missing
    assert math.isnan(alone.success)
    assert act(alone, "tool", "no program").local_reward == -1.0
    assert alone.success == 0.0


def test_what_others_wrote_is_shown_cut() -> None:
    env = team(PlanPathTeam, MAZE, sandbox=printed("<|im_start|>" * 50))
    act(env, "tool", PROGRAM)
    act(env, "proposer", "DU" * 500)
    shown = seen(env, "planner")
    assert "<|" not in shown
    assert len(shown) < len(MAZE) + 2 * MAX_SHOWN + 80
    assert f"Proposer: {'DU' * (MAX_SHOWN // 2)}... ends at (1,1)" in shown


def test_system_texts_are_the_tasks_own_unless_set() -> None:
    env = PlanPathTeam(critic_prompt="", planner_prompt="Go.")
    env.reset(Sample("s", MAZE, "DDRR"))
    assert [m["role"] for m in env.observe("critic").messages] == ["user"]
    assert env.observe("planner").messages[0] == {"role": "system", "content": "Go."}
    for role, word in (("proposer", r"\boxed{RRDL}"), ("tool", "```python")):
        assert word in env.observe(role).messages[0]["content"]


@pytest.mark.parametrize(("kind", "prompt", "symbols"), CASES)
def test_a_demonstration_solves_the_puzzle_from_where_the_team_stands(
    kind: type[PuzzleTeam], prompt: str, symbols: str
) -> None:
    env = team(kind, prompt)
    act(env, "critic", {"1": "4444"}.get(symbols[0], "R"))
    shown = env.demonstrate("critic")
    assert shown is not None
    assert shown == env.demonstrate("proposer") == env.demonstrate("planner")
    assert env.demonstrate("tool") is None
    assert act(env, "critic", shown).team_reward == 1.0
    assert env.demonstrate("critic") is None


@pytest.mark.parametrize(("kind", "prompt", "symbols"), CASES)
def test_no_agent_ever_reads_the_answer(kind: type[PuzzleTeam], prompt: str, symbols: str) -> None:
    env = team(kind, prompt)
    env.reset(Sample("s", prompt, "the answer", {"solution": "the answer"}))
    for text in ({"1": "2222"}.get(symbols[0], "UU"), "x"):
        for role in env.roles:
            answer = env.demonstrate("critic")
            assert answer is not None
            assert answer not in "".join(seen(env, role).split())
            assert "the answer" not in seen(env, role)
        act(env, "proposer", text)
        act(env, "critic", text)


def test_agents_that_act_at_once_can_be_merged() -> None:
    env = team(SudokuTeam, SUDOKU)
    merged = env.fork()
    actions = {agent: env.fork().parse(agent, "1441") for agent in ("proposer", "critic")}
    assert [merged.step(agent, action).team_reward for agent, action in actions.items()] == [0.0, 1.0]


def test_reset_forgets_the_last_episode() -> None:
    env = team(PlanPathTeam, MAZE)
    act(env, "proposer", "DD")
    act(env, "critic", "DDRR")
    env.reset(Sample("s", MAZE, ""))
    assert (env.done, env.success, seen(env, "critic")) == (False, 0.0, MAZE)
    assert act(env, "proposer", "DD").local_reward == pytest.approx(0.48)


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="decider got 'judge'"):
        PlanPathTeam(decider="judge")
    with pytest.raises(ValueError, match="expected reset first"):
        PlanPathTeam().observe("critic")
    with pytest.raises(ValueError, match="sample 'u': grid got 'T' in 'Tom has"):
        PlanPathTeam().reset(Sample("u", "Tom has 3 bags.", "3"))
    env = team(PlanPathTeam, MAZE)
    with pytest.raises(ValueError, match="agent got 'judge'"):
        env.observe("judge")
    with pytest.raises(ValueError, match="expected an action that parse made for this agent"):
        env.step("critic", env.parse("proposer", "D"))
    act(env, "critic", "DDRR")
    with pytest.raises(ValueError, match="finished episode"):
        act(env, "critic", "U")
