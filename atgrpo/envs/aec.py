"""A turn-based PettingZoo game (AEC) whose agents read and write text."""

from __future__ import annotations

import copy
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Self

from atgrpo.envs.contract import EnvError
from atgrpo.envs.guards import Guarded
from atgrpo.envs.own import load_function
from atgrpo.envs.shown import harmless
from atgrpo.types import Action, Message, Observation, Sample, StepResult


@dataclass(frozen=True, slots=True)
class Move:
    """What one agent does in the game; None where nothing could be read."""

    agent: str
    action: Any


class AECTeam(Guarded[Sample]):
    """A PettingZoo AEC environment. Roles are its ``possible_agents``; a step of ours is one of its steps.

    Our samplers ask the roles in the order of ``agents``, turn by turn, and cannot skip one: that must be the game's
    own order (``order: sequence``). Where the game selects another agent than the one asked, be it that agents drop out
    before the end or that the order changes, the run stops with one clear line. What the game asks of agents that are
    already done (a step of None) is done for them.

    ``local_reward`` is what the game has paid the agent since its last step, this one included; over an episode they
    add up to its return, but for what it is paid after its last step. ``team_reward = clip((R - low) / (high - low),
    0, 1)`` for ``reward_range = (low, high)`` and R the agents' mean (or sum) of all rewards so far. ``success`` is the
    latest ``infos[agent]["success"]``, and the team reward where the game reports none.

    A response that cannot be read, or that the action space or an ``action_mask`` of the observation excludes, is an
    invalid action: it is not played, earns -1 and ends the episode, as the game cannot go on without a move. Such an
    episode is spoilt: its team reward and success are 0, whatever was earned or reported before, as no game is worth
    less. What has been paid until then may be much (all there is, where a game only takes).

    A fork copies every attribute of the game and of its wrappers, generators included, and not by ``copy.deepcopy`` of
    the game itself: many games (``EzPickle``) would come out of that as new. A game that draws from a global generator
    cannot be forked faithfully. The game is reset with the sample's ``meta["seed"]``, else with a hash of its id.

    Args:
        make: Dotted path of a function that makes the game.
        settings: Arguments of ``make``.
        describe: Dotted path of ``describe(game, agent) -> str``, what the agent reads; must not change the game. None:
            the observation, which is a text or has one under ``text``.
        parse: Dotted path of ``parse(game, agent, text) -> action | None``. None: the text itself, or the last whole
            number in it, whichever is in the action space.
        prompts: Agent -> system text; one without gets no system message.
        reward_range: The least and the most the team can be paid in an episode.
        total: Whether R is the ``mean`` over the agents or the ``sum``.
        dense: The game pays every step what it was worth (``step_rewards_complete``).
    """

    def __init__(
        self,
        make: str,
        settings: Mapping[str, Any] = MappingProxyType({}),
        describe: str | None = None,
        parse: str | None = None,
        prompts: Mapping[str, str] = MappingProxyType({}),
        reward_range: tuple[float, float] = (0.0, 1.0),
        total: Literal["mean", "sum"] = "mean",
        dense: bool = False,
    ) -> None:
        low, high = reward_range
        if not low < high:
            raise ValueError(f"reward_range got {list(reward_range)}, expected the least, then the most")
        self._game: Any = load_function(make, "make")(**copy.deepcopy(dict(settings)))
        agents: Sequence[str] = getattr(self._game, "possible_agents", ())
        if not agents or not hasattr(self._game, "observe"):
            raise ValueError(f"make got {make!r}, expected what makes a PettingZoo AEC environment")
        if strangers := sorted(set(prompts) - set(agents)):
            raise ValueError(f"prompts got {strangers[0]!r}, expected some of {list(agents)}")
        self.roles = tuple(agents)  # type: ignore[misc]  # the game's, not the class's
        self.step_rewards_complete = dense
        self._describe: Callable[..., str] = load_function(describe, "describe") if describe else _observed
        self._parse: Callable[..., Any] = load_function(parse, "parse") if parse else _in_space
        self._prompts, self._low, self._high, self._total = prompts, low, high, total
        self._earned: Mapping[str, float] = dict.fromkeys(agents, 0.0)
        self._paid = self._earned
        self._reported: float | None = None
        self._spoilt = False

    def reset(self, sample: Sample) -> None:
        """Starts the game that the sample's seed gives."""
        seed = sample.meta.get("seed", zlib.crc32(sample.id.encode()))
        # A copy, as a game may change what it is given, and other trees play the same sample.
        self._game.reset(seed=int(seed), options=copy.deepcopy(sample.meta.get("options")))
        self._current, self._spoilt, self._reported = sample, False, None
        self._earned = self._paid = dict.fromkeys(self.roles, 0.0)
        self._settle()

    def observe(self, agent: str) -> Observation:
        """System text, the sample's prompt and what the game shows this agent now, made ``harmless``."""
        self._check_open(agent)
        shown = self._describe(self._game, agent)
        if not isinstance(shown, str):
            raise EnvError(
                f"observation of {agent!r} got a {type(shown).__name__}, expected a text: set describe to a function "
                "that writes one"
            )
        system: list[Message] = [{"role": "system", "content": text}] if (text := self._prompts.get(agent)) else []
        content = "\n".join(filter(None, (self._current.prompt, harmless(shown))))
        return Observation(agent, (*system, {"role": "user", "content": content}))

    def parse(self, agent: str, text: str) -> Action:
        """Reads an action that the game allows now."""
        self._check_open(agent)
        action = self._parse(self._game, agent, text)
        if action is not None and not _allowed(self._game, agent, action):
            action = None
        return Action(Move(agent, action), action is not None)

    def step(self, agent: str, action: Action) -> StepResult:
        """Plays the move.

        Raises:
            ValueError: the episode is over, or the action is not this agent's.
        """
        move = self._made(agent, action, Move)
        if move.action is None:
            self._spoilt = True
            return StepResult(self._level, -1.0, done=True)
        self._game.step(move.action)
        gained = self._game.rewards
        self._earned = {name: total + float(gained.get(name, 0.0)) for name, total in self._earned.items()}
        self._settle()
        local = self._earned[agent] - self._paid[agent]
        self._paid = {**self._paid, agent: self._earned[agent]}
        return StepResult(self._level, local, self.done)

    def _settle(self) -> None:
        """Takes in what the game reports, then steps the agents that are done for as long as others play on."""
        reports = [info["success"] for info in self._game.infos.values() if "success" in info]
        if reports:
            self._reported = float(reports[-1])
        while not self.done and _is_out(self._game, self._game.agent_selection):
            self._game.step(None)

    @property
    def _level(self) -> float:
        if self._spoilt:
            return 0.0
        total = sum(self._earned.values())
        if self._total == "mean":
            total /= len(self._earned)
        return min(1.0, max(0.0, (total - self._low) / (self._high - self._low)))

    @property
    def done(self) -> bool:
        """Every agent of the game is done, or a move could not be read."""
        return self._spoilt or all(_is_out(self._game, agent) for agent in self._game.agents)

    @property
    def success(self) -> float:
        """As the game reports it, else the team reward; 0 of a spoilt episode."""
        return self._level if self._reported is None or self._spoilt else self._reported

    def fork(self) -> Self:
        """A copy with a game of its own."""
        twin = copy.copy(self)
        twin._game = _copy_game(self._game)
        return twin

    def _check_open(self, agent: str) -> None:
        super()._check_open(agent)
        if agent != (turn := self._game.agent_selection):
            raise EnvError(
                f"agent {agent!r} was asked, but the game has selected {turn!r}: list agents in the game's order with "
                "sampler.order=sequence; a game whose agents drop out or change their order cannot be played"
            )


def _is_out(game: Any, agent: str) -> bool:
    return bool(game.terminations[agent] or game.truncations[agent])


def _observed(game: Any, agent: str) -> Any:
    seen = game.observe(agent)
    return seen.get("text", seen) if isinstance(seen, Mapping) else seen


def _in_space(game: Any, agent: str, text: str) -> Any:
    """The text, or the last whole number in it, whichever is an action."""
    space = game.action_space(agent)
    numbers = re.findall(r"-?\d{1,9}(?!\d)", text)
    candidates = [text.strip(), *(int(number) for number in numbers[-1:])]
    return next((action for action in candidates if space.contains(action)), None)


def _allowed(game: Any, agent: str, action: Any) -> bool:
    if not game.action_space(agent).contains(action):
        return False
    seen = game.observe(agent)
    mask = seen.get("action_mask") if isinstance(seen, Mapping) else None
    if mask is None:
        mask = game.infos.get(agent, {}).get("action_mask")
    if mask is None:
        return True
    return bool(mask[int(action) - int(getattr(game.action_space(agent), "start", 0))])


def _copy_game(game: Any) -> Any:
    """Copies attribute by attribute, from the outermost wrapper (``.env``) to the game itself."""
    layers = [game]
    while hasattr(inner := vars(layers[-1]).get("env"), "__dict__"):
        layers.append(inner)
    copies = [object.__new__(type(layer)) for layer in layers]
    # Known to deepcopy beforehand, so that a game which holds itself or its wrapper points to the copy.
    memo: dict[int, Any] = {id(layer): twin for layer, twin in zip(layers, copies, strict=True)}
    for layer, twin in zip(layers, copies, strict=True):
        vars(twin).update(copy.deepcopy(vars(layer), memo))
    return copies[0]
