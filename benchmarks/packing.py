"""How much faster a group-packed row trains than the same responses in rows of their own.

python -m benchmarks.packing --model smollm2

Both layouts are timed in turns in one process: the ratio of their medians counts, seconds depend on the machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from random import Random

import torch

from atgrpo.policies.causal_lm import CausalLMPolicy
from atgrpo.rollout.collate import Batching, pack
from atgrpo.types import Action, Completion, Minibatch, Rewards, Turn, TurnKey


def group(rng: Random, prompt: int, response: int, k: int) -> list[Turn]:
    """K different random responses to one random prompt."""
    ids = tuple(rng.randrange(10, 100) for _ in range(prompt))
    return [
        Turn(
            key=TurnKey("s", 0, "agent", 0, branch),
            policy="p",
            prompt_ids=ids,
            completion=Completion(
                tuple(rng.randrange(10, 100) for _ in range(response)), (-1.0,) * response, "", "stop"
            ),
            action=Action(None, True),
            rewards=Rewards(0.0, 0.0, 0.0),
            done=True,
            selected=False,
            advantage=1.0,
        )
        for branch in range(k)
    ]


def seconds(policy: CausalLMPolicy, batches: Sequence[Minibatch]) -> float:
    """Forward and backward over all batches."""
    start = time.perf_counter()
    for batch in batches:
        (-policy(batch, 1.0).logprobs.sum()).backward()
    policy.zero_grad(set_to_none=True)
    return time.perf_counter() - start


def main() -> None:
    """Reads the arguments, prints one line per shape."""
    parser = argparse.ArgumentParser(description="Group-packed rows against plain rows.")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    policy, rng, batching = CausalLMPolicy(arguments.model), Random(0), Batching()
    for prompt, response, k in ((160, 14, 8), (160, 14, 4), (64, 64, 4)):
        turns = group(rng, prompt, response, k)
        packed = [pack("p", [turns], batching, 1.0, last=True)]
        alone = [[turn] for turn in turns]
        plain = [pack("p", alone, batching, 1.0, last=True)]
        seconds(policy, packed)  # the first pass also allocates
        times = [(seconds(policy, packed), seconds(policy, plain)) for _ in range(arguments.repeats)]
        fast, slow = (statistics.median(column) for column in zip(*times, strict=True))
        print(
            f"prompt {prompt}, {k} responses of {response}: packed {fast:.2f} s, plain {slow:.2f} s, "
            f"{slow / fast:.1f} times faster ({torch.get_num_threads()} threads)"
        )


if __name__ == "__main__":
    main()
