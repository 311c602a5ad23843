"""Tasks: one file per environment."""
