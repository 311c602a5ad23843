"""What a run would do and need, worked out without starting it."""

from __future__ import annotations

import torch
from omegaconf import DictConfig

from atgrpo.cli.build import Parts
from atgrpo.cli.config import as_yaml

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
    lines = ["memory, roughly:"]
    total = 0.0
    for name, node in config.policies.items():
        count = count_parameters(node.model)
        # float32 weights, gradients and two moments; the engine's copy in two bytes.
        trained, served = 16 * count / GB, 2 * count / GB
        total += trained + served
        lines.append(
            f"  {name}: {count / 1e6:.0f}M parameters: {trained:.1f} GB trained, {served:.1f} GB in the engine"
        )
    lines.append(f"  {total:.1f} GB together, besides activations and the engine's cache")
    return "\n".join(lines)


def count_parameters(model: str) -> int:
    """Parameters of a model, from its configuration alone."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from atgrpo.policies.sources import model_folder

    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_folder(model)))
    return sum(parameter.numel() for parameter in built.parameters())
