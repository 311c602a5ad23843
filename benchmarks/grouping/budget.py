"""Ends a run at its token budget and scores the team at fixed marks on the way."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

import lightning as L

from atgrpo.rollout.seeds import stable_seed
from atgrpo.training.callbacks.checkpoint import checkpoint_of
from atgrpo.training.evaluation import Mode, evaluate
from atgrpo.training.rollout_metrics import sampled_tokens
from atgrpo.training.say import say
from benchmarks.grouping.results import INFO

CURVE = "curve.jsonl"
WATCHED = ("rollout/success", "group/zero_variance", "group/singleton", "group/mixed_prompts")


class TokenBudget(L.Callback):
    """Stops after the iteration in which ``tokens`` are used up, and writes ``curve.jsonl`` into the run's folder.

    A line is a score: before training, after each iteration that crosses a mark (``tokens`` divided by ``marks``) and
    at the end. Iterations are never cut, so a run goes over by less than one of them; whoever compares runs
    interpolates at equal tokens. ``seconds`` are those of rollouts and training, without the engine's start, the warm
    start and the scores. Metrics are means over the iterations since the line before.

    Args:
        tokens: All that the engine samples for training, playouts that are not trained on included.
        marks: Scores besides the one before training.
        problems: Held-out episodes of a score; a smaller split is played several times, greedily once.
        modes: How they are played, each once.
    """

    def __init__(
        self, tokens: int, marks: int = 4, problems: int = 256, modes: Sequence[Mode] = ("sampled", "greedy")
    ) -> None:
        if min(tokens, marks, problems) < 1 or marks > tokens or not modes:
            raise ValueError(
                f"budget got tokens={tokens}, marks={marks}, problems={problems}, modes={list(modes)}, expected at "
                "least 1 each, no more marks than tokens and one mode"
            )
        self.tokens, self.marks, self.problems, self.modes = tokens, marks, problems, tuple(modes)
        self.used = 0
        self.seconds = 0.0
        self.curve: list[dict[str, Any]] = []
        self._sums: dict[str, list[float]] = defaultdict(list)
        self._train_start = 0.0

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs."""
        return {"used": self.used, "seconds": self.seconds, "curve": self.curve, "sums": dict(self._sums)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores it."""
        self.used, self.seconds, self.curve = state_dict["used"], state_dict["seconds"], list(state_dict["curve"])
        self._sums = defaultdict(list, {name: list(values) for name, values in state_dict["sums"].items()})

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The score that training starts from."""
        if trainer.datamodule.finished == 0:
            self._measure(trainer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Training time starts."""
        self._train_start = time.perf_counter()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Counts, scores where a mark was crossed, and asks for the end."""
        latest, before = trainer.datamodule.latest, self._marks_passed
        self.used += sampled_tokens(latest.rollouts)
        parts = {**latest.seconds, "train": time.perf_counter() - self._train_start}
        # The first synchronisation starts the engine.
        self.seconds += sum(s for phase, s in parts.items() if latest.number > 0 or phase != "sync")
        for name, value in trainer.callback_metrics.items():
            if name in WATCHED or INFO in name:
                self._sums[name].append(float(value))
        if self._marks_passed > before:
            self._measure(trainer)
        if self.used >= self.tokens:
            trainer.should_stop = True

    @property
    def _marks_passed(self) -> int:
        return min(self.marks, self.used * self.marks // self.tokens)

    def _measure(self, trainer: Any) -> None:
        data = trainer.datamodule
        split = list(data.data.split("heldout"))[: self.problems]
        line: dict[str, Any] = {"tokens": self.used, "iterations": data.finished, "seconds": round(self.seconds, 3)}
        with data.playing() as team:
            for mode in self.modes:
                seed = stable_seed(data.seed, "heldout", mode)
                samples = split if mode == "greedy" else list(islice(cycle(split), self.problems))
                score, _ = evaluate(team, samples, data.sampler, mode, seed=seed)
                line[mode] = score.success
            team.engine.stats()  # an iteration's counters start after this
        line["metrics"] = {name: sum(values) / len(values) for name, values in self._sums.items()}
        self._sums.clear()
        self.curve.append(line)
        shown = ", ".join(f"{mode} {line[mode]:.1%}" for mode in self.modes)
        say(f"{self.used} of {self.tokens} tokens: held-out success {shown}")
        if trainer.is_global_zero:
            text = "".join(json.dumps(entry) + "\n" for entry in self.curve)
            (checkpoint_of(trainer).folder.parent / CURVE).write_text(text)
