"""How close the rollout phase comes to bare ``LLM.generate`` on the same requests.

python -m benchmarks.throughput

One iteration of the main job's rollouts is played and its requests recorded; a second engine with the same arguments
answers them again, spared the rendering, decoding and judging. "same waves" gets one step of all trees at a time, as
prompts depend on earlier responses; "all at once" knows what no rollout can: every prompt beforehand.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import torch

from atgrpo.data.word_problems import WordProblems
from atgrpo.engines.vllm import VLLMEngine
from atgrpo.envs.math import MathTeam
from atgrpo.policies.sources import model_folder
from atgrpo.quiet import quiet
from atgrpo.rollout.seeds import stable_seed
from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.team import Team
from atgrpo.types import Request, Sample

AGENTS = {"tool": "solver", "reasoner": "solver"}
SAMPLER = TreeSampler(turns=2, branches=8, max_tokens={"tool": 16, "reasoner": 12})
# The main job allows 512; the tiny model's prompts are longer. The cache is paged, so that this costs nothing.
LONGEST = 1024
SEED = 0


class Recorder(VLLMEngine):
    """Keeps what it was asked."""

    def __init__(self, models: Any) -> None:
        # Bare vLLM needs the other half of a GPU's memory.
        super().__init__(models, dtype="bfloat16", max_model_len=LONGEST + 16, gpu_memory_utilization=0.4)
        self.requests: list[Request] = []
        (self.llm,) = self._llms.values()

    def submit(self, ticket: int, request: Request) -> None:
        self.requests.append(request)
        super().submit(ticket, request)

    def bare(self) -> Any:
        """Plain vLLM with this engine's arguments; what it derives from them is its own."""
        from vllm import LLM

        config = self.llm.vllm_config
        model, cache = config.model_config, config.cache_config
        return LLM(
            model=model.model,
            dtype=model.dtype,
            max_model_len=model.max_model_len,
            enforce_eager=model.enforce_eager,
            enable_sleep_mode=model.enable_sleep_mode,
            logprobs_mode=model.logprobs_mode,
            max_num_seqs=config.scheduler_config.max_num_seqs,
            enable_chunked_prefill=config.scheduler_config.enable_chunked_prefill,
            block_size=cache.block_size,
            enable_prefix_caching=cache.enable_prefix_caching,
            kv_cache_memory_bytes=cache.kv_cache_memory_bytes,
            gpu_memory_utilization=cache.gpu_memory_utilization,
            use_tqdm_on_load=False,
        )


def timed(llm: Any, work: Callable[[], int]) -> tuple[int, float]:
    """Tokens and seconds, from an empty prefix cache as in every iteration."""
    if not llm.reset_prefix_cache():
        raise RuntimeError("vLLM kept its prefix cache, expected an empty one")
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def play(team: Team, engine: Recorder, samples: Sequence[Sample]) -> tuple[int, float]:
    """One iteration's rollouts."""
    engine.requests.clear()

    def work() -> int:
        rollouts = team.play(samples, SAMPLER, seed=SEED)
        return sum(len(turn.completion.token_ids) for rollout in rollouts for turn in rollout.turns)

    return timed(engine.llm, work)


def generate(llm: Any, batches: Sequence[Sequence[Request]]) -> tuple[int, float]:
    """Bare generation, one batch after another."""
    from vllm import SamplingParams, TokensPrompt

    calls = []
    for batch in batches:
        each = [(request, request.seed + i) for request in batch for i in range(request.n)]
        params = [SamplingParams(**asdict(r.sampling), seed=seed, logprobs=0, detokenize=False) for r, seed in each]
        calls.append(([TokensPrompt(prompt_token_ids=list(r.prompt_ids)) for r, _ in each], params))

    def work() -> int:
        outputs = [output for call in calls for output in llm.generate(*call, use_tqdm=False)]
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return timed(llm, work)


def waves(requests: Sequence[Request], trees: int) -> list[list[Request]]:
    """The requests by the step of their tree, which their seeds tell."""
    steps = [(agent, stage.turn) for stage in SAMPLER.stages(tuple(AGENTS)) for agent in stage.agents]
    step_of = {stable_seed(SEED, tree, *step): i for i, step in enumerate(steps) for tree in range(trees)}
    return [[r for r in requests if step_of[r.seed] == i] for i in sorted({step_of[r.seed] for r in requests})]


def main() -> None:
    """Reads the arguments, prints one line per way to generate."""
    parser = argparse.ArgumentParser(description="The rollout phase against bare LLM.generate on the same requests.")
    parser.add_argument("--model", default="smollm2", help="name or folder of a model; tiny for a quick look")
    parser.add_argument("--prompts", type=int, default=12, help="problems of one iteration")
    parser.add_argument("--repeats", type=int, default=3, help="times that each way is timed")
    arguments = parser.parse_args()
    quiet()
    warnings.simplefilter("ignore", FutureWarning)  # of vLLM at its start
    policies: Any = {"solver": SimpleNamespace(folder=model_folder(arguments.model), adapter=None)}
    team = Team(engine=Recorder, environment=MathTeam, agents=AGENTS, policies=policies, max_prompt_tokens=LONGEST)
    engine: Any = team.engine
    llm, samples = engine.bare(), WordProblems().split("train")[: arguments.prompts]
    ways: dict[str, Callable[[], tuple[int, float]]] = {
        "rollout": lambda: play(team, engine, samples),
        "bare, same waves": lambda: generate(llm, waves(engine.requests, len(samples))),
        "bare, all at once": lambda: generate(llm, [engine.requests]),
    }
    rounds = [{name: way() for name, way in ways.items()} for _ in range(arguments.repeats + 1)][1:]  # first: warm-up
    print(f"{engine.name}, {torch.get_num_threads()} threads: {len(engine.requests)} requests of 8 responses")
    speeds = {name: statistics.median(r[name][0] / r[name][1] for r in rounds) for name in ways}
    for name, speed in speeds.items():
        tokens, seconds = (statistics.median(column) for column in zip(*(r[name] for r in rounds), strict=True))
        share = speeds["rollout"] / speed
        print(f"{name}: {tokens:g} tokens in {seconds:.2f} s, {speed:.0f} tokens/s; rollout at {share:.2f} of it")
    print(f"repeats with unequal tokens: {sum(len({tokens for tokens, _ in r.values()}) > 1 for r in rounds)}")
    team.close()


if __name__ == "__main__":
    main()
