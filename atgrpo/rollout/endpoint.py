"""Trajectories of a team that any agent framework plays, through an OpenAI-compatible endpoint of ours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from atgrpo.envs.external import External
from atgrpo.rollout.credit import ParallelCredit
from atgrpo.rollout.endpoint_calls import Calls
from atgrpo.rollout.endpoint_play import Crew, Play
from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.rollout.samplers import Growing, at_least_one
from atgrpo.rollout.walk import Episode


@dataclass(frozen=True, kw_only=True)
class EndpointSampler(ParallelSampler):
    """Has each prompt played ``trajectories`` times by ``env.play``; every answered call is a turn.

    A turn is the number of an agent's earlier calls, and its seed follows from (iteration, tree, trajectory, agent,
    turn), so that nothing depends on the timing of threads; calls that one agent makes at once within one play are
    numbered as they come in. A play has one reward: under every credit rule it is the team level of all its calls.

    Args:
        turns: Most calls of one agent in a play; further ones are refused, and a play that this ends has failed: its
            reward is `env.unanswered`, as after an overlong prompt.
        credit: As of the parallel sampler; locals are those of ``Result.local``.
        plays: Most plays that run at once, each in a thread of its own. The engine's batch is no larger than the calls
            that they make.
    """

    credit: ParallelCredit = "outcome"
    plays: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(plays=self.plays)
        if self.order != "sequence":
            raise ValueError(f"the endpoint sampler got order={self.order!r}, expected none: env.play says who acts")

    def grow(self, episode: Episode) -> Growing:
        """All trajectories of one prompt.

        Raises:
            PlayError: the function that plays raised an error; the others are told that nobody waits for them.
        """
        env = episode.env
        if not isinstance(env, External):
            raise ValueError(f"sampler=endpoint got the environment {type(env).__name__}, expected env=external")
        calls, left = Calls(), list(range(self.trajectories))

        def on_end(play: Play) -> None:
            left.pop()
            if not left or play.error:
                calls.end()

        plays = [Play(episode, env, i, self.sampling, self.turns, calls, on_end) for i in range(self.trajectories)]
        try:
            for play in plays:
                self._crew.put(play)
            yield calls
            for play in plays:
                if play.error:
                    raise play.error
        finally:
            for play in plays:
                play.close()
            calls.close()
        return self._rollout(episode, [play.path() for play in plays])

    @cached_property
    def _crew(self) -> Crew:
        return Crew(self.plays)
