"""The sampler of plain GRPO: N independent trajectories per prompt, one response per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atgrpo.envs.contract import success_of
from atgrpo.rollout.credit import ParallelCredit, trajectory_credits
from atgrpo.rollout.samplers import Growing, SamplerSettings, at_least_one, make_turn, mean, padded_success
from atgrpo.rollout.walk import Episode, Path, Walk, together, uncredited
from atgrpo.types import Rollout


@dataclass(frozen=True, kw_only=True)
class ParallelSampler(SamplerSettings):
    """Plays each prompt ``trajectories`` times. Evaluation uses it too: nothing is selected by reward.

    Args:
        trajectories: N trajectories per prompt.
        credit: What a step's reward is; see ``rollout.credit``.
    """

    trajectories: int = 8
    credit: ParallelCredit = "step"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(trajectories=self.trajectories)
        if self.credit not in ("step", "return_to_go", "outcome"):
            raise ValueError(
                f"the parallel sampler got credit={self.credit!r}, expected 'step', 'return_to_go' or 'outcome' "
                "('continuation' and 'backup' need sampler=tree)"
            )

    def responses(self, agent: str) -> int:
        """N."""
        return self.trajectories

    def grow(self, episode: Episode) -> Growing:
        """All trajectories of one prompt."""
        stages = self.stages(tuple(episode.agents))
        walks = [
            Walk(episode, self.sampling, lambda _: 1, uncredited, lambda *_: 0, ("trajectory", i), branch=i)
            for i in range(self.trajectories)
        ]
        paths = yield from together([walk.grow(episode.env, stages) for walk in walks])
        return self._rollout(episode, paths)

    def _rollout(self, episode: Episode, paths: Sequence[Path]) -> Rollout:
        turns = tuple(
            make_turn(episode, node, node.pick, credit, selected=True)
            for path in paths
            for node, credit in zip(path.nodes, trajectory_credits(self.alpha, path, self.credit), strict=True)
        )
        by_turn = zip(*(padded_success(path, self.turns) for path in paths), strict=True)
        return Rollout(
            sample=episode.sample,
            tree=episode.tree,
            turns=turns,
            outcome=mean(success_of(path.env) for path in paths),
            success_by_turn=tuple(map(mean, by_turn)),
            observations={(node.agent, node.turn): node.observation for node in paths[0].nodes},
            overlong=any(path.overlong for path in paths),
        )
