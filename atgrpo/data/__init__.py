"""Where samples come from: built-in problems, JSON lines, Hugging Face datasets, reasoning-gym tasks."""
