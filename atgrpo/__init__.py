"""AT-GRPO: Agent- and Turn-wise Group Relative Policy Optimization for teams of LLM agents (arXiv:2510.11062)."""

__version__ = "0.1.0"
