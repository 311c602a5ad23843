"""What a run would do and need, worked out without starting it."""

from __future__ import annotations

from omegaconf import DictConfig
from torch import nn

from atgrpo.cli.build import Parts, processes_here
from atgrpo.cli.config import as_yaml
from atgrpo.policies.meta import empty_model
from atgrpo.policies.sources import model_folder

GB = 1e9


def plan_text(parts: Parts) -> str:
    """The resolved configuration, the arithmetic of groups and tokens, and an estimate of memory."""
    sections = (as_yaml(parts.config), _groups(parts), _memory(parts.config))
    return "\n".join(sections)


def _groups(parts: Parts) -> str:
    config, sampler = parts.config, parts.sampler
    prompts = config.prompts_per_iteration
    if parts.group_filter.mode == "replace":
        prompts = int(parts.group_filter.cap * prompts)
    lines = ["one iteration, at most:"]
    responses, tokens = 0, prompts * sampler.playout_tokens(tuple(config.agents))
    playouts = f", {tokens:,} of them in playouts" if tokens else ""
    for agent, policy in config.agents.items():
        k, longest = sampler.responses(agent), sampler.sampling(agent).max_tokens
        own = prompts * sampler.turns * k
        responses += own
        tokens += own * longest
        arithmetic = f"{prompts} prompts x {sampler.turns} turns x K={k} = {own} responses"
        lines.append(f"  {agent} ({policy}): {arithmetic} <= {longest} tokens")
    groups = prompts * sampler.turns * len(config.agents)
    lines.append(
        f"  {groups} groups of one prompt, agent and turn; {responses} responses, {tokens:,} sampled tokens{playouts}"
    )
    steps = config.iterations * parts.batching.steps_per_iteration
    lines.append(
        f"the run: {config.iterations} iterations, {steps} optimiser steps of each policy, "
        f"at most {config.iterations * tokens:,} sampled tokens"
    )
    return "\n".join(lines)


def _memory(config: DictConfig) -> str:
    from transformers import AutoConfig

    ranks = _processes(config)
    lines = ["memory, roughly" + (f", of each of {ranks} processes:" if ranks > 1 else ":")]
    total, bases = 0.0, set()
    for name, node in config.policies.items():
        model = empty_model(AutoConfig.from_pretrained(model_folder(node.model)))
        count = sum(parameter.numel() for parameter in model.parameters())
        learned, base = (_adapter(model, node), _base_bytes(node) * count) if "r" in node else (count, 0.0)
        if (node.model, base) in bases:
            base = 0.0  # shared with a policy above
        bases.add((node.model, base))
        # float32 weights, gradients and two moments; the engine's copy in two bytes.
        trained, served = (16 * learned + base) / ranks / GB, 2 * (learned if "r" in node and not base else count) / GB
        total += trained + served
        lines.append(
            f"  {name}: {learned / 1e6:.0f}M of {count / 1e6:.0f}M parameters learn: {trained:.1f} GB in the trainer, "
            f"{served:.1f} GB in the engine"
        )
    lines.append(f"  {total:.1f} GB together, besides activations and the engine's cache")
    return "\n".join(lines)


def _processes(config: DictConfig) -> int:
    here = processes_here(config.trainer)
    return here * int(config.trainer.get("num_nodes", 1)) if isinstance(here, int) else 1


def _base_bytes(node: DictConfig) -> float:
    if node.get("quantize"):
        return 0.6
    return 2.0 if node.get("base_dtype") == "bfloat16" else 4.0


def _adapter(model: nn.Module, node: DictConfig) -> int:
    """Parameters of an adapter of all linear layers but the head."""
    head = model.get_output_embeddings()  # type: ignore[operator]
    linear = [module for module in model.modules() if isinstance(module, nn.Linear) and module is not head]
    return sum(int(node.r) * (module.in_features + module.out_features) for module in linear)
