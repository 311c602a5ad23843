"""How close the rollout phase comes to bare ``LLM.generate`` on the same requests.

python -m benchmarks.throughput

One iteration of the main job's rollouts is played and every request recorded; a second engine with the same arguments
then answers exactly these requests. Bare generation is given more than a rollout can have: its prompts are rendered,
its responses stay token ids, and nothing is judged. "same waves" gets one step of all trees at a time, like the
rollout, whose next prompts depend on the responses; "all at once" knows every prompt beforehand.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from atgrpo.cli.build import quiet
from atgrpo.data.word_problems import WordProblems
from atgrpo.engines.vllm import VLLMEngine
from atgrpo.envs.math import MathTeam
from atgrpo.policies.sources import model_folder
from atgrpo.rollout.seeds import stable_seed
from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.team import Team
from atgrpo.types import Request

AGENTS = {"tool": "solver", "reasoner": "solver"}
SAMPLER = TreeSampler(turns=2, branches=8, max_tokens={"tool": 16, "reasoner": 12})
# The main job allows 512; the tiny model's prompts are longer. The cache is paged, so that this costs nothing.
MAX_PROMPT_TOKENS = 1024
SEED = 0


class RecordingEngine(VLLMEngine):
    """Keeps what it was asked."""

    def __init__(self, models: Any, **settings: Any) -> None:
        super().__init__(models, **settings)
        self.requests: list[Request] = []

    def submit(self, ticket: int, request: Request) -> None:
        self.requests.append(request)
        super().submit(ticket, request)

    def forget(self) -> None:
        """Drops the recorded requests and the cached prefixes."""
        self.requests = []
        reset(self._llms["solver"])

    def bare(self) -> Any:
        """Plain vLLM with this engine's arguments; what it derives from them by itself is its own."""
        from vllm import LLM

        config = self._llms["solver"].vllm_config
        model, cache, scheduler = config.model_config, config.cache_config, config.scheduler_config
        return LLM(
            model=model.model,
            dtype=model.dtype,
            max_model_len=model.max_model_len,
            enforce_eager=model.enforce_eager,
            enable_sleep_mode=model.enable_sleep_mode,
            logprobs_mode=model.logprobs_mode,
            max_num_seqs=scheduler.max_num_seqs,
            enable_chunked_prefill=scheduler.enable_chunked_prefill,
            block_size=cache.block_size,
            enable_prefix_caching=cache.enable_prefix_caching,
            kv_cache_memory_bytes=cache.kv_cache_memory_bytes,
            gpu_memory_utilization=cache.gpu_memory_utilization,
            use_tqdm_on_load=False,
        )


def reset(llm: Any) -> None:
    """Every repetition starts with an empty prefix cache, as every iteration does after new weights."""
    if not llm.reset_prefix_cache():
        raise RuntimeError("vLLM kept its prefix cache, expected an empty one")


def waves(requests: Sequence[Request], trees: int) -> list[list[Request]]:
    """The requests by the step of their tree, which their seeds tell."""
    steps = [(agent, stage.turn) for stage in SAMPLER.stages(tuple(AGENTS)) for agent in stage.agents]
    step_of = {stable_seed(SEED, tree, *step): i for i, step in enumerate(steps) for tree in range(trees)}
    found: list[list[Request]] = [[] for _ in steps]
    for request in requests:
        found[step_of[request.seed]].append(request)
    return [wave for wave in found if wave]


def generate(llm: Any, batches: Sequence[Sequence[Request]]) -> tuple[int, float]:
    """Tokens and seconds of bare generation, one batch after another."""
    from vllm import SamplingParams, TokensPrompt

    calls = []
    for batch in batches:
        each = [(request, i) for request in batch for i in range(request.n)]
        prompts = [TokensPrompt(prompt_token_ids=list(request.prompt_ids)) for request, _ in each]
        params = [
            SamplingParams(**asdict(request.sampling), seed=request.seed + i, logprobs=0, detokenize=False)
            for request, i in each
        ]
        calls.append((prompts, params))
    reset(llm)
    start = time.perf_counter()
    outputs = [output for prompts, params in calls for output in llm.generate(prompts, params, use_tqdm=False)]
    seconds = time.perf_counter() - start
    return sum(len(output.outputs[0].token_ids) for output in outputs), seconds


def play(team: Team, engine: RecordingEngine, prompts: int) -> tuple[int, float]:
    """Tokens and seconds of one iteration's rollouts."""
    samples = WordProblems().split("train")[:prompts]
    engine.forget()
    start = time.perf_counter()
    rollouts = team.play(samples, SAMPLER, seed=SEED)
    seconds = time.perf_counter() - start
    return sum(len(turn.completion.token_ids) for rollout in rollouts for turn in rollout.turns), seconds


def main() -> None:
    """Reads the arguments, prints one line per way to generate."""
    parser = argparse.ArgumentParser(description="The rollout phase against bare LLM.generate on the same requests.")
    parser.add_argument("--model", default="smollm2", help="name or folder of a model; tiny for a quick look")
    parser.add_argument("--prompts", type=int, default=12, help="problems of one iteration")
    parser.add_argument("--repeats", type=int, default=3, help="times that each way is timed")
    arguments = parser.parse_args()
    quiet()
    warnings.simplefilter("ignore", FutureWarning)  # vLLM's own, at its start
    start = partial(RecordingEngine, dtype="bfloat16", max_model_len=MAX_PROMPT_TOKENS + 16, gpu_memory_utilization=0.4)
    policies: Any = {"solver": SimpleNamespace(folder=model_folder(arguments.model))}
    team = Team(
        engine=start, environment=MathTeam, agents=AGENTS, policies=policies, max_prompt_tokens=MAX_PROMPT_TOKENS
    )
    engine: Any = team.engine
    llm = engine.bare()
    ways: dict[str, Callable[[], tuple[int, float]]] = {
        "rollout": lambda: play(team, engine, arguments.prompts),
        "bare, same waves": lambda: generate(llm, waves(engine.requests, arguments.prompts)),
        "bare, all at once": lambda: generate(llm, [engine.requests]),
    }
    for way in ways.values():
        way()  # the first pass also allocates
    timed = [{name: way() for name, way in ways.items()} for _ in range(arguments.repeats)]
    print(f"{engine.name}, {torch.get_num_threads()} threads: {len(engine.requests)} requests of 8 responses")
    speeds = {name: statistics.median(t[name][0] / t[name][1] for t in timed) for name in ways}
    for name, speed in speeds.items():
        tokens, seconds = (statistics.median(column) for column in zip(*(t[name] for t in timed), strict=True))
        ratio = speeds["rollout"] / speed
        print(f"{name}: {tokens:g} tokens in {seconds:.2f} s, {speed:.0f} tokens/s; rollout at {ratio:.2f} of it")
    team.close()


if __name__ == "__main__":
    main()
