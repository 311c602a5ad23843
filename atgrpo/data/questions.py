"""Questions about the made-up world of ``atgrpo.envs.world``: nothing to download, splits disjoint by construction."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from atgrpo.data.base import DrawnData, Split
from atgrpo.envs.world import Person, World, world
from atgrpo.types import Sample

HELDOUT_SHARE = 8
"""One in so many people is held out, with every question about them."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What is asked about a person."""

    text: str
    path: Callable[[World, Person], tuple[str, ...]]
    """What the facts lead to in turn; the last one is the answer, those before it are passages beside the person's."""


KINDS = {
    1: (
        Kind("Where does {} work?", lambda w, p: (p.company,)),
        Kind("Where does {} live?", lambda w, p: (p.town,)),
    ),
    2: (
        Kind("Which country is the employer of {} in?", lambda w, p: (p.company, w.company_country[p.company])),
        Kind("Which country is the home of {} in?", lambda w, p: (p.town, w.town_country[p.town])),
        Kind("Which river is the home of {} on?", lambda w, p: (p.town, w.town_river[p.town])),
    ),
}
"""By the number of passages that are needed."""


class WorldQuestions(DrawnData):
    """Questions that take one or two passages; ``meta["supporting"]`` holds their titles in the order they are found.

    A person belongs to one split for good, whatever the sizes or the seed. Both splits are answered from one corpus:
    the other passages (companies, towns) support questions of both.

    Args:
        hops: Passages that a question takes, each 1 or 2.
        train_size: Samples in ``train``.
        heldout_size: Samples in ``heldout``.
        seed: Which questions are drawn.
    """

    def __init__(
        self, hops: Sequence[int] = (2,), train_size: int = 2048, heldout_size: int = 256, seed: int = 0
    ) -> None:
        if not hops or not set(hops) <= set(KINDS):
            raise ValueError(f"hops got {list(hops)}, expected a list of {sorted(KINDS)}")
        super().__init__(train_size, heldout_size, seed)
        self._hops = sorted(set(hops))

    def _generate(self, name: Split) -> Sequence[Sample]:
        people = [person for person in world().people if split_of(person.name) == name]
        asked = [(hops, kind, person) for hops in self._hops for kind in KINDS[hops] for person in people]
        size = self._sizes[name]
        if size > len(asked):
            raise ValueError(f"{name}_size got {size}, expected at most {len(asked)}")
        drawn = random.Random(f"{self._seed}-{name}").sample(asked, size)
        return tuple(_sample(f"{name}-{i}", *question) for i, question in enumerate(drawn))


def _sample(name: str, hops: int, kind: Kind, person: Person) -> Sample:
    *between, answer = kind.path(world(), person)
    meta = {"hops": hops, "supporting": (person.name, *between)}
    return Sample(name, kind.text.format(person.name), answer, meta)


def split_of(person: str) -> Split:
    """Which split the questions about a person belong to: a stable hash of the name."""
    return "heldout" if zlib.crc32(person.encode()) % HELDOUT_SHARE == 0 else "train"
