"""vLLM inside the trainer's process: one engine core per model, stepped by the rollout loop."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from atgrpo.engines.adapters import read_adapters
from atgrpo.engines.base import EngineError
from atgrpo.engines.common import Parameters, check_policy, check_request, memory_folder
from atgrpo.engines.vllm_adapters import VLLMAdapters
from atgrpo.engines.vllm_import import import_vllm, trainer_untouched, vllm_version
from atgrpo.types import Completion, Request

CPU_CACHE_GB = 1.0
CPU_BLOCK = 32


class VLLMEngine:
    """Serves policies from in-process vLLM engines: one for each policy, or for all adapters on the same model.

    Every completion is a vLLM request of its own with its own seed, so that it does not depend on what else is in the
    batch. Log-probs are those after temperature; they come from the engine's kernels and dtype, hence ``exact`` is
    False.
    """

    exact: ClassVar[bool] = False
    _open: ClassVar[int] = 0
    _owns_process_group: ClassVar[bool] = False

    def __init__(
        self,
        models: Mapping[str, str | Path],
        adapters: Mapping[str, str | Path] | None = None,
        *,
        dtype: str = "auto",
        max_model_len: int | None = None,
        max_num_seqs: int = 128,
        kv_cache_gb: float | None = None,
        gpu_memory_utilization: float = 0.85,
        enforce_eager: bool | None = None,
        tensor_parallel_size: int = 1,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Starts vLLM.

        Args:
            models: policy name to model folder.
            adapters: policy name to the folder of its LoRA adapter, for policies that have one.
            dtype: ``auto`` takes bfloat16 for float32 checkpoints, and the checkpoint's own otherwise.
            max_model_len: longest prompt plus completion; the model's own limit if None.
            max_num_seqs: completions that run at the same time, per engine.
            kv_cache_gb: key-value cache per engine in GiB. None: 1 on CPU, what is left on a GPU.
            gpu_memory_utilization: share of the GPU's memory that all engines together may take.
            enforce_eager: no compilation and no CUDA graphs. None: eager on CPU, where compiling gains nothing.
            tensor_parallel_size: GPUs that each policy is split over.
            extra: further arguments of vLLM's ``EngineArgs``.
        """
        read, self._hosts = read_adapters(models, adapters)
        self._adapters = VLLMAdapters(read, self._hosts)
        folders = {host: Path(models[host]) for host in dict.fromkeys(self._hosts.values())}
        settings = {
            "dtype": dtype,
            "max_model_len": max_model_len,
            "max_num_seqs": max_num_seqs,
            "kv_cache_memory_bytes": None if kv_cache_gb is None else int(kv_cache_gb * 2**30),
            "gpu_memory_utilization": gpu_memory_utilization / len(folders),
            "enforce_eager": enforce_eager,
            "tensor_parallel_size": tensor_parallel_size,
            **(extra or {}),
        }
        with trainer_untouched():
            self._llms = {h: self._start(f, settings | self._adapters.settings(h)) for h, f in folders.items()}
            for policy in read:
                self._adapters.load(self._llm(policy), policy)
        self._parameters = {policy: Parameters.of_folder(Path(models[policy])) for policy in set(models) - set(read)}
        self._tensor_parallel = tensor_parallel_size
        self._prepare(list(models))
        atexit.register(self.close)  # a process that ends with vLLM open prints pages of leaked objects

    def _prepare(self, policies: Sequence[str]) -> None:
        """What is needed to serve, as far as the started engines tell it."""
        self._tickets: dict[int, _Ticket] = {}
        self._without_weights: set[str] = set()
        self._prompt_tokens = self._cached_tokens = 0
        self._tokenizers = {policy: self._llm(policy).get_tokenizer() for policy in policies}
        self._longest = {policy: self._llm(policy).model_config.max_model_len for policy in policies}
        self._device = next(iter(self._llms.values())).vllm_config.device_config.device_type
        dtypes = sorted({str(llm.model_config.dtype).removeprefix("torch.") for llm in self._llms.values()})
        self.name = f"vllm {vllm_version()} ({', '.join(dtypes)}, {self._device})"

    def _llm(self, policy: str) -> Any:
        return self._llms[self._hosts[policy]]

    @classmethod
    def _start(cls, folder: Path, settings: dict[str, Any]) -> Any:
        import_vllm()
        from vllm.engine.arg_utils import EngineArgs
        from vllm.platforms import current_platform
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine

        on_cpu = current_platform.is_cpu()
        if settings["enforce_eager"] is None:
            settings["enforce_eager"] = on_cpu
        if on_cpu:
            settings["kv_cache_memory_bytes"] = settings["kv_cache_memory_bytes"] or int(CPU_CACHE_GB * 2**30)
            # A prompt prefilled in pieces makes vLLM rewind its generator, which CPU generators cannot do.
            settings.setdefault("enable_chunked_prefill", False)
            # Only whole blocks of a prompt are shared by its completions; vLLM's 128 here would miss short prompts.
            settings.setdefault("block_size", CPU_BLOCK)
        group_before = torch.distributed.is_initialized()
        arguments = EngineArgs(
            model=str(folder),
            logprobs_mode="processed_logprobs",
            worker_extension_cls="atgrpo.engines.vllm_worker.WeightReceiver",
            enable_prefix_caching=True,
            enable_sleep_mode=not on_cpu,
            disable_log_stats=True,
            use_tqdm_on_load=False,
            **settings,
        )
        # The context decides how many tokens a step takes where nobody says so.
        llm = LLMEngine.from_engine_args(arguments, usage_context=UsageContext.LLM_CLASS)
        # Its finalizer tears down what all engines of the process share; close() does that for the last one only.
        llm.engine_core._finalizer.detach()
        VLLMEngine._open += 1
        VLLMEngine._owns_process_group |= not group_before
        return llm

    def submit(self, ticket: int, request: Request) -> None:
        """Queues a request under a ticket that is not in use."""
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        check_request(request, self._longest)
        if ticket in self._tickets:
            raise ValueError(f"submit got ticket {ticket}, which is still in use")
        if request.policy in self._without_weights:
            raise EngineError(
                f"policy {request.policy!r} was asked for completions before its weights were loaded again"
            )
        for i in range(request.n):
            params = SamplingParams(
                max_tokens=request.sampling.max_tokens,
                temperature=request.sampling.temperature,
                seed=request.seed + i,
                logprobs=0,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            prompt = TokensPrompt(prompt_token_ids=list(request.prompt_ids))
            adapter = self._adapters.request(request.policy)
            self._llm(request.policy).add_request(f"{ticket}-{i}", prompt, params, lora_request=adapter)
        self._tickets[ticket] = _Ticket(request)

    def step(self) -> Sequence[tuple[int, list[Completion]]]:
        """One forward pass of every engine that has something to do."""
        finished = []
        for llm in self._llms.values():
            if not llm.has_unfinished_requests():
                continue
            with trainer_untouched():
                outputs = llm.step()
            for output in outputs:
                number, i = map(int, output.request_id.split("-"))
                ticket = self._tickets[number]
                ticket.done[i] = self._completion(ticket.request.policy, output.outputs[0])
                self._prompt_tokens += len(output.prompt_token_ids)
                self._cached_tokens += output.num_cached_tokens or 0
                if len(ticket.done) == ticket.request.n:
                    del self._tickets[number]
                    finished.append((number, [ticket.done[j] for j in range(ticket.request.n)]))
        return finished

    def _completion(self, policy: str, output: Any) -> Completion:
        if output.finish_reason not in ("stop", "length"):
            raise EngineError(f"vLLM ended a completion of policy {policy!r} with {output.finish_reason!r}")
        ids = tuple(output.token_ids)
        return Completion(
            token_ids=ids,
            logprobs=tuple(step[token].logprob for step, token in zip(output.logprobs, ids, strict=True)),
            text=self._tokenizers[policy].decode(ids, skip_special_tokens=True),
            finish_reason=output.finish_reason,
        )

    def load_weights(self, policy: str, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replaces all weights of ``policy`` and forgets cached prefixes; no completion may be under way."""
        check_policy(policy, self._hosts)
        llm = self._llm(policy)
        if any(ticket.request.policy == policy for ticket in self._tickets.values()):
            raise EngineError(f"weights of policy {policy!r} were pushed while it was sampling")
        if policy in self._adapters:
            with trainer_untouched():
                self._adapters.push(llm, policy, weights)
        else:
            with trainer_untouched(), self._parameters[policy].checked(policy, weights) as known:
                self._push(llm, known)
            if not llm.reset_prefix_cache():
                raise EngineError(f"vLLM kept prefixes that the old weights of policy {policy!r} had cached")
        self._without_weights.discard(policy)

    def _push(self, llm: Any, weights: Iterator[tuple[str, Tensor]]) -> None:
        if self._tensor_parallel == 1:
            llm.collective_rpc("receive_weights", args=(weights,))
            return
        from safetensors.torch import save_file

        with memory_folder() as folder:
            file = str(folder / "weights.safetensors")
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in weights}, file)
            llm.collective_rpc("receive_weight_file", args=(file,))

    def sleep(self) -> None:
        """Frees the GPU memory of weights and cache. On CPU there is nothing to give back."""
        if self._device == "cpu":
            return
        # All engines of a process share one allocator, and the first to sleep puts them all to sleep. Level 2 then
        # discards the others' buffers before they are saved; level 1 keeps everything in host memory. So it must be
        # under adapters: nobody pushes their model again.
        level = 2 if len(self._llms) == 1 and not self._adapters else 1
        for llm in self._llms.values():
            llm.sleep(level=level)

    def wake(self) -> None:
        """Takes the memory back; every policy then waits for ``load_weights``."""
        if self._device == "cpu":
            return
        for llm in self._llms.values():
            llm.wake_up()
        self._without_weights = set(self._hosts)

    def stats(self) -> Mapping[str, float]:
        """``prefix_cache_hit_rate``: share of prompt tokens, finished since the last call, that were not computed."""
        rate = self._cached_tokens / self._prompt_tokens if self._prompt_tokens else 0.0
        self._prompt_tokens = self._cached_tokens = 0
        return {"prefix_cache_hit_rate": rate}

    def close(self) -> None:
        """Frees weights and caches, and torch.distributed if vLLM had started it and this is its last engine."""
        atexit.unregister(self.close)
        while self._llms:
            _, llm = self._llms.popitem()
            core = llm.engine_core.engine_core
            core.structured_output_manager.clear_backend()
            core.model_executor.shutdown()
            core.scheduler.shutdown()
            VLLMEngine._open -= 1
        self._tickets.clear()
        gc.unfreeze()  # vLLM freezes the heap at start, and what is frozen is never collected
        if VLLMEngine._open == 0 and VLLMEngine._owns_process_group:
            from vllm.distributed import cleanup_dist_env_and_memory

            cleanup_dist_env_and_memory()
            VLLMEngine._owns_process_group = False
        gc.collect()


@dataclass(slots=True)
class _Ticket:
    request: Request
    done: dict[int, Completion] = field(default_factory=dict)
