"""Groupings, samplers and credits against each other at equal token budgets."""
