"""A rollout as text for people."""

from __future__ import annotations

from itertools import groupby

from atgrpo.types import Observation, Rollout, Turn


def tree_text(rollout: Rollout) -> str:
    """What each agent saw on the path that was kept, and every candidate with its reward and advantage.

    ``>`` marks the candidate whose state the team went on from. Of trajectories, each of which went on from its own
    candidate and saw other prompts, those of the first are shown. Text that cannot be encoded is shown escaped.
    """
    lines = [f"sample {rollout.sample.id}, gold answer {rollout.sample.answer!r}, outcome {rollout.outcome:.2f}", ""]
    for (node, number, agent), turns in groupby(rollout.turns, key=lambda t: (t.key.node, t.key.turn, t.key.agent)):
        own = list(turns)
        seen = None if node else rollout.observations.get((agent, number))
        side = f", playout from step {node}" if node else ""
        if seen is not None and sum(turn.selected for turn in own) > 1:
            side = ", prompt of trajectory 0"
        lines.append(f"turn {number + 1}, {agent} ({own[0].policy}){side}")
        lines += [f"    | {line}" for line in _prompt(seen)] if seen is not None else []
        lines += [_candidate(turn) for turn in own] + [""]
    return "\n".join(lines).encode(errors="backslashreplace").decode()


def _prompt(seen: Observation) -> list[str]:
    """All that was seen, with the speakers where there are several parts."""
    speakers = len(seen.messages) > 1
    parts = [f"{m['role']}: {m['content']}" if speakers else m["content"] for m in seen.messages]
    return [line for part in parts for line in part.splitlines()]


def _candidate(turn: Turn) -> str:
    rewards = turn.rewards
    advantage = "excluded" if turn.advantage is None else f"{turn.advantage:+.2f}"
    text = " / ".join(turn.completion.text.splitlines()) or "(nothing)"
    cut = " [cut]" if turn.completion.finish_reason == "length" else ""
    numbers = f"team {_number(rewards.team)} local {_number(rewards.local)} reward {_number(rewards.credit)}"
    return f"  {'>' if turn.selected else ' '} {turn.key.branch}: {numbers} advantage {advantage}  {text}{cut}"


def _number(value: float | None) -> str:
    return "missing" if value is None else f"{value:.2f}"
