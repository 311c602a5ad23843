"""A small made-up world: people, companies, towns, rivers and countries, one passage about each of the first three.

It is the same in every process and for every seed, so that questions about it and the corpus that answers them agree.
Names have five letters; those of a kind share their ending and no name occurs twice.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from atgrpo.envs.corpus import Corpus, Passage

PEOPLE, COMPANIES, TOWNS, RIVERS, COUNTRIES = 1024, 64, 64, 32, 16


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who works at a company and lives in a town."""

    name: str
    company: str
    town: str


@dataclass(frozen=True, slots=True)
class World:
    """Who and what there is. Mappings go from a name to what it leads to."""

    people: tuple[Person, ...]
    company_country: dict[str, str]
    town_river: dict[str, str]
    town_country: dict[str, str]

    def passages(self) -> tuple[Passage, ...]:
        """One about each person, company and town."""
        return (
            *(Passage(p.name, f"works at {p.company} and lives in {p.town}.") for p in self.people),
            *(Passage(name, f"a company in {country}.") for name, country in self.company_country.items()),
            *(
                Passage(name, f"lies in {country} on the {self.town_river[name]}.")
                for name, country in self.town_country.items()
            ),
        )


@cache
def world() -> World:
    """The one world."""
    rng = random.Random("world")
    people = _names(rng, PEOPLE, "lrs", syllables=2)
    companies = _names(rng, COMPANIES, "x", syllables=2)
    towns = _names(rng, TOWNS, ["um"])
    rivers = _names(rng, RIVERS, ["ow"])
    countries = _names(rng, COUNTRIES, ["ia"])
    return World(
        tuple(Person(name, rng.choice(companies), rng.choice(towns)) for name in people),
        {name: rng.choice(countries) for name in companies},
        {name: rng.choice(rivers) for name in towns},
        {name: rng.choice(countries) for name in towns},
    )


@cache
def world_corpus() -> Corpus:
    """Its passages, indexed once."""
    return Corpus(world().passages())


def _names(rng: random.Random, count: int, endings: Sequence[str], syllables: int = 1) -> list[str]:
    """Different names: one or two open syllables, for one also a closing consonant, then an ending."""
    consonants, vowels = "bdlmnrstv", "aeiou"
    letters = [consonants, vowels] * syllables + ([consonants] if syllables == 1 else [])
    return ["".join(parts).capitalize() for parts in rng.sample(list(product(*letters, endings)), count)]
