"""Arguments, exit codes and the one line that a mistake gets."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

DESCRIPTION = "Train a team of LLM agents by AT-GRPO (arXiv:2510.11062)."
EPILOG = """\
examples:
  python -m atgrpo fit --config recipes/math.yaml
  python -m atgrpo fit --config recipes/math.yaml optimizer.lr=2e-5 advantage=rloo
  python -m atgrpo fit --config recipes/math.yaml agents.tool=calculator     one policy for each role
  python -m atgrpo fit --config recipes/math.yaml policy.model=path/or/hub-name
  python -m atgrpo fit --config recipes/math.yaml --dry-run
  tensorboard --logdir runs
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="python -m atgrpo",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--config", required=True, metavar="RECIPE", help="a recipe: a yaml file, or a shipped one by name"
    )
    common.add_argument("overrides", nargs="*", metavar="key=value", help="settings that differ from the recipe")
    weights = argparse.ArgumentParser(add_help=False)
    weights.add_argument("--checkpoint", metavar="C", help="last, a run's folder or a checkpoint's; default: untrained")

    fit = commands.add_parser("fit", parents=[common], help="train the team")
    fit.add_argument("--resume", metavar="WHERE", help="go on: last, a run's folder or a checkpoint's")
    fit.add_argument("--dry-run", action="store_true", help="print configuration, arithmetic and memory; start nothing")

    evaluate = commands.add_parser("evaluate", parents=[common, weights], help="score the team on held-out samples")
    evaluate.add_argument("--problems", type=int, default=256, help="how many held-out samples (default 256)")
    evaluate.add_argument("--agents", nargs="+", metavar="ROLE", help="let only these roles play, e.g. one agent alone")
    evaluate.add_argument("--seed", type=int, default=0, help="another seed, other samples drawn (default 0)")

    rollout = commands.add_parser("rollout", parents=[common, weights], help="grow one tree and print it")
    rollout.add_argument("--split", choices=("train", "heldout"), default="train", help="where the sample is from")
    rollout.add_argument("--index", type=int, default=0, help="which sample (default 0)")
    rollout.add_argument("--seed", type=int, default=0, help="another seed, another tree")
    rollout.add_argument("--gif", metavar="FILE", help="draw the episode (recipes of robots, which have a task)")

    export = commands.add_parser("export", parents=[common, weights], help="write each policy as a Hugging Face folder")
    export.add_argument("--to", required=True, metavar="FOLDER", help="a new folder; one folder per policy goes in it")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. 0: done; 2: a mistake in what was asked, told in one line; anything else raises."""
    reader = parser()
    args, rest = reader.parse_known_args(arguments)
    if unknown := [w for w in rest if w.startswith("-") or ("=" not in w and not w.startswith("~"))]:
        reader.error(f"unknown argument {unknown[0]}; settings are given as key=value")
    args.overrides += rest
    if args.command == "evaluate" and args.agents:
        # A list of roles has no end of its own and takes the settings behind it.
        args.overrides += [word for word in args.agents if "=" in word]
        args.agents = [word for word in args.agents if "=" not in word]
        if not args.agents:
            reader.error("argument --agents: expected at least one role")
    from atgrpo.cli import commands
    from atgrpo.engines.base import AgreedError, EngineError
    from atgrpo.envs.contract import EnvError
    from atgrpo.policies.packed import PolicyError
    from atgrpo.quiet import LOST_PROCESS, quiet
    from atgrpo.ranks import lost_peer
    from atgrpo.sandbox.runner import SandboxError
    from atgrpo.training.checkpoints import CheckpointError
    from atgrpo.training.say import is_first

    quiet()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # lines are news, also in a log file
    run = {"fit": commands.fit, "evaluate": commands.score, "rollout": commands.rollout, "export": commands.export}
    try:
        run[args.command](args)
    except (commands.ConfigError, CheckpointError, PolicyError, EngineError) as error:
        # What all processes of a run agree on is told by the first one.
        agreed = isinstance(error, AgreedError) or not isinstance(error, EngineError)
        if is_first() or not agreed:
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except (EnvError, SandboxError) as error:
        if isinstance(error.__cause__, Exception) and not isinstance(error.__cause__, EnvError):
            traceback.print_exception(error.__cause__)  # of code that is not ours: where it broke
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        if not lost_peer(error):
            raise
        print(f"error: {LOST_PROCESS}", file=sys.stderr)
        return 2
    return 0
