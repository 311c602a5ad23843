"""An engine whose answers are written by a function: for tests of everything around a model."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from torch import Tensor
from transformers import AutoTokenizer

from atgrpo.engines.common import Parameters, check_policy, check_request
from atgrpo.types import Completion, Request


class ScriptedEngine:
    """Answers with ``script(request, i)`` for completion i, tokenised and followed by the end-of-sequence token.

    One request is finished per ``step``. What was asked is kept in ``requests``, how often a policy's weights came in
    ``pushes``. Log-probs are the constant ``logprob``.
    """

    name = "scripted"
    exact = False

    def __init__(
        self,
        models: Mapping[str, str | Path],
        adapters: Mapping[str, str | Path] | None = None,
        *,
        script: Callable[[Request, int], str],
        logprob: float = -1.0,
    ) -> None:
        self._tokenizers = {policy: AutoTokenizer.from_pretrained(folder) for policy, folder in models.items()}
        # Read when weights come: a folder that only plays needs no more than a tokenizer.
        self._expected = {policy: partial(Parameters.of_folder, Path(folder)) for policy, folder in models.items()} | {
            policy: partial(Parameters.of_adapter, Path(folder)) for policy, folder in (adapters or {}).items()
        }
        self._script = script
        self._logprob = logprob
        self._queue: deque[tuple[int, Request]] = deque()
        self.requests: list[Request] = []
        self.pushes: Counter[str] = Counter()

    def prompt_text(self, request: Request) -> str:
        """The prompt of a request as its policy's tokenizer reads it, special tokens included."""
        return str(self._tokenizers[request.policy].decode(request.prompt_ids))

    def submit(self, ticket: int, request: Request) -> None:
        """Queues a request."""
        check_request(request, dict.fromkeys(self._tokenizers, 2**31))
        self.requests.append(request)
        self._queue.append((ticket, request))

    def step(self) -> Sequence[tuple[int, list[Completion]]]:
        """Answers the oldest request."""
        if not self._queue:
            return []
        ticket, request = self._queue.popleft()
        return [(ticket, [self._completion(request, i) for i in range(request.n)])]

    def _completion(self, request: Request, i: int) -> Completion:
        tokenizer = self._tokenizers[request.policy]
        ids = [*tokenizer.encode(self._script(request, i), add_special_tokens=False), tokenizer.eos_token_id]
        kept = tuple(ids[: request.sampling.max_tokens])
        text = tokenizer.decode(kept, skip_special_tokens=True)
        return Completion(kept, (self._logprob,) * len(kept), text, "stop" if len(kept) == len(ids) else "length")

    def load_weights(self, policy: str, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Checks the names as a real engine does, and forgets the weights."""
        check_policy(policy, self._tokenizers)
        with self._expected[policy]().checked(policy, weights) as known:
            for _ in known:
                pass
        self.pushes[policy] += 1

    def sleep(self) -> None:
        """Nothing to give back."""

    def wake(self) -> None:
        """Nothing to take."""

    def stats(self) -> Mapping[str, float]:
        """Nothing is counted."""
        return {}

    def close(self) -> None:
        """Nothing to free."""
