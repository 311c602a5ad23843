"""A short supervised phase before a run, for models that could not yet earn any reward to learn from."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from atgrpo.data.base import TaskData
from atgrpo.envs.base import Environment
from atgrpo.policies.packed import save_tokenizer
from atgrpo.policies.sources import cache_folder, cached, model_folder
from atgrpo.rollout.samplers import SamplerSettings
from atgrpo.training.demonstrations import Demonstration, demonstrations
from atgrpo.training.prompts import PromptStream
from atgrpo.training.say import bar, say

IGNORED = -100
"""Label of a token that is not learned."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is demonstrated, and to whom."""

    environment: Callable[[], Environment]
    data: TaskData
    agents: Mapping[str, str]
    sampler: SamplerSettings
    template: Mapping[str, Any]
    """Further variables of the chat template."""
    description: str
    """Of the settings above: another one is another warm start."""


@dataclass(frozen=True)
class WarmStart:
    """Each model imitates ``Environment.demonstrate`` in all roles that start from it: mean NLL over response tokens.

    Done once and kept in the cache for the same model, task, settings and code of the task.

    Args:
        steps: Optimiser steps; 0 for none.
        episodes: Played for each step, each on a training sample of its own.
        lr: Peak of a rate that rises over the first tenth of the steps and falls to 0 with the last.
        seed: In which order samples come.
    """

    steps: int = 0
    episodes: int = 16
    lr: float = 3e-3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 0 or self.episodes < 1 or not self.lr > 0:
            raise ValueError(
                f"warm_start got steps={self.steps}, episodes={self.episodes}, lr={self.lr}, expected at least 0, 1 "
                "and more than 0"
            )

    def folder(self, model: str, policies: frozenset[str], task: Task) -> str:
        """The model to start from for ``policies``, which share ``model``; that model itself without any steps.

        Raises:
            ValueError: the task demonstrates nothing.
        """
        if not self.steps:
            return model
        source = model_folder(model)
        name = f"{source.name}-warm-{self._identity(source, policies, task)}"
        return str(cached(name, partial(self._build, source, policies, task), cache_folder()))

    def _identity(self, source: Path, policies: frozenset[str], task: Task) -> str:
        folders = {Path(inspect.getfile(type(part))).parent for part in (task.environment(), task.data)}
        code = [file.read_bytes().hex() for folder in sorted(folders) for file in sorted(folder.glob("*.py"))]
        plan = [str(stage) for stage in task.sampler.stages(tuple(task.agents))]
        train = task.data.split("train")
        # What files hold that the task reads shows in its samples, or in what it demonstrates on the first of them.
        seen = [(sample.prompt, sample.answer, str(sample.meta)) for sample in train]
        shown = [str(d) for d in demonstrations(task.environment, task.agents, task.sampler, train[: self.episodes])]
        parts = [asdict(self), str(source), sorted(policies), task.description, plan, code, seen, shown]
        return hashlib.sha256(json.dumps([*parts, torch.__version__]).encode()).hexdigest()[:16]

    def _build(self, source: Path, policies: frozenset[str], task: Task, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        tokenizer = AutoTokenizer.from_pretrained(source)
        encode = partial(_encoded, tokenizer, task.template)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).to(device).train()
            loss = self._fit(model, self._batches(policies, task, encode, tokenizer.eos_token_id), device)
        say(f"warm start: {self.steps} steps on {source.name}, loss {loss:.3f}, kept in {folder.parent}")
        model.save_pretrained(folder)
        save_tokenizer(source, folder)

    def _batches(
        self,
        policies: frozenset[str],
        task: Task,
        encode: Callable[[Demonstration], tuple[list[int], list[int]]],
        pad: int,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(token ids, labels), both [B, T]."""
        order = PromptStream(task.data.split("train"), self.seed)
        for step in range(self.steps):
            samples = order.take(step * self.episodes, self.episodes)
            shown = demonstrations(task.environment, task.agents, task.sampler, samples)
            rows = [encode(d) for d in shown if task.agents[d.agent] in policies]
            if not rows:  # their roles were not asked in these episodes
                continue
            yield _padded([ids for ids, _ in rows], pad), _padded([labels for _, labels in rows], IGNORED)

    def _fit(self, model: Any, batches: Iterator[tuple[Tensor, Tensor]], device: torch.device) -> float:
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.lr, weight_decay=0.0)
        rates = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.lr, total_steps=self.steps + 1, pct_start=0.1, cycle_momentum=False
        )
        loss = torch.tensor(torch.nan)
        for ids, labels in bar(iterable=batches, total=self.steps, desc="warm start", unit="step", leave=False):
            # Padded at the end, where nothing that is learned looks.
            loss = model(input_ids=ids.to(device), labels=labels.to(device), use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            rates.step()
        if loss.isnan():
            raise ValueError("warm_start: the demonstrations never ask some policy, expected each at least once")
        return loss.item()


def _encoded(tokenizer: Any, template: Mapping[str, Any], shown: Demonstration) -> tuple[list[int], list[int]]:
    """Token ids as the sampler would have them, and the labels of the response."""
    prompt = tokenizer.apply_chat_template(
        list(shown.messages), add_generation_prompt=True, tokenize=True, return_dict=False, **template
    )
    response = [*tokenizer.encode(shown.response, add_special_tokens=False), tokenizer.eos_token_id]
    return [*prompt, *response], [IGNORED] * len(prompt) + response


def _padded(rows: list[list[int]], value: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])
