"""One file per advantage estimator, metric family or habit of the run."""
