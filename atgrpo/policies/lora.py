"""LoRA policies: one frozen base model, one adapter for each policy on it."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from atgrpo.policies.packed import Attention, Dtype, PackedLM, PackedPolicy, TokenScores, save_tokenizer
from atgrpo.policies.quantized import dequantized_folder, never_repack, nf4
from atgrpo.policies.sharding import full, reshard
from atgrpo.policies.sources import model_folder
from atgrpo.scratch import ScratchFolder
from atgrpo.types import Minibatch


class LoRAPolicy(PackedPolicy):
    r"""Trains ``W + (alpha / r) B A`` for each chosen linear layer, ``A`` and ``B`` in float32 (arXiv:2106.09685).

    ``B`` starts at 0, so the policy starts as the base. ``A`` follows from ``seed`` and the policy's name.

    Args:
        model: What ``policies.sources.model_folder`` accepts: ``smollm2`` (embedded), ``tiny``, a folder, a hub name.
        name: The policy's name, which is its adapter's.
        peers: The run's policies built before; one with the same base and settings lends its base.
        r: Rank of the update.
        alpha: Scale of the update, divided by ``r``.
        target_modules: Names of linear layers such as ``q_proj``, or all of them but the head.
        attention: Attention implementation of transformers; only these two take an arbitrary mask.
        gradient_checkpointing: Recompute activations in the backward pass.
        logits_chunk: Trained tokens whose logits are alive at once.
        trainable: False freezes the policy: it plays, its optimiser is not made.
        base_dtype: Of the base's weights and arithmetic.
        quantize: ``4bit`` keeps the base's linear layers in NF4; engines are given the same weights unpacked.
        seed: Of ``A``; the same on every rank.
        reference: The base is one: nothing has to be kept for it.

    Raises:
        ValueError: the architecture is none that ``PackedLM`` takes, or a setting is out of its range.
    """

    packed: LoRABase
    adapter: Path

    def __init__(
        self,
        model: str,
        *,
        name: str,
        peers: Mapping[str, nn.Module] | None = None,
        r: int = 16,
        alpha: float = 32,
        target_modules: Literal["all-linear"] | Sequence[str] = "all-linear",
        attention: Attention = "sdpa",
        gradient_checkpointing: bool = False,
        logits_chunk: int = 1024,
        trainable: bool = True,
        base_dtype: Dtype = "float32",
        quantize: Literal["4bit"] | None = None,
        seed: int = 0,
        reference: bool = True,
    ) -> None:
        settings = BaseSettings(model_folder(model), attention, gradient_checkpointing, base_dtype, quantize)
        base = _shared_base(peers or {}, settings) or LoRABase(settings)
        super().__init__(base.folder, base, logits_chunk=logits_chunk, trainable=trainable)
        self.name = name
        self.config = base.add(name, r, alpha, target_modules, trainable, seed)
        self._scratch = ScratchFolder("adapter")
        self.adapter = self._scratch.path
        self._write_adapter(self.adapter)

    def forward(self, batch: Minibatch, temperature: float, *, entropy_grad: bool = False) -> TokenScores:
        """Log-probs of the trained tokens under ``softmax(logits / temperature)``, and entropies."""
        with self.packed.using(self.name):
            return super().forward(batch, temperature, entropy_grad=entropy_grad)

    def trained_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The adapter's weights."""
        if self.trainable:
            for module, kind, parameter in self.packed.adapter(self.name):
                yield f"packed.model.{module}.{kind}.{self.name}.weight", parameter

    @torch.no_grad()
    def reference_logprobs(self, batch: Minibatch, temperature: float) -> Float[Tensor, "B T"]:
        """Log-probs by the base alone."""
        with self.packed.using(None):
            logprobs: Tensor = super().forward(batch, temperature).logprobs
            return logprobs

    def export_weights(self) -> Iterator[tuple[str, Tensor]]:
        """(name in a peft adapter's file, tensor), one parameter at a time."""
        reshard(self.packed)
        for module, kind, parameter in self.packed.adapter(self.name):
            yield f"base_model.model.{module}.{kind}.weight", full(parameter)

    def save(self, folder: Path) -> None:
        """Writes a Hugging Face folder with the adapter merged in, and the adapter itself into ``folder/adapter``.

        The merge happens in a copy that is read from the base's folder: what is trained on stays as it is.
        """
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        self._write_adapter(folder / "adapter")
        with torch.random.fork_rng():
            plain = AutoModelForCausalLM.from_pretrained(self.folder, dtype=self.packed.dtype)
            merged = PeftModel.from_pretrained(plain, folder / "adapter").merge_and_unload()
        merged.save_pretrained(folder)
        save_tokenizer(self.folder, folder)

    def _write_adapter(self, folder: Path) -> None:
        from safetensors.torch import save_file

        weights = {name: tensor.cpu().contiguous() for name, tensor in self.export_weights()}
        self.config.save_pretrained(folder)
        save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})


@dataclass(frozen=True, slots=True)
class BaseSettings:
    """Policies that agree on these share a base."""

    source: Path
    attention: Attention
    gradient_checkpointing: bool
    dtype: Dtype
    quantize: Literal["4bit"] | None


class LoRABase(PackedLM):
    """The frozen model and all adapters in it; outside of ``using`` none is active.

    peft's own ``set_adapter`` would also toggle ``requires_grad``, which FSDP2 does not allow after sharding.
    """

    def __init__(self, settings: BaseSettings) -> None:
        small = settings.quantize is not None
        folder = dequantized_folder(settings.source, settings.dtype) if small else settings.source
        super().__init__(
            folder,
            attention=settings.attention,
            gradient_checkpointing=settings.gradient_checkpointing,
            dtype=settings.dtype,
            quantization=nf4(settings.dtype) if small else None,
        )
        never_repack(self)
        self.requires_grad_(False)
        self.settings = settings
        self.folder = folder
        self.dtype = getattr(torch, settings.dtype)
        self._active: str | None = None
        self._layers: list[tuple[str, Any]] = []
        head = self.model.get_output_embeddings()
        linear = [(n, m) for n, m in self.model.named_modules() if isinstance(m, nn.Linear) and m is not head]
        self._linear = sorted({name.rpartition(".")[-1] for name, _ in linear})

    def add(
        self,
        name: str,
        r: int,
        alpha: float,
        targets: Literal["all-linear"] | Sequence[str],
        trainable: bool,
        seed: int,
    ) -> Any:
        """Adds an adapter that changes nothing yet; returns its ``LoraConfig``."""
        from peft import LoraConfig, inject_adapter_in_model
        from peft.tuners.lora import LoraLayer

        targets = self._linear if targets == "all-linear" else list(targets)
        if r < 1:
            raise ValueError(f"r: got {r}, expected 1 or more")
        if not targets or (unknown := [target for target in targets if target not in self._linear]):
            raise ValueError(
                f"target_modules: got {', '.join(unknown) if targets else 'none'}, "
                f"expected all-linear or some of {', '.join(self._linear)}"
            )
        if any(name in layer.lora_A for _, layer in self._layers):
            raise ValueError(f"name: got {name!r} twice on one base, expected another name for each policy")
        config = LoraConfig(
            r=r,
            lora_alpha=alpha,  # type: ignore[arg-type]  # peft only divides it
            target_modules=sorted(targets),
            task_type="CAUSAL_LM",
            base_model_name_or_path=str(self.folder),
        )
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a second adapter, which is what is wanted
            torch.manual_seed(_seed(name, seed))
            inject_adapter_in_model(config, self.model, name)
        self._layers = [(n, m) for n, m in self.model.named_modules() if isinstance(m, LoraLayer)]
        for _, _, parameter in self.adapter(name):
            parameter.data = parameter.data.float()  # peft makes them in the base's dtype
            parameter.requires_grad_(trainable)
        self._activate(None)
        return config

    def adapter(self, name: str) -> Iterator[tuple[str, str, nn.Parameter]]:
        """(layer, ``lora_A`` or ``lora_B``, weight) of one adapter."""
        for module, layer in self._layers:
            if name in layer.lora_A:
                yield module, "lora_A", layer.lora_A[name].weight
                yield module, "lora_B", layer.lora_B[name].weight

    @contextmanager
    def using(self, name: str | None) -> Iterator[None]:
        """The base computes with this adapter, or with none, inside the block."""
        before = self._active
        self._activate(name)
        try:
            yield
        finally:
            self._activate(before)

    def _activate(self, name: str | None) -> None:
        self._active = name
        for _, layer in self._layers:
            layer._active_adapter = [] if name is None else [name]

    def checkpoint_contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """A layer is computed again with the adapter of its forward pass, whatever is active by then."""
        return nullcontext(), self.using(self._active)


def _shared_base(peers: Mapping[str, nn.Module], settings: BaseSettings) -> LoRABase | None:
    for peer in peers.values():
        if isinstance(peer, LoRAPolicy) and peer.packed.settings == settings:
            return peer.packed
    return None


def _seed(name: str, seed: int) -> int:
    """Depends on nothing else, so that every rank makes the same adapters and their number does not matter."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
