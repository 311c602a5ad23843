"""The same in a language model: which way the update of either grouping pushes the tool, on the same rollouts.

python -m benchmarks.pooling_direction

A small model that imitates the calculator task plays it. What a trajectory earns is then drawn afresh: success with
one probability after a call, with another after an answer at once. Every batch is scored as GRPO and as pooled turns,
and the update's slope along the tool's log-odds is taken by a difference of two copies of the model. In units of
q (1 - q) it is what ``benchmarks.pooling`` sums exactly.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from atgrpo.rollout.seeds import stable_seed, stream
from atgrpo.training.callbacks.advantage import AdvantageCallback
from atgrpo.training.callbacks.grpo import GRPO
from atgrpo.training.callbacks.grpo_pooled import PooledGRPO
from atgrpo.types import Rollout, Turn
from benchmarks.pooling import Choice, drift

CALL = "c"
"""First token of a call; any other one begins an answer."""
STEP = 1e-3
TRAJECTORIES = 8
ESTIMATORS: Mapping[tuple[str, bool], AdvantageCallback] = {
    (name, scaled): make(scale_by_std=scaled)
    for name, make in (("grpo", GRPO), ("pooled", PooledGRPO))
    for scaled in (True, False)
}


@dataclass(frozen=True)
class Direction:
    """A small step that raises the mean log-odds of a call at first sight of a problem by 1 a unit.

    Args:
        model: A causal language model of transformers.
        prompts: Token ids of problems.
        call: Token that begins a call.
    """

    model: Any
    prompts: Sequence[tuple[int, ...]]
    call: int

    def copies(self) -> tuple[Any, Any, float]:
        """The model a little further and a little back in float64, and the mean rate of calls."""
        first = torch.stack([self.model(torch.tensor([p])).logits[0, -1].log_softmax(-1) for p in self.prompts])
        chance = first[:, self.call].exp()
        odds = (first[:, self.call] - (1 - chance).log()).mean()
        parameters = list(self.model.parameters())
        slopes = torch.autograd.grad(odds, parameters, allow_unused=True)
        length = sum(float((s.double() ** 2).sum()) for s in slopes if s is not None)
        return self._moved(slopes, STEP / length), self._moved(slopes, -STEP / length), float(chance.detach().mean())

    @torch.no_grad()
    def _moved(self, slopes: Sequence[Tensor | None], by: float) -> Any:
        moved = copy.deepcopy(self.model).double()
        for parameter, slope in zip(moved.parameters(), slopes, strict=True):
            if slope is not None:
                parameter += by * slope.double()
        return moved


@torch.no_grad()
def slopes_of(further: Any, back: Any, turns: Sequence[Turn]) -> list[float]:
    """Slope of the log-probability of each turn's first token along the direction."""
    rows = [torch.tensor(turn.prompt_ids) for turn in turns]
    ids = pad_sequence(rows, batch_first=True)
    last = torch.tensor([len(row) - 1 for row in rows])
    chosen = torch.tensor([turn.completion.token_ids[0] for turn in turns])
    both = [model(ids).logits[torch.arange(len(rows)), last].log_softmax(-1) for model in (further, back)]
    picked = [logprobs[torch.arange(len(rows)), chosen] for logprobs in both]
    found: list[float] = ((picked[0] - picked[1]) / (2 * STEP)).tolist()
    return found


def pinned(rollout: Rollout, direct: float, tool: float, rng: Random) -> Rollout:
    """With the earnings of each trajectory drawn anew; one of two turns has called the tool."""
    lengths = np.bincount([turn.key.branch for turn in rollout.turns])
    won = [float(rng.random() < (tool if n > 1 else direct)) for n in lengths]
    turns = (replace(t, rewards=replace(t.rewards, credit=won[t.key.branch])) for t in rollout.turns)
    return replace(rollout, turns=tuple(turns))


def pushes(rollouts: Sequence[Rollout], slopes: Sequence[float], rate: float) -> dict[tuple[str, bool], float]:
    """(estimator, scaled) -> slope of the tool's log-odds under its update, in units of q (1 - q) a trajectory.

    Args:
        rollouts: With what they earned.
        slopes: Of their first turns, in order.
        rate: Mean rate of calls q.
    """
    found = {}
    for name, estimator in ESTIMATORS.items():
        scored = estimator.on_rollout_end(None, None, rollouts)
        advantages = [t.advantage or 0.0 for r in scored for t in r.turns if t.key.turn == 0]
        found[name] = float(np.dot(advantages, slopes)) / (len(slopes) * rate * (1 - rate))
    return found


def measure(
    play: Callable[[int], list[Rollout]], direction: Direction, batches: int, cases: Sequence[tuple[float, float]]
) -> Iterator[tuple[tuple[float, float], dict[str, np.ndarray], float]]:
    """For each (direct, tool): what was found in every batch, and the rate of calls."""
    further, back, rate = direction.copies()
    found: dict[tuple[float, float], list[dict[tuple[str, bool], float]]] = {case: [] for case in cases}
    for batch in range(batches):
        rollouts = play(batch)
        slopes = slopes_of(further, back, [t for r in rollouts for t in r.turns if t.key.turn == 0])
        for case in cases:
            rng = stream("pinned", batch, *map(str, case))
            found[case].append(pushes([pinned(r, *case, rng) for r in rollouts], slopes, rate))
    for case, results in found.items():
        columns = {name: np.array([result[name] for result in results]) for name in ESTIMATORS}
        differences = {
            "pooled - grpo": columns["pooled", True] - columns["grpo", True],
            "pooled - grpo, without std": columns["pooled", False] - columns["grpo", False],
        }
        yield case, differences, rate


def start(settings: Sequence[str], seed: int, problems: int) -> tuple[Callable[[int], list[Rollout]], Direction, Any]:
    """(plays a batch, the direction, the team to close at the end)."""
    from atgrpo.cli.build import build
    from atgrpo.cli.config import find_recipe, load

    overrides = ["engine=transformers", "sampler=parallel", "~sampler.branches", "sampler.credit=outcome"]
    own = [f"sampler.trajectories={TRAJECTORIES}", f"seed={seed}", f"warm_start.seed={seed}", *settings]
    parts = build(load(find_recipe("calculator"), [*overrides, *own]))
    module = parts.module()
    module.configure_model()
    policies: Any = dict(module.policies.items())
    team = parts.start_team(policies)
    team.push()
    samples = parts.data.split("train")

    def play(batch: int) -> list[Rollout]:
        first = batch * problems % len(samples)
        some = [samples[(first + i) % len(samples)] for i in range(problems)]
        return team.play(some, parts.sampler, seed=stable_seed(seed, "direction", batch))

    (policy,) = policies.values()
    model = copy.deepcopy(policy.model).float().eval()
    tokenizer = team.tokenizers["solver"]
    seen = [team.render("solver", [{"role": "user", "content": s.prompt}]) for s in samples[:200]]
    return play, Direction(model, seen, tokenizer.convert_tokens_to_ids(CALL)), team


def main() -> None:
    """Prints the paired differences beside their exact values."""
    parser = argparse.ArgumentParser(description="Slope of the tool's log-odds under both groupings, in a small model.")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("settings", nargs="*", metavar="key=value")
    arguments = parser.parse_args()
    play, direction, team = start(arguments.settings, arguments.seed, problems=16)
    print("| direct / tool | difference | mean +- standard error | exact |\n|---|---|---|---|")
    for (direct, tool), differences, rate in measure(
        play, direction, arguments.batches, ((0.2, 0.2), (0.5, 0.5), (0.8, 0.8))
    ):
        for name, values in differences.items():
            exact = Choice(
                direct=direct, tool=tool, rate=rate, trajectories=TRAJECTORIES, ddof=1, scaled="std" not in name
            )
            expected = drift(replace(exact, samples=2)) - drift(exact)
            error = values.std(ddof=1) / len(values) ** 0.5
            print(f"| {direct} / {tool} | {name} | {values.mean():+.3f} +- {error:.3f} | {expected:+.3f} |")
    print(f"rate of calls {rate:.2f}, {arguments.batches} batches of 16 problems, {TRAJECTORIES} trajectories each")
    team.close()


if __name__ == "__main__":
    main()
