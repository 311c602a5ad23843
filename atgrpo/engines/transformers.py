"""The fallback sampler: Hugging Face models, no server, the trainer's own numbers in float32."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from atgrpo.engines.adapters import Adapter, read_adapters
from atgrpo.engines.base import EngineError
from atgrpo.engines.common import Parameters, check_policy, check_request, stop_ids
from atgrpo.types import Completion, FinishReason, Request, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class TransformersEngine:
    """Samples with its own copy of each model, one batch of completions per ``step``; adapters on a model share it.

    Every completion draws from its own generator, and its log-probs are those of the distribution it was drawn from.
    """

    def __init__(
        self,
        models: Mapping[str, str | Path],
        adapters: Mapping[str, str | Path] | None = None,
        *,
        dtype: str = "float32",
        batch_size: int = 64,
        device: str | None = None,
    ) -> None:
        """Loads the models.

        Args:
            models: policy name to model folder.
            adapters: policy name to the folder of its LoRA adapter, for policies that have one.
            dtype: of the models.
            batch_size: completions that are sampled at a time.
            device: the GPU if there is one and None is given.
        """
        self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._batch_size = batch_size
        self._adapters, hosts = read_adapters(models, adapters)
        own = {h: _Served.load(Path(models[h]), dtype, self._device) for h in dict.fromkeys(hosts.values())}
        self._served = {policy: own[host] for policy, host in hosts.items()}
        for policy, adapter in self._adapters.items():
            self._served[policy] = self._served[policy].with_adapter(policy, adapter)
        self._longest = {p: s.model.config.max_position_embeddings for p, s in self._served.items()}
        self._tickets: dict[int, _Ticket] = {}
        self._queue: list[_Row] = []
        self.exact = dtype == "float32"
        self.name = f"transformers ({dtype}, {self._device.type})"

    def submit(self, ticket: int, request: Request) -> None:
        """Queues a request under a ticket that is not in use."""
        check_request(request, self._longest)
        if ticket in self._tickets:
            raise ValueError(f"submit got ticket {ticket}, which is still in use")
        self._tickets[ticket] = _Ticket(request)
        room = self._longest[request.policy] - len(request.prompt_ids)
        self._queue += [_Row(ticket, i, request, min(request.sampling.max_tokens, room)) for i in range(request.n)]

    def step(self) -> Sequence[tuple[int, list[Completion]]]:
        """Samples the next batch, all of one policy, to its end."""
        if not self._queue:
            return []
        policy = self._queue[0].request.policy
        waiting = [row for row in self._queue if row.request.policy == policy]
        batch, later = waiting[: self._batch_size], waiting[self._batch_size :]
        self._queue = [row for row in self._queue if row.request.policy != policy] + later
        served = self._served[policy]
        served.activate()
        sample(served.model, batch, served.stops)
        finished = []
        for row in batch:
            ticket = self._tickets[row.ticket]
            ticket.done[row.index] = row.completion(served.tokenizer)
            if len(ticket.done) == ticket.request.n:
                del self._tickets[row.ticket]
                finished.append((row.ticket, [ticket.done[i] for i in range(ticket.request.n)]))
        return finished

    def load_weights(self, policy: str, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Copies all weights of ``policy``; no completion may be under way."""
        check_policy(policy, self._served)
        if any(row.request.policy == policy for row in self._queue):
            raise EngineError(f"weights of policy {policy!r} were pushed while it was sampling")
        served = self._served[policy]
        if served.adapter is not None:
            served.load_adapter(self._adapters[policy].received(policy, weights))
            return
        own = dict(served.model.named_parameters())
        with torch.no_grad(), served.parameters.checked(policy, weights) as known:
            for name, tensor in known:
                own[name].copy_(tensor)

    def sleep(self) -> None:
        """Moves the models to host memory."""
        for served in self._served.values():
            served.model.to("cpu")

    def wake(self) -> None:
        """Moves them back."""
        for served in self._served.values():
            served.model.to(self._device)

    def stats(self) -> Mapping[str, float]:
        """Nothing: every prompt is computed anew."""
        return {}

    def close(self) -> None:
        """Drops the models."""
        self._served.clear()
        self._tickets.clear()
        self._queue.clear()


@dataclass(frozen=True, slots=True)
class _Served:
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    parameters: Parameters
    stops: frozenset[int]
    adapter: str | None = None
    """Its name in the model."""

    @classmethod
    def load(cls, folder: Path, dtype: str, device: torch.device) -> _Served:
        with torch.random.fork_rng():
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
        parameters = Parameters(shapes, tied=model.config.tie_word_embeddings)
        stops = stop_ids(folder, tokenizer.eos_token_id)
        return cls(model, tokenizer, parameters, stops)

    def with_adapter(self, name: str, adapter: Adapter) -> _Served:
        """The same model with one more adapter in it."""
        from peft import LoraConfig
        from peft.functional import inject_adapter_in_model

        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a second adapter, which is what is wanted
            inject_adapter_in_model(LoraConfig.from_pretrained(str(adapter.folder)), self.model, name)
        served = replace(self, parameters=adapter.parameters, adapter=name)
        served.load_adapter(adapter.weights())
        return served

    def activate(self) -> None:
        from peft.functional import set_adapter

        if self.adapter is not None:
            set_adapter(self.model, self.adapter, inference_mode=True)

    def load_adapter(self, weights: Mapping[str, Tensor]) -> None:
        from peft.functional import set_peft_model_state_dict

        set_peft_model_state_dict(self.model, dict(weights), adapter_name=self.adapter)


@dataclass(slots=True)
class _Ticket:
    request: Request
    done: dict[int, Completion] = field(default_factory=dict)


@dataclass(slots=True)
class _Row:
    """One completion on its way."""

    ticket: int
    index: int
    request: Request
    room: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False

    @property
    def running(self) -> bool:
        return not self.stopped and len(self.ids) < self.room

    def completion(self, tokenizer: PreTrainedTokenizerBase) -> Completion:
        text = tokenizer.decode(self.ids, skip_special_tokens=True)
        reason: FinishReason = "stop" if self.stopped else "length"
        return Completion(tuple(self.ids), tuple(self.logprobs), text, reason)


@torch.no_grad()
def sample(model: PreTrainedModel, rows: Sequence[_Row], stops: frozenset[int]) -> None:
    """Fills the rows in token by token. Rows leave the batch once half of it is done, and keep their numbers then."""
    rows = list(rows)
    generators = [torch.Generator().manual_seed(row.request.seed + row.index) for row in rows]
    ids, mask = _left_padded([row.request.prompt_ids for row in rows], model.device)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache: Any = DynamicCache(config=model.config)
    while any(row.running for row in rows):
        output = model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
        )
        logprobs = sampling_logprobs(output.logits[:, -1], [row.request.sampling for row in rows])
        uniform = torch.stack([torch.rand((), generator=g, dtype=torch.float64) for g in generators]).to(model.device)
        greedy = torch.tensor([row.request.sampling.temperature == 0 for row in rows], device=model.device)
        drawn = torch.where(greedy, logprobs.argmax(-1), draw(logprobs, uniform))
        chosen = logprobs.gather(1, drawn[:, None])[:, 0]
        for row, token, logprob in zip(rows, drawn.tolist(), chosen.tolist(), strict=True):
            if row.running:
                row.ids.append(token)
                row.logprobs.append(logprob)
                row.stopped = token in stops
        ids, positions = drawn[:, None], positions[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
        keep = [i for i, row in enumerate(rows) if row.running]
        if 0 < len(keep) <= len(rows) // 2:
            index = torch.tensor(keep, device=model.device)
            cache.batch_select_indices(index)
            ids, positions, mask = ids[index], positions[index], mask[index]
            rows, generators = [rows[i] for i in keep], [generators[i] for i in keep]


def sampling_logprobs(logits: Float[Tensor, "B V"], samplings: Sequence[Sampling]) -> Float[Tensor, "B V"]:
    """``log_softmax(logits / T)`` of each row; temperature 0 reports those at T=1."""
    temperature = torch.tensor([s.temperature or 1.0 for s in samplings], device=logits.device)
    return torch.log_softmax(logits.float() / temperature[:, None], dim=-1)


def draw(logprobs: Float[Tensor, "B V"], uniform: Float[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Inverse of the distribution function at ``uniform`` in [0, 1); never a token of probability 0."""
    mass = logprobs.double().exp().cumsum(-1)
    return torch.searchsorted(mass, (uniform * mass[:, -1])[:, None], right=True)[:, 0]


def _left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + list(p) for p in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device)
    return ids, mask
