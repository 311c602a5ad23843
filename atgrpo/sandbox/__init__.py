"""Running Python that a model wrote: apart from the machine, within limits, judged from outside."""
