"""The tree sampler of AT-GRPO (arXiv:2510.11062, algorithm 1): K candidates per step, the best is kept and shared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from atgrpo.envs.contract import success_of
from atgrpo.rollout.credit import TreeCredit, backed_up_credits, mean_known, mix, step_credit
from atgrpo.rollout.samplers import SamplerSettings, at_least_one, make_turn, padded_success, per_agent
from atgrpo.rollout.seeds import stream
from atgrpo.rollout.selection import Greedy, Selection
from atgrpo.rollout.walk import Candidate, Episode, Growth, Path, Stage, Walk, together, uncredited
from atgrpo.types import Rollout, Turn


@dataclass(frozen=True, kw_only=True)
class TreeSampler(SamplerSettings):
    """Every agent samples K candidates from the one shared state; all are rewarded, one is kept.

    Args:
        branches: K, one number or one per agent.
        selection: Which candidate is kept, by its credit.
        credit: What a candidate's reward is; see ``rollout.credit``.
        train_continuations: With ``credit: continuation``, also learn from the playouts' own responses. They form
            groups of their own, one per step of the playouts from one node's candidates.
    """

    branches: int | Mapping[str, int] = 4
    selection: Selection = field(default_factory=Greedy)
    credit: TreeCredit = "step"
    train_continuations: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(branches=self.branches)
        if self.credit not in ("step", "continuation", "backup"):
            raise ValueError(
                f"the tree sampler got credit={self.credit!r}, expected 'step', 'continuation' or 'backup' "
                "('outcome' and 'return_to_go' need sampler=parallel)"
            )
        if self.credit == "continuation" and self.order == "parallel":
            raise ValueError(
                "credit='continuation' got order='parallel', expected 'sequence': a candidate's state lacks its peers"
            )

    def grow(self, episode: Episode) -> Growth[Rollout]:
        """One tree."""
        stages = self.stages(tuple(episode.agents))
        side: list[tuple[int, float | None, Path]] = []

        def judge(index: int, candidates: Sequence[Candidate]) -> Growth[tuple[float | None, ...]]:
            if self.credit != "continuation":
                return tuple(step_credit(self.alpha, c) for c in candidates)
            return (yield from self._played_on(episode, stages, index, candidates, side))

        def choose(turn: int, agent: str, credits: Sequence[float | None]) -> int:
            return self.selection(credits, stream(episode.seed, episode.tree, "select", turn, agent))

        walk = Walk(episode, self.sampling, self.responses, judge, choose)
        path = yield from walk.grow(episode.env, stages)
        return self._rollout(episode, path, len(stages) - 1, side)

    def responses(self, agent: str) -> int:
        """K."""
        return per_agent(self.branches, agent, "branches")

    def playout_tokens(self, agents: Sequence[str]) -> int:
        """Each candidate played on to the end."""
        if self.credit != "continuation":
            return 0
        steps = [agent for stage in self.stages(agents) for agent in stage.agents]
        left = [sum(self.sampling(later).max_tokens for later in steps[i + 1 :]) for i in range(len(steps))]
        return sum(self.responses(agent) * rest for agent, rest in zip(steps, left, strict=True))

    def _played_on(
        self,
        episode: Episode,
        stages: Sequence[Stage],
        index: int,
        candidates: Sequence[Candidate],
        side: list[tuple[int, float | None, Path]],
    ) -> Growth[tuple[float | None, ...]]:
        """Credits by one playout per unfinished candidate, all side by side; the playouts go to ``side``.

        Equal responses lead to equal states, so they share the mean of their playouts: less noise at no cost.
        """
        playouts = [
            Walk(
                episode,
                self.sampling,
                branches=lambda _: 1,
                judge=uncredited,
                choose=lambda *_: 0,
                label=("continue", index, c.branch),
                branch=c.branch,
            ).grow(c.env, stages, start=index + 1)
            for c in candidates
        ]
        paths = yield from together(playouts)
        ends: dict[tuple[int, ...], list[float | None]] = defaultdict(list)
        for candidate, path in zip(candidates, paths, strict=True):
            team = path.team_reward if path.nodes else candidate.result.team_reward
            ends[candidate.completion.token_ids].append(team)
            side.append((index + 1, team, path))
        teams = {response: mean_known(levels) for response, levels in ends.items()}
        return tuple(mix(self.alpha, teams[c.completion.token_ids], c.result.local_reward) for c in candidates)

    def _rollout(
        self, episode: Episode, path: Path, last_stage: int, side: Sequence[tuple[int, float | None, Path]]
    ) -> Rollout:
        credits = [node.credits for node in path.nodes]
        if self.credit == "backup":
            credits = backed_up_credits(self.alpha, path.nodes, last_stage, end=path.team_reward)
        turns: list[Turn] = []
        for node, node_credits in zip(path.nodes, credits, strict=True):
            for i, candidate in enumerate(node.candidates):
                turns.append(make_turn(episode, node, candidate, node_credits[i], selected=i == node.chosen))
        extra = 0
        for below, team, playout in side:
            for node in playout.nodes:
                if self.train_continuations:
                    credit = mix(self.alpha, team, node.pick.result.local_reward)
                    turns.append(make_turn(episode, node, node.pick, credit, selected=False, below=below))
                else:
                    extra += len(node.pick.completion.token_ids)
        return Rollout(
            sample=episode.sample,
            tree=episode.tree,
            turns=tuple(turns),
            outcome=success_of(path.env),
            success_by_turn=tuple(padded_success(path, self.turns)),
            observations={(node.agent, node.turn): node.observation for node in path.nodes},
            overlong=path.overlong,
            extra_tokens=extra,
        )
