"""Requests to tiny policies, and what the trainer makes of the answers."""

from __future__ import annotations

import torch

from atgrpo.types import Completion, Request, Sampling

PROMPT = tuple(range(10, 40))
LONG_PROMPT = tuple(4 + i * 7 % 90 for i in range(300))


def ask(
    policy: str = "tied",
    prompt: tuple[int, ...] = PROMPT,
    n: int = 3,
    max_tokens: int = 12,
    temperature: float = 1.0,
    seed: int = 5,
) -> Request:
    return Request(policy, prompt, n, Sampling(max_tokens, temperature), seed)


def ids(completions: list[Completion]) -> list[tuple[int, ...]]:
    return [completion.token_ids for completion in completions]


@torch.no_grad()
def trainer_logprobs(model: torch.nn.Module, prompt: tuple[int, ...], completion: Completion, temperature: float):
    sequence = torch.tensor([[*prompt, *completion.token_ids]])
    logits = model(input_ids=sequence).logits[0, len(prompt) - 1 : -1]
    chosen = torch.tensor(completion.token_ids)
    return torch.log_softmax(logits / temperature, -1).gather(1, chosen[:, None])[:, 0]


def gap(model: torch.nn.Module, request: Request, completions: list[Completion]) -> float:
    """Largest difference between the engine's and the trainer's log-probs."""
    temperature = request.sampling.temperature or 1.0
    return max(
        float((trainer_logprobs(model, request.prompt_ids, c, temperature) - torch.tensor(c.logprobs)).abs().max())
        for c in completions
    )
