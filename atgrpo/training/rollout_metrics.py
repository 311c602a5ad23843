"""Numbers about an iteration's rollouts, under their TensorBoard tags."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import torch

from atgrpo.functional.advantages import group_stats
from atgrpo.rollout.grouping import mixed_context_share
from atgrpo.rollout.samplers import mean
from atgrpo.training.callbacks.advantage import credits_of
from atgrpo.types import Rollout, Turn


def sampled_tokens(rollouts: Sequence[Rollout]) -> int:
    """Every token the engine sampled, whether it is trained on or not."""
    return sum(r.extra_tokens + sum(len(t.completion.token_ids) for t in r.turns) for r in rollouts)


def rollout_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Team, agents, turns and groups."""
    turns = [turn for r in rollouts for turn in r.turns]
    out = {
        "rollout/success": mean(r.outcome for r in rollouts),
        "rollout/trees": float(len(rollouts)),
        "rollout/overlong_prompts": float(sum(r.overlong for r in rollouts)),
        "rollout/turns_per_tree": mean(_depth(r) for r in rollouts if r.turns),
    }
    for t, level in enumerate(zip(*(r.success_by_turn for r in rollouts), strict=True)):
        out[f"rollout/success_turn_{t + 1}"] = mean(level)
    by_agent: dict[str, list[Turn]] = defaultdict(list)
    by_agent_turn: dict[tuple[str, int], list[Turn]] = defaultdict(list)
    for turn in turns:
        by_agent[turn.key.agent].append(turn)
        by_agent_turn[turn.key.agent, turn.key.turn].append(turn)
    for agent, own in by_agent.items():
        out |= {f"rollout/{agent}/{name}": value for name, value in _agent(own).items()}
    for (agent, number), own in by_agent_turn.items():
        out |= {f"turn_{number + 1}/{agent}/{name}": value for name, value in _rewards(own).items()}
    return out | _groups(turns)


def _depth(rollout: Rollout) -> float:
    return float(1 + max(t.key.turn for t in rollout.turns if not t.key.node))


def _rewards(turns: Sequence[Turn]) -> dict[str, float]:
    return {
        "reward": mean(t.rewards.credit for t in turns),
        "team_reward": mean(t.rewards.team for t in turns),
        "local_reward": mean(t.rewards.local for t in turns),
        "valid_actions": mean(t.action.valid for t in turns),
    }


def _agent(turns: Sequence[Turn]) -> dict[str, float]:
    names = dict.fromkeys(name for t in turns for name in t.info)
    info = {f"info/{name}": mean(t.info.get(name) for t in turns) for name in names}
    lengths = [float(len(t.completion.token_ids)) for t in turns]
    return (
        _rewards(turns)
        | info
        | {
            "missing_rewards": mean(t.rewards.credit is None for t in turns),
            "response_length": mean(lengths),
            "response_length_max": max(lengths),
            "truncated": mean(t.completion.finish_reason == "length" for t in turns),
            "prompt_length": mean(float(len(t.prompt_ids)) for t in turns),
        }
    )


def _groups(turns: Sequence[Turn]) -> dict[str, float]:
    grouped = [t for t in turns if t.group is not None]
    if not grouped:
        return {}
    stats = group_stats(credits_of(grouped), torch.tensor([t.group for t in grouped]))
    advantages = torch.tensor([t.advantage for t in grouped if t.advantage is not None], dtype=torch.float64)
    return {
        "group/count": float(stats.n_groups),
        "group/size": stats.mean_size,
        "group/zero_variance": stats.share_zero_variance,
        "group/singleton": stats.share_singleton,
        "group/reward_std": stats.mean_std,
        "group/mixed_prompts": mixed_context_share(grouped),
        "group/advantage_std": float(advantages.std()) if len(advantages) > 1 else math.nan,
        "group/advantage_max": float(advantages.max()) if len(advantages) else math.nan,
    }
