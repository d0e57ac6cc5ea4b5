"""Pairs of short texts about one place that share one event, told in other words, among events that they do not share.

All sentences name the place and are of one kind, so that neither its name, nor length, nor position tells the shared
event; the two wordings of an event share few words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

# An event in two wordings; {} is filled with a place, the same in all sentences of a pair.
EVENTS = (
    ("The ferry to {} leaves at noon.", "At twelve o'clock the boat departs for {}."),
    ("Doctors in {} went on strike over pay.", "Physicians of {} stopped working to demand higher wages."),
    ("The price of bread in {} has doubled.", "A loaf costs twice as much in {} now."),
    ("Heavy snow closed the airport of {}.", "No planes could land at {} because of a blizzard."),
    ("The museum in {} lost a painting to thieves.", "Burglars stole a work of art from a gallery in {}."),
    ("The bridge near {} was torn down last year.", "Twelve months ago they demolished the crossing by {}."),
    ("Children in {} get free meals at school.", "Pupils of {} pay nothing for lunch in class."),
    ("A fire destroyed the old mill in {}.", "Flames burned down the ancient flour works at {}."),
    ("The mayor of {} banned cars downtown.", "Vehicles may no longer enter the centre, said the head of {}."),
    ("The river at {} froze for a month.", "For four weeks ice covered the stream at {}."),
    ("Engineers at {} built a cheaper battery.", "A less expensive power cell was developed by {} technicians."),
    ("Wolves have been seen again near {}.", "Sightings of wild predators were reported around {} once more."),
    ("The library of {} now opens on Sundays.", "Readers can borrow books in {} at the weekend, too."),
    ("Farmers around {} grow less wheat than before.", "Grain harvests have shrunk on the fields outside {}."),
    ("The oldest hotel in {} went bankrupt.", "Out of money, an inn with a long history in {} shut its doors."),
    ("A choir from {} won first prize abroad.", "Singers of {} came home as champions of a foreign contest."),
    ("Tap water in {} must be boiled for now.", "People of {} are told to heat what they drink until further notice."),
    ("The train between {} and the coast is faster.", "Travel time by rail from {} to the sea has been cut."),
    ("Archaeologists found Roman coins in {}.", "Ancient money was dug up by scholars at {}."),
    ("Many young people are leaving {} for work.", "Lacking jobs, the youth moves away from {}."),
    ("The football team of {} dismissed its coach.", "After another defeat, {} fired the trainer of its players."),
    ("Solar panels now cover the roofs of {}.", "In {}, houses make electricity from sunlight on top."),
    ("A film about spies is being shot in {}.", "Cameras roll in {} for a movie on secret agents."),
    ("The hospital in {} needs more nurses.", "Too few carers look after the patients at the {} clinic."),
    ("Storks nest on the church tower of {} again.", "Large white birds returned to breed above the chapel in {}."),
    ("Taxes in {} will rise in spring.", "From April on, citizens of {} owe the treasury more."),
    ("A landslide blocked the road to {}.", "Rocks and mud made the way into {} impassable."),
    ("The bees of {} are dying from a parasite.", "Mites are killing the hives kept in {}."),
)
NAMES = "Larsen|Okafor|Marlow|Quintana|Brisk|Tamsin|Velden|Harrow|Ishida|Corbin|Dalmar|Eskil".split("|")


@dataclass(frozen=True)
class Overlap:
    """Two texts as lists of sentences, and which sentence of each tells the event that they share."""

    seed: int
    texts: tuple[tuple[str, ...], tuple[str, ...]]
    places: tuple[int, int]


def overlaps(count: int, first: int = 0) -> Iterator[Overlap]:
    """Pairs of texts of 3 to 6 sentences; the same for every seed."""
    for seed in range(first, first + count):
        random = Random(seed)
        name, lengths = random.choice(NAMES), (random.randint(3, 6), random.randint(3, 6))
        shared, *others = random.sample(EVENTS, sum(lengths) - 1)
        wordings = random.sample((0, 1), 2)
        places = (random.randrange(lengths[0]), random.randrange(lengths[1]))
        texts = []
        for wording, length, place in zip(wordings, lengths, places, strict=True):
            own = [random.choice(others.pop()) for _ in range(length - 1)]
            own.insert(place, shared[wording])
            texts.append(tuple(sentence.format(name) for sentence in own))
        yield Overlap(seed, (texts[0], texts[1]), places)
