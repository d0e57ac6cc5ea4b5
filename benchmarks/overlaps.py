"""Pairs of short texts that share one fact among unrelated sentences: in the same words, or in other words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal

Wording = Literal["same", "other"]
# A fact in two wordings that share few words; {} is filled with a name, the same in both.
FACTS = (
    ("The ferry to {} leaves at noon.", "At twelve o'clock the boat departs for {}."),
    ("Doctors in {} went on strike over pay.", "Physicians of {} stopped working to demand higher wages."),
    ("The price of bread in {} has doubled.", "A loaf costs twice as much in {} now."),
    ("{} bought a used car from her uncle.", "An uncle sold {} his second-hand automobile."),
    ("Heavy snow closed the airport of {}.", "No planes could land at {} because of a blizzard."),
    ("The museum in {} lost a painting to thieves.", "Burglars stole a work of art from a gallery in {}."),
    ("{} learned to swim at the age of sixty.", "It took {} six decades to feel at home in water."),
    ("The bridge near {} was torn down last year.", "Twelve months ago they demolished the crossing by {}."),
    ("Children in {} get free meals at school.", "Pupils of {} pay nothing for lunch in class."),
    ("{} quit her job to write a novel.", "To become an author, {} handed in her resignation."),
    ("A fire destroyed the old mill in {}.", "Flames burned down the ancient flour works at {}."),
    ("The mayor of {} banned cars downtown.", "Vehicles may no longer enter the centre, the head of {} decided."),
    ("{} adopted two kittens from a shelter.", "A pair of young cats found a home with {}."),
    ("The river at {} froze for a month.", "For four weeks ice covered the stream at {}."),
    ("Engineers at {} built a cheaper battery.", "A less expensive power cell was developed by {} technicians."),
    ("{} broke a leg while skiing.", "On the slopes {} fractured a bone below the knee."),
)
NAMES = "Larsen|Okafor|Marlow|Quintana|Brisk|Tamsin|Velden|Harrow|Ishida|Corbin|Dalmar|Eskil".split("|")
OTHERS = (
    "The violin needs new strings.|Some mushrooms glow in the dark.|Chess is taught on Thursdays.|"
    "Copper turns green with age.|Her garden is full of tulips.|The printer has run out of ink.|"
    "Camels store fat in their humps.|We painted the kitchen yellow.|The moon pulls the tides.|"
    "Rugs are woven by hand there.|Their band plays loud jazz.|A new law protects whistleblowers.|"
    "The lecture on Roman coins was long.|Sugar dissolves faster in hot tea.|My shoes are still wet.|"
    "Volcanoes enrich the soil.|The clock in the hall is slow.|He collects foreign stamps.|"
    "Penguins share the work of hatching.|The recipe asks for three eggs.|Satellites map the forest.|"
    "Grandmother knits grey scarves.|The password expires every spring.|Tennis courts are closed for repairs.|"
    "Whales sing across whole oceans.|The carpenter sharpened his chisel.|Our internet is down again.|"
    "Marble comes from those hills.|Election posters cover the wall.|The soup tastes of garlic."
).split("|")


@dataclass(frozen=True)
class Overlap:
    """Two texts as lists of sentences, and which sentence of each says the fact that they share."""

    seed: int
    wording: Wording
    texts: tuple[tuple[str, ...], tuple[str, ...]]
    places: tuple[int, int]


def overlaps(count: int, first: int = 0) -> Iterator[Overlap]:
    """Pairs of texts of 3 to 6 sentences, in turn in the same and in other words; the same for every seed."""
    for seed in range(first, first + count):
        random = Random(seed)
        wording: Wording = ("same", "other")[seed % 2]
        forms, name = random.choice(FACTS), random.choice(NAMES)
        one, two = (form.format(name) for form in (forms if wording == "other" else (forms[0], forms[0])))
        lengths = (random.randint(3, 6), random.randint(3, 6))
        fillers = random.sample(OTHERS, sum(lengths) - 2)
        places = (random.randrange(lengths[0]), random.randrange(lengths[1]))
        texts = []
        for fact, length, place in zip((one, two), lengths, places, strict=True):
            own = [fillers.pop() for _ in range(length - 1)]
            texts.append((*own[:place], fact, *own[place:]))
        yield Overlap(seed, wording, (texts[0], texts[1]), places)
