"""The names of Facts World, and the pairs of names reserved for one split."""

from __future__ import annotations

from whyformer.errors import WhyformerError

PEOPLE = tuple(
    "Anna Boris Clara David Elena Felix Greta Hugo Irina Jonas Karla Leon Maria Nils Olga Paul Rosa Simon Tanja Ulla "
    "Viktor Wanda Xaver Yara Zeno Alma Bruno Cora Dario Edda Fabio Gina Harald Ines Jakob Kira Luca Mona Noah Otto "
    "Petra Quinn Ruth Sven Thea Uwe Vera Walter Xenia Yusuf Zita Amir Berta Carlo Doris Emil Frida Georg "
    "Heidi Ivan".split()
)
TOWNS = tuple(
    "Oslo Rome Paris Lima Cairo Delhi Tokyo Quito Berlin Madrid Lisbon Vienna Prague Warsaw Dublin Athens Sofia Riga "
    "Tallinn Bern Milan Porto Lyon Ghent Basel Turin Graz Malmo Bergen Tampere Osaka Kyoto Seoul Hanoi Manila Perth "
    "Sydney Boston Denver Austin Dallas Havana Bogota Caracas Nairobi Dakar Tunis Rabat Accra Lagos".split()
)
THINGS = tuple(
    "key lamp book ring coin map clock knife spoon cup plate hat coat scarf glove boot flute drum violin guitar "
    "pen letter stamp candle mirror brush comb rope hammer saw needle button ribbon medal whistle compass lantern "
    "kettle pillow blanket".split()
)
CONTAINERS = tuple("box bag chest basket drawer suitcase jar crate barrel sack".split())
COLOURS = tuple("red blue green yellow black white brown purple pink silver".split())
JOBS = tuple(
    "baker doctor teacher painter sailor farmer tailor lawyer singer miner nurse writer dancer judge carpenter".split()
)
POOLS = {
    "person": PEOPLE,
    "town": TOWNS,
    "thing": THINGS,
    "container": CONTAINERS,
    "colour": COLOURS,
    "job": JOBS,
}
POOL_OF = {name: pool for pool, names in POOLS.items() for name in names}
NUMBER_OF = {name: number for names in POOLS.values() for number, name in enumerate(names)}
SPLITS = {"train": (2, 3, 4), "validation": (1,), "test": (0,)}
NAME_GROUPS = 5


def split_of(subject: str, value: str) -> str:
    """The only split whose documents combine these two names in a fact."""
    rest = (NUMBER_OF[subject] + NUMBER_OF[value]) % NAME_GROUPS
    return next(split for split, rests in SPLITS.items() if rest in rests)


def check_split(split: str) -> None:
    if split not in SPLITS:
        raise WhyformerError(f"No split named {split!r}. Known: {', '.join(SPLITS)}.")


# split -> subject -> pool -> names of the pool that facts about the subject may use
PARTNERS = {
    split: {
        subject: {
            pool: tuple(name for name in names if name != subject and split_of(subject, name) == split)
            for pool, names in POOLS.items()
        }
        for subject in PEOPLE + THINGS + CONTAINERS
    }
    for split in SPLITS
}
