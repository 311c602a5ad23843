"""What every engine needs: the check of a weight push, of a request, and the ids that end a completion."""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from atgrpo.engines.base import EngineError
from atgrpo.scratch import ScratchFolder, places
from atgrpo.types import Request

HEAD = "lm_head.weight"
LOWEST_TEMPERATURE = 0.01
"""Below it vLLM silently samples at this one."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one model: what a push of weights has to hold."""

    shapes: Mapping[str, tuple[int, ...]]
    tied: bool
    """The output head is the embedding: it may be pushed or left out."""

    @classmethod
    def of_folder(cls, folder: Path) -> Parameters:
        """Reads names and shapes from the headers of the folder's safetensors files."""
        # Old checkpoints also store this buffer, which no model has as a parameter.
        shapes = {n: shape for n, shape in _shapes(folder).items() if not n.endswith("rotary_emb.inv_freq")}
        config = json.loads((folder / "config.json").read_text())
        return cls(shapes, tied=bool(config.get("tie_word_embeddings", False)))

    @classmethod
    def of_adapter(cls, folder: Path) -> Parameters:
        """The same of a peft adapter's folder: all of its weights, none of the model's."""
        return cls(_shapes(folder), tied=False)

    @contextmanager
    def checked(self, policy: str, weights: Iterable[tuple[str, Tensor]]) -> Iterator[Iterator[tuple[str, Tensor]]]:
        """Hands on the weights that the model knows; raises at the end if the push was not exactly the model.

        The whole iterable is walked even when something is wrong: behind it may stand a gather that all ranks share.
        """
        seen: set[str] = set()
        wrong: list[str] = []

        def known() -> Iterator[tuple[str, Tensor]]:
            for name, tensor in weights:
                seen.add(name)
                if name in self.shapes and tuple(tensor.shape) != self.shapes[name]:
                    wrong.append(f"{name} is {tuple(tensor.shape)}, expected {self.shapes[name]}")
                elif name in self.shapes:
                    yield name, tensor
                elif not (self.tied and name == HEAD):
                    wrong.append(f"{name} is unknown to the model")

        yield known()
        needed = set(self.shapes) - ({HEAD} if self.tied else set())
        wrong += [f"{name} was not pushed" for name in sorted(needed - seen)]
        if wrong:
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise EngineError(
                f"weights of policy {policy!r} do not fit the engine's model: {'; '.join(wrong[:5])}{more}"
            )


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise EngineError(f"model folder {folder} holds no safetensors file, expected at least one")
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        with file.open("rb") as stream:
            header = json.loads(stream.read(struct.unpack("<Q", stream.read(8))[0]))
        shapes |= {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
    return shapes


def memory_folder() -> ScratchFolder:
    """A passing folder for weights, in shared memory where the system has it."""
    return ScratchFolder("passing", places()[0])


def check_policy(policy: str, served: Collection[str]) -> None:
    """Refuses a policy that the engine was not started with."""
    if policy not in served:
        raise ValueError(f"engine got policy {policy!r}, expected one of {sorted(served)}")


def check_request(request: Request, longest: Mapping[str, int]) -> None:
    """Refuses what cannot be answered as asked; ``longest`` is each policy's limit on prompt plus completion."""
    check_policy(request.policy, longest)
    if request.n < 1 or request.sampling.max_tokens < 1:
        raise ValueError(
            f"request got n={request.n}, max_tokens={request.sampling.max_tokens}, expected at least 1 each"
        )
    if 0 < request.sampling.temperature < LOWEST_TEMPERATURE or request.sampling.temperature < 0:
        raise ValueError(
            f"request got temperature {request.sampling.temperature}, expected 0 or at least {LOWEST_TEMPERATURE}"
        )
    if request.seed < 0:
        raise ValueError(f"request got seed {request.seed}, expected at least 0")
    limit = longest[request.policy]
    if not 0 < len(request.prompt_ids) < limit:
        raise ValueError(f"request got a prompt of {len(request.prompt_ids)} tokens, expected 1 to {limit - 1}")


def stop_ids(folder: Path, tokenizer_eos: int | None) -> frozenset[int]:
    """The ids that end a completion: the tokenizer's end-of-sequence token and those of ``generation_config.json``."""
    file = folder / "generation_config.json"
    listed = json.loads(file.read_text()).get("eos_token_id") if file.is_file() else None
    several = listed if isinstance(listed, list) else [listed]
    return frozenset(token for token in [tokenizer_eos, *several] if token is not None)
