"""Pure functions over tensors: no framework, no state."""
