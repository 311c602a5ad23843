from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo.classic import tictactoe_v3

from atgrpo.envs.aec import AECTeam
from atgrpo.types import Sample, StepResult

HERE = __name__
TICTACTOE = "pettingzoo.classic.tictactoe_v3.env"


class Space:
    """Whole numbers from -1 to 5, or the word pass."""

    def contains(self, action: Any) -> bool:
        return action == "pass" or (isinstance(action, int) and -1 <= action <= 5)


class Pot:
    """Each agent takes 0 to 5 from a pot or passes; a chance of its own adds to the pot. Who takes -1 leaves."""

    possible_agents = ("ann", "bob", "cid")

    def __init__(self, rounds: int = 2) -> None:
        self.rounds = rounds

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.chance = random.Random(seed)
        self.pot, self.moves, self.asked_dead = options or {"pot": 10}, 0, []  # type: ignore[var-annotated]
        self.agents = list(self.possible_agents)
        self.agent_selection = "ann"
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}

    def action_space(self, agent: str) -> Space:
        return Space()

    def observe(self, agent: str) -> dict[str, str]:
        return {"text": f"{agent}: {self.pot['pot']}"}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if action is None:
            self.agents.remove(agent)
            self.rewards = dict.fromkeys(self.agents, 9.0)  # stale: not to be counted
        else:
            taken = 0 if action in ("pass", -1) else action
            self.pot["pot"] += self.chance.randrange(3) - taken
            self.moves += 1
            self.rewards = {
                **dict.fromkeys(self.agents, 0.0),
                agent: float(taken),
                "bob": 0.5 + taken * (agent == "bob"),
            }
            self.terminations[agent] = action == -1
            over = self.moves == self.rounds * 3
            self.truncations = dict.fromkeys(self.agents, over)
            self.infos = {name: {"success": 0.25} for name in self.agents} if over else self.infos
        if self.agents:
            order = [name for name in self.possible_agents if name in self.agents]
            later = [name for name in order if self.possible_agents.index(name) > self.possible_agents.index(agent)]
            self.agent_selection = (later or order)[0]


def half_a_character(game: Any, agent: str) -> str:
    return "<|im_end|>\ud800."


class Toll(Pot):
    """A pot that only takes: every move costs one, and it counts as solved while it lasts."""

    def step(self, action: Any) -> None:
        super().step(action)
        self.rewards = {**dict.fromkeys(self.agents, 0.0), self.possible_agents[(self.moves - 1) % 3]: -1.0}
        self.infos = {name: {"success": 1.0} for name in self.agents}


def spell_board(game: Any, agent: str) -> str:
    return "".join(".XO"[square] for square in game.unwrapped.board.squares)


def parse_word(game: Any, agent: str, text: str) -> int | None:
    return {"one": 1, "nine": 9}.get(text)


def not_a_game() -> object:
    return object()


def team(make: str = f"{HERE}.Pot", sample: Sample | None = None, **more: Any) -> AECTeam:
    env = AECTeam(make, **more)
    env.reset(sample or Sample("s", "Take.", "", {"seed": 3}))
    return env


def tictactoe(**more: Any) -> AECTeam:
    return team(TICTACTOE, describe=f"{HERE}.spell_board", reward_range=[-1, 1], **more)


def act(env: AECTeam, agent: str, text: str) -> StepResult:
    return env.step(agent, env.parse(agent, text))


def seen(env: AECTeam) -> str:
    return env.observe(env._game.agent_selection).messages[-1]["content"]


def test_a_stock_game_is_played_through_a_description_of_its_board() -> None:
    env = tictactoe(prompts={"player_1": "You are X."})
    assert env.roles == tuple(tictactoe_v3.env().possible_agents)
    messages = env.observe("player_1").messages
    assert messages == ({"role": "system", "content": "You are X."}, {"role": "user", "content": "Take.\n........."})
    for agent, text in (("player_1", "0"), ("player_2", "I take 3"), ("player_1", "1")):
        assert act(env, agent, text) == StepResult(0.5, 0.0, done=False)
    assert seen(env) == "Take.\nXX.O....."
    act(env, "player_2", "4")
    # +1 for the winner and -1 for the loser: the mean is 0, the middle of the range.
    assert act(env, "player_1", "2") == StepResult(0.5, 1.0, done=True)
    assert (env.done, env.success) == (True, 0.5)


# copy.deepcopy of a game built on EzPickle gives a new game instead of a copy.
def test_a_fork_of_a_stock_game_goes_on_from_where_it_was_forked() -> None:
    env = tictactoe()
    act(env, "player_1", "4")
    forks = [env.fork() for _ in range(3)]
    for square, fork in enumerate(forks):
        act(fork, "player_2", str(square))
    assert [seen(fork) for fork in forks] == ["Take.\nO...X....", "Take.\n.O..X....", "Take.\n..O.X...."]
    assert seen(env) == "Take.\n....X...."


@pytest.mark.parametrize("text", ["4", "9", "-1", "none", "", "99999999999999999999"])
def test_a_move_that_cannot_be_read_or_is_masked_ends_the_episode_and_is_not_played(text: str) -> None:
    env = tictactoe()
    act(env, "player_1", "4")
    action = env.parse("player_2", text)
    assert not action.valid
    assert env.step("player_2", action) == StepResult(0.0, -1.0, done=True)
    assert env.done and env._game.unwrapped.board.squares[4] == 1


# R = 0 is the top of a range that only takes.
@pytest.mark.parametrize("moves", [0, 1])
def test_a_spoilt_episode_is_worth_nothing_where_every_move_costs_and_success_was_reported(moves: int) -> None:
    env = team(f"{HERE}.Toll", reward_range=[-6, 0], total="sum")
    for agent in ("ann", "bob")[:moves]:
        assert act(env, agent, "pass") == StepResult(5 / 6, -1.0, done=False)
    assert act(env, ("ann", "bob")[moves], "???") == StepResult(0.0, -1.0, done=True)
    assert (env.done, env.success) == (True, 0.0)
    env.reset(Sample("t", "", ""))
    assert (act(env, "ann", "pass").team_reward, env.success) == (5 / 6, 1.0)


def test_what_a_game_shows_is_encodable_and_spells_no_control_token() -> None:
    assert seen(team(describe=f"{HERE}.half_a_character")) == "Take.\n< |im_end|>?."


def test_a_game_that_changes_its_options_leaves_those_of_the_sample() -> None:
    sample = Sample("s", "", "", {"seed": 3, "options": {"pot": 77}})
    env = team(sample=sample)
    act(env, "ann", "5")
    assert env._game.pot != {"pot": 77} and sample.meta["options"] == {"pot": 77}


def test_local_rewards_are_what_the_agent_was_paid_since_its_last_step() -> None:
    env = team(reward_range=[0, 20], total="sum")
    # Bob is paid .5 for every step, also those of the others.
    assert act(env, "ann", "4") == StepResult(4.5 / 20, 4.0, done=False)
    assert act(env, "bob", "2").local_reward == 0.5 + 2.5
    assert act(env, "cid", "pass") == StepResult(7.5 / 20, 0.0, done=False)
    act(env, "ann", "0")
    assert act(env, "bob", "0").local_reward == 1.5
    assert env.success == env._level
    assert act(env, "cid", "5") == StepResult(14 / 20, 5.0, done=True)
    assert (env.done, env.success) == (True, 0.25)


def test_the_team_reward_is_the_mean_within_its_range() -> None:
    env = team(reward_range=[0, 1])
    assert act(env, "ann", "1").team_reward == 0.5
    assert act(env, "bob", "5").team_reward == 1.0


def test_who_is_done_is_stepped_with_none_and_the_next_one_is_asked() -> None:
    env = team(f"{HERE}.Pot", settings={"rounds": 3})
    act(env, "ann", "1")
    act(env, "bob", "1")
    act(env, "cid", "-1")
    act(env, "ann", "1")
    assert act(env, "bob", "1").local_reward == pytest.approx(0.5 + 0.5 + 1.5)
    assert env._game.agents == ["ann", "bob"]
    with pytest.raises(ValueError, match="agent 'cid' was asked, but the game has selected 'ann'"):
        env.observe("cid")


def test_the_gold_answer_stands_in_no_message_at_any_point_of_an_episode() -> None:
    gold, shown = "86423", []
    prompts = {name: f"You are {name}." for name in ("ann", "bob", "cid")}
    env = team(sample=Sample("s", "Take.", gold, {"seed": 3, "answer": gold}), prompts=prompts)
    for agent in ("ann", "bob", "cid") * 2:
        shown += [message["content"] for message in env.observe(agent).messages]
        act(env, agent, "1")
    assert env.done
    assert shown[::2] == list(prompts.values()) * 2
    assert all(text.startswith("Take.\n") for text in shown[1::2])
    assert not any(gold in text for text in shown)


def test_the_seed_and_options_of_the_sample_make_the_game() -> None:
    def pots(sample: Sample) -> list[str]:
        env, found = team(sample=sample), []
        for agent in ("ann", "bob", "cid"):
            act(env, agent, "pass")
            found.append(seen(env).split()[-1])
        return found

    one = Sample("s", "", "", {"seed": 3})
    assert pots(one) == pots(one)
    assert len({tuple(pots(Sample(f"s{i}", "", ""))) for i in range(8)}) > 1
    assert seen(team(sample=Sample("s", "", "", {"seed": 3, "options": {"pot": 77}}))) == "ann: 77"


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["0", "5", "pass", "x"]), max_size=5), st.sampled_from(["1", "x"]))
def test_a_fork_has_generator_and_pot_of_its_own(before: list[str], text: str) -> None:
    env = team()
    for text_before in before:
        if not env.done:
            act(env, env._game.agent_selection, text_before)
    if env.done:
        return
    agent, view, state = env._game.agent_selection, seen(env), env._game.chance.getstate()
    forks = [env.fork() for _ in range(2)]
    assert act(forks[0], agent, text) == act(forks[1], agent, text)
    assert forks[0]._game.pot == forks[1]._game.pot and forks[0]._game.pot is not forks[1]._game.pot
    assert (seen(env), env._game.chance.getstate()) == (view, state)


def test_actions_may_be_words_and_parsed_by_a_function_of_ones_own() -> None:
    assert team().parse("ann", " pass ").value.action == "pass"
    env = team(parse=f"{HERE}.parse_word")
    assert env.parse("ann", "one").value.action == 1
    assert not env.parse("ann", "nine").valid and not env.parse("ann", "two").valid


@pytest.mark.parametrize(
    ("make", "more", "message"),
    [
        (f"{HERE}.not_a_game", {}, "expected what makes a PettingZoo AEC environment"),
        (f"{HERE}.missing", {}, "make got .*missing', expected the dotted path of a function"),
        (f"{HERE}.Pot", {"reward_range": [1, 1]}, r"reward_range got \[1, 1\]"),
        (f"{HERE}.Pot", {"prompts": {"dan": "x"}}, "prompts got 'dan'"),
        (f"{HERE}.Pot", {"describe": f"{HERE}.nothing"}, "describe got"),
    ],
)
def test_wrong_settings_are_refused(make: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AECTeam(make, **more)


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match=r"observation of 'player_1' got a dict, expected a text: set describe"):
        team(TICTACTOE).observe("player_1")
    with pytest.raises(ValueError, match="expected reset first"):
        AECTeam(f"{HERE}.Pot").observe("ann")
    env = team()
    with pytest.raises(ValueError, match="agent got 'dan'"):
        env.observe("dan")
    with pytest.raises(ValueError, match=r"the game has selected 'ann': list agents in the game's order"):
        env.parse("bob", "1")
    action = env.parse("ann", "x")
    env.step("ann", action)
    with pytest.raises(ValueError, match="finished episode"):
        env.step("ann", action)
    env.reset(Sample("t", "", ""))
    assert not env.done
    with pytest.raises(ValueError, match="expected an action that parse made for this agent"):
        env.step("ann", type(action)(None, valid=True))
