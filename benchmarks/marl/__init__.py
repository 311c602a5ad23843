"""Three algorithms, two tasks, several seeds at equal frames, beside BenchMARL."""
