"""BenchMARL's MAPPO and IPPO on our tasks, from the same states, judged by the same evaluation.

Networks, batch, minibatches, epochs, learning rate, discounts and clipping are ours; its distribution (a tanh-normal
whose deviation depends on the observation), its value loss and its handling of time limits are its own.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from benchmarl.algorithms import IppoConfig, MappoConfig
from benchmarl.environments.vmas.common import VmasClass
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from tensordict import TensorDict
from torchrl.envs.libs.vmas import VmasEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type

from atgrpo.cli.config import find_recipe, load
from atgrpo.cli.marl import STATES, TRAINED_ON, TeamParts, build_teams
from atgrpo.marl.callbacks.heldout import HELD_OUT
from atgrpo.marl.evaluation import evaluate
from atgrpo.marl.simulator import Simulator, Starts
from atgrpo.marl.tasks import Task
from benchmarks.marl.cells import TASKS
from benchmarks.marl.results import Result

SCORED_EVERY = 10
"""Iterations, as in our own cells."""


def scenario_of(task: Task) -> Any:
    """Our task as a scenario that VMAS can be given: our rewards, our states to start from."""
    base = importlib.import_module(f"vmas.scenarios.{task.scenario}").Scenario
    starts = Starts.draw(task, STATES, TRAINED_ON)

    class Scenario(base):
        def make_world(self, batch_dim: int, device: Any, **settings: Any) -> Any:
            world = super().make_world(batch_dim, device, **settings)
            task.prepare(self)
            return world

        def reset_world_at(self, env_index: int | None = None) -> None:
            super().reset_world_at(env_index)
            count = self.world.batch_dim if env_index is None else 1
            drawn = starts.positions[torch.randint(len(starts.positions), (count,))]
            for entity, place in zip([*self.world.agents, *self.world.landmarks], drawn.unbind(1), strict=True):
                entity.set_pos(place if env_index is None else place[0], batch_index=env_index)
            where = torch.ones(self.world.batch_dim, dtype=torch.bool)
            if env_index is not None:
                where = torch.arange(self.world.batch_dim) == env_index
            task.sync(self, where)
            fresh = task.measure(self)
            before = fresh if env_index is None else self.before
            self.before = {
                name: torch.where(where.view(-1, *[1] * (value.dim() - 1)), value, before[name])
                for name, value in fresh.items()
            }

        def reward(self, agent: Any) -> Any:
            agents = self.world.agents
            if agent is agents[0]:
                simulated = torch.stack([super(Scenario, self).reward(a).clone() for a in agents], -1)
                after = task.measure(self)
                self.own = task.earned(self.before, after, simulated, self.done()).own
                self.before = after
            return self.own[:, agents.index(agent)]

    return Scenario()


class OurTask(VmasClass):
    """A task of ours for BenchMARL."""

    def __init__(self, task: Task) -> None:
        super().__init__(name=task.scenario.upper(), config={"max_steps": task.time_limit, **task.settings()})
        self.ours = task

    def get_env_fun(self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any) -> Any:
        return lambda: VmasEnv(
            scenario=scenario_of(self.ours),
            num_envs=num_envs,
            continuous_actions=continuous_actions,
            seed=seed,
            device=device,
            categorical_actions=True,
            clamp_actions=True,
            **self.config,
        )


class Score(Callback):
    """Scores BenchMARL's policy as ours are, and keeps the time that this takes out of its own."""

    def __init__(self, task: Task, episodes: int) -> None:
        super().__init__()
        self.starts = Starts.draw(task, episodes, HELD_OUT)
        self.task = task
        self.simulator: Simulator | None = None  # made later: callbacks are pickled, which VMAS cannot be
        self.scores: dict[int, dict[str, float]] = {}
        self.scoring = 0.0

    def best(self, observations: torch.Tensor) -> torch.Tensor:
        """The most likely actions, for one seed."""
        seen = observations[0]
        agents = TensorDict({"observation": seen}, batch_size=seen.shape[:2])
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            found = self.experiment.policy(TensorDict({"agents": agents}, batch_size=seen.shape[:1]))
        return found["agents", "action"].unsqueeze(0)

    def on_train_end(self, training_td: Any, group: str) -> None:
        """When it is due, and at the end."""
        experiment = self.experiment
        done = experiment.n_iters_performed + 1
        if done % SCORED_EVERY and done < experiment.config.get_max_n_iters(on_policy=True):
            return
        start = time.perf_counter()
        self.simulator = self.simulator or Simulator(self.task, len(self.starts.positions), continuous=True)
        score = evaluate(self.simulator, self, self.starts, 1)  # type: ignore[arg-type]
        frames = experiment.config.collected_frames_per_batch(True) * done
        self.scores[frames] = {name: float(values[0]) for name, values in score.metrics.items()}
        self.scoring += time.perf_counter() - start
        print(f"benchmarl after {frames:,} frames: {score}")


def run_benchmarl(task: str, algorithm: str, seeds: int, frames: int, root: Path) -> list[Result]:
    """Trains one seed after the other, which is how BenchMARL trains."""
    recipe, settings = TASKS[task]
    parts = build_teams(load(find_recipe(recipe), [*settings, "algorithm=mappo"]))
    return [result for seed in range(seeds) for result in _run(parts, task, algorithm, seed, frames)]


def _run(parts: TeamParts, task: str, algorithm: str, seed: int, frames: int) -> list[Result]:
    assert parts.heldout is not None
    score = Score(parts.task, parts.heldout.episodes)
    hidden = list(parts.ppo.critic_hidden)
    model = MlpConfig(num_cells=hidden, layer_class=torch.nn.Linear, activation_class=torch.nn.Tanh)
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(
            task=OurTask(parts.task),
            algorithm_config=_algorithm(algorithm, parts),
            model_config=model,
            critic_model_config=model,
            seed=seed,
            config=_experiment(parts, frames, folder),
            callbacks=[score],
        )
        start = time.perf_counter()
        experiment.run()
        seconds = time.perf_counter() - start - score.scoring
    done = max(score.scores)
    rows = score.scores.items()
    return [Result("benchmarl", task, algorithm, seed, at, values, done / seconds) for at, values in rows]


def _algorithm(name: str, parts: TeamParts) -> Any:
    config = (MappoConfig if name == "mappo" else IppoConfig).get_from_yaml()
    config.clip_epsilon, config.lmbda, config.entropy_coef = parts.ppo.clip, parts.algorithm.lam, parts.ppo.entropy
    return config


def _experiment(parts: TeamParts, frames: int, folder: str) -> ExperimentConfig:
    config, ppo, per_iteration = ExperimentConfig.get_from_yaml(), parts.ppo, parts.config.envs * parts.config.steps
    changed = {
        "gamma": parts.algorithm.gamma,
        "lr": ppo.lr,
        "adam_eps": 1e-5,
        "clip_grad_val": ppo.clip_norm,
        "max_n_frames": -(-frames // per_iteration) * per_iteration,
        "on_policy_collected_frames_per_batch": per_iteration,
        "on_policy_n_envs_per_worker": parts.config.envs,
        "on_policy_n_minibatch_iters": ppo.epochs,
        "on_policy_minibatch_size": ppo.minibatch,
        "evaluation": False,
        "render": False,
        "loggers": [],
        "create_json": False,
        "save_folder": folder,
    }
    for name, value in changed.items():
        setattr(config, name, value)
    return config
