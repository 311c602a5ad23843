"""From samples to turns, and from turns to minibatches."""
