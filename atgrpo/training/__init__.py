"""Lightning: the module, its data, its callbacks."""
