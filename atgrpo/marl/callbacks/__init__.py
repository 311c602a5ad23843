"""One file per algorithm, metric family or habit of the run."""
