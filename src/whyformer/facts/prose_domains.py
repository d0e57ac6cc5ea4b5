"""Domains of the prose register: their attributes, with every value in two wordings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from whyformer.facts.number_words import spelled, spelled_year


@dataclass(frozen=True)
class Wording:
    """A value as the text states it, and in other words."""

    stated: str
    reworded: str


@dataclass(frozen=True)
class Attribute:
    """One thing said of every entity of a domain.

    Attributes:
        name: What it is.
        values: Its values.
        statements: Sentences that state it, with {entity} and {value}.
        question: The question, with {subject}.
        answer: The answer in the text's own words, with {value}.
        reworded: The answer in others, with {value}.
    """

    name: str
    values: tuple[Wording, ...]
    statements: tuple[str, ...]
    question: str
    answer: str
    reworded: str


@dataclass(frozen=True)
class Domain:
    """A kind of entity, its invented names, the person by whom each is known, and its attributes.

    Attributes:
        name: What it is called.
        entities: The names.
        person: Sentences that name the person, with {entity} and {value}.
        by_person: An entity, as the one of its person: {value}.
        attributes: Its other attributes.
        setting: Sentences without any fact that questions are about.
    """

    name: str
    entities: tuple[str, ...]
    person: tuple[str, ...]
    by_person: str
    attributes: tuple[Attribute, ...]
    setting: tuple[str, ...]


def _numbers(numbers: Iterable[int]) -> tuple[Wording, ...]:
    return tuple(Wording(f"{number:,}", spelled(number)) for number in numbers)


def _years(years: Iterable[int]) -> tuple[Wording, ...]:
    return tuple(Wording(str(year), spelled_year(year)) for year in years)


def _thousands(numbers: Iterable[int]) -> tuple[Wording, ...]:
    """A number of a unit, and in words of the unit a thousand times smaller."""
    return tuple(Wording(str(number), f"{spelled(number)} thousand") for number in numbers)


def _pairs(text: str) -> tuple[Wording, ...]:
    """Lines of a value, a bar and the same in other words."""
    lines = [line.split("|") for line in text.strip().splitlines()]
    return tuple(Wording(stated.strip(), reworded.strip()) for stated, reworded in lines)


PEOPLE = tuple(
    f"{first} {last}"
    for first, last in zip(
        "Mara Tobias Ingrid Pavel Leonie Henrik Salma Oskar Dorothea Milan Freya Casimir Judith Anselm Noor Viggo Elke "
        "Tarek Sunniva Bogdan Camilla Edgar Rania Lorenz Agathe Matteo Signe Hakan Beatrix Joris Yvonne Arvid".split(),
        "Lindqvist Brandt Solheim Novak Achterberg Dahl Haddad Wiklund Pfeiffer Horvat Ostergaard Wolski Keller Roth "
        "Rahimi Nyberg Vogel Mansour Berge Petrov Duarte Hollis Khalil Steiner Moreau Ricci Thorsen Yilmaz Falk "
        "Desmet Marchand Ekman".split(),
        strict=True,
    )
)
TIMES = _pairs(
    """
    15 | a quarter of an hour
    30 | half an hour
    45 | three quarters of an hour
    60 | one hour
    75 | an hour and a quarter
    90 | an hour and a half
    105 | an hour and three quarters
    120 | two hours
    150 | two and a half hours
    180 | three hours
    210 | three and a half hours
    240 | four hours
    300 | five hours
    360 | six hours
    """
)
DOSES = _pairs(
    """
    100 | a tenth of a gram
    200 | a fifth of a gram
    250 | a quarter of a gram
    400 | two fifths of a gram
    500 | half a gram
    600 | three fifths of a gram
    750 | three quarters of a gram
    800 | four fifths of a gram
    1000 | one gram
    1500 | one and a half grams
    2000 | two grams
    2500 | two and a half grams
    3000 | three grams
    """
)

COMPANY = Domain(
    "company",
    tuple(
        "Velora Brantex Nordisca Halvik Tremont Ostrava Calixa Pellworm Merano Quillon Sundara Torvex Ambrol Kestrin "
        "Lumeda Farrow".split()
    ),
    ("{entity} is run by {value}.", "For six years {value} has led {entity}.", "At the head of {entity} is {value}."),
    "the company that {value} leads",
    (
        Attribute(
            "employees",
            _numbers((12, 24, 38, 65, 90, 140, 215, 370, 480, 560, 720, 850, 1200, 2400, 3100, 4700)),
            (
                "{entity} has {value} employees.",
                "According to its last report, {entity} employs {value} workers.",
                "The payroll of {entity} lists {value} names.",
            ),
            "How many employees does {subject} have?",
            "It has {value} employees.",
            "A staff of {value}.",
        ),
        Attribute(
            "founded",
            _years((1804, 1827, 1849, 1862, 1875, 1888, 1891, 1903, 1912, 1926, 1934, 1947, 1958, 1963, 1971, 1986)),
            (
                "{entity} was founded in {value}.",
                "The history of {entity} begins in {value}.",
                "It was in {value} that {entity} opened its doors.",
            ),
            "In which year was {subject} founded?",
            "It was founded in {value}.",
            "The business started up in {value}.",
        ),
        Attribute(
            "product",
            _pairs(
                """
                bicycles | two-wheelers that one pedals
                umbrellas | shelters from rain that one carries in the hand
                clocks | devices that tell the time
                spectacles | lenses for people with weak sight
                candles | sticks of wax with a wick
                shoes | what people wear on their feet
                pianos | large instruments with black and white keys
                beer | a drink brewed of hops and malt
                ladders | rungs for climbing up walls
                carpets | woven coverings for floors
                kettles | pots in which water is boiled
                mattresses | the soft part of a bed
                pencils | wooden sticks with graphite for writing
                sails | the cloth that drives a yacht
                """
            ),
            (
                "{entity} makes {value}.",
                "In its halls {entity} produces {value} for half of Europe.",
                "Most of what {entity} sells are {value}.",
            ),
            "What does {subject} make?",
            "It makes {value}.",
            "Its goods are {value}.",
        ),
        Attribute(
            "sundays",
            _pairs(
                """
                closed on Sundays | No, nobody works there on the last day of the week
                busy on Sundays | Yes, its machines never rest at the weekend
                """
            ),
            ("The plant of {entity} is {value}.", "As a rule, the gates of {entity} are {value}."),
            "Is {subject} at work on Sundays?",
            "It is {value}.",
            "{value}.",
        ),
    ),
    (
        "Trade in the region has been steady for some time.",
        "Few of these firms are known outside their own country.",
        "Rents in the old harbour have risen again.",
        "Reporters visited several of the sites in spring.",
        "A new railway line is expected to help exporters.",
        "The chamber of commerce publishes a review every autumn.",
    ),
)
SHIP = Domain(
    "ship",
    tuple(
        "the Alkonost|the Marigold|the Sabella|the Northern Star|the Corvina|the Esperanza|the Tern|the Halcyon|"
        "the Valkyrie|the Old Thames|the Perdita|the Juniper|the Grey Lady|the Samphire|the Iolanthe|"
        "the Kittiwake".split("|")
    ),
    ("{entity} is commanded by {value}.", "The captain of {entity} is {value}.", "{value} takes {entity} to sea."),
    "the ship that {value} commands",
    (
        Attribute(
            "crew",
            _numbers((6, 8, 11, 14, 17, 19, 22, 26, 31, 34, 43, 48, 57, 62, 71, 85)),
            (
                "{entity} sails with a crew of {value}.",
                "There are {value} sailors on board {entity}.",
                "To handle {entity}, {value} hands are needed.",
            ),
            "How large is the crew of {subject}?",
            "There are {value} on board.",
            "It takes {value} people.",
        ),
        Attribute(
            "cargo",
            _pairs(
                """
                timber | sawn wood
                salt | white crystals that season food
                wine | what is pressed of grapes and fermented
                wool | the shorn coats of sheep
                wheat | grain for flour
                coffee | roasted beans for a hot drink
                herring | small silvery fish
                marble | white stone for statues
                coal | black fuel from mines
                tea | dried leaves for a brew
                oranges | round citrus fruit
                gunpowder | an explosive for cannons
                honey | what bees make
                paper | sheets to write on
                """
            ),
            (
                "{entity} carries {value}.",
                "In the hold of {entity} there is nothing but {value}.",
                "This season {entity} was loaded with {value}.",
            ),
            "What does {subject} carry?",
            "The cargo is {value}.",
            "Her load consists of {value}.",
        ),
        Attribute(
            "voyage",
            _numbers((3, 5, 9, 12, 16, 18, 21, 23, 27, 29, 33, 36, 39, 41, 44, 47)),
            (
                "{entity} needs {value} days for the crossing.",
                "The passage of {entity} lasts {value} days.",
                "After {value} days at sea, {entity} reaches the other coast.",
            ),
            "How many days does {subject} need for the crossing?",
            "The crossing takes {value} days.",
            "The trip is over when the sun has risen {value} times.",
        ),
        Attribute(
            "port",
            _pairs(
                """
                Lisbon | Portugal's capital
                Athens | Greece's capital
                Oslo | Norway's capital
                Dublin | Ireland's capital
                Stockholm | Sweden's capital
                Copenhagen | Denmark's capital
                Helsinki | Finland's capital
                London | England's capital
                Havana | Cuba's capital
                Tunis | Tunisia's capital
                Riga | Latvia's capital
                Tallinn | Estonia's capital
                Reykjavik | Iceland's capital
                Algiers | Algeria's capital
                """
            ),
            (
                "{entity} is at home in {value}.",
                "In winter {entity} lies in {value}.",
                "The name of {value} is painted on the stern of {entity}.",
            ),
            "Which town is the home of {subject}?",
            "Its home is {value}.",
            "She belongs to {value}.",
        ),
    ),
    (
        "The harbour master keeps a book of all arrivals.",
        "Storms were rare this year.",
        "Pilots are taken on behind the second lighthouse.",
        "Insurance has become dearer since the war.",
        "Many a sailor prefers the northern route.",
        "Fog often delays departures in November.",
    ),
)
HUT = Domain(
    "mountain hut",
    tuple(
        "the Arnspitze hut|the Belvedere hut|the Cristallo hut|the Dohlen hut|the Edelgrat hut|the Falkenstein hut|"
        "the Gimpel hut|the Hochalm hut|the Isel hut|the Jamtal hut|the Karwendel hut|the Lizum hut|the Marmot hut|"
        "the Nuvolau hut|the Ortles hut|the Pala hut".split("|")
    ),
    (
        "The keeper of {entity} is {value}.",
        "{value} looks after {entity}.",
        "Guests of {entity} are welcomed by {value}.",
    ),
    "the hut that {value} keeps",
    (
        Attribute(
            "beds",
            _numbers((8, 12, 16, 21, 25, 32, 37, 44, 52, 58, 63, 76, 84, 95, 110, 130)),
            (
                "{entity} has {value} beds.",
                "Up to {value} guests can sleep in {entity}.",
                "Those who stay at {entity} share {value} bunks.",
            ),
            "How many beds does {subject} have?",
            "It has {value} beds.",
            "It puts up {value} people for a night.",
        ),
        Attribute(
            "walk",
            TIMES,
            (
                "The walk to {entity} takes {value} minutes.",
                "From the car park, {entity} is reached in {value} minutes.",
                "One is {value} minutes on foot to {entity}.",
            ),
            "How long is the walk to {subject}?",
            "It takes {value} minutes.",
            "You hike up for {value}.",
        ),
        Attribute(
            "height",
            _numbers((1180, 1340, 1425, 1560, 1690, 1715, 1830, 1975, 2040, 2110, 2260, 2385, 2450, 2590, 2710, 2845)),
            (
                "{entity} lies at {value} metres.",
                "The terrace of {entity} is {value} metres above the sea.",
                "Maps give {value} metres for {entity}.",
            ),
            "How high is {subject}?",
            "It lies at {value} metres.",
            "Its altitude is {value}.",
        ),
        Attribute(
            "pay",
            _pairs(
                """
                takes cash only | No, plastic money is refused
                takes cards, too | Yes, plastic money is accepted
                """
            ),
            ("{entity} {value}.", "As far as is known, {entity} {value}."),
            "Can one pay by card at {subject}?",
            "It {value}.",
            "{value}.",
        ),
    ),
    (
        "Snow may fall here in any month.",
        "The alpine club repairs the paths every summer.",
        "Marmots can be heard from far away.",
        "Helicopters bring supplies in June.",
        "Water from the glacier has to be boiled.",
        "Most hikers start before sunrise.",
    ),
)
MEDICINE = Domain(
    "medicine",
    tuple(
        "Abrexin Belomide Cardivan Dolorex Elsipran Fenotal Glucarin Hexavil Iridol Junaprex Kelotan Lumirax Mirazide "
        "Norvatin Oxaprel Pulmovar".split()
    ),
    (
        "{entity} was discovered by {value}.",
        "The inventor of {entity} is {value}.",
        "It was {value} who found the substance in {entity}.",
    ),
    "the medicine that {value} discovered",
    (
        Attribute(
            "dose",
            DOSES,
            (
                "The daily dose of {entity} is {value} milligrams.",
                "Doctors prescribe {value} milligrams of {entity} a day.",
                "Patients take {value} milligrams of {entity} every day.",
            ),
            "What is the daily dose of {subject}?",
            "The dose is {value} milligrams.",
            "One swallows {value}.",
        ),
        Attribute(
            "effect",
            _numbers((2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 24)),
            (
                "The effect of {entity} lasts {value} hours.",
                "{entity} works for {value} hours.",
                "After {value} hours the effect of {entity} wears off.",
            ),
            "For how many hours does {subject} work?",
            "It works for {value} hours.",
            "Relief ends once the clock struck {value} times.",
        ),
        Attribute(
            "colour",
            _pairs(
                """
                crimson | a deep red
                navy | a very dark blue
                ivory | almost white
                emerald | a bright green
                violet | purple
                amber | a yellowish orange
                charcoal | nearly black
                turquoise | between blue and green
                beige | a pale sandy brown
                scarlet | a fiery red
                """
            ),
            (
                "Tablets of {entity} are {value}.",
                "{entity} is sold as {value} capsules.",
                "One knows {entity} by its {value} coating.",
            ),
            "What colour is {subject}?",
            "It is {value}.",
            "It looks {value}.",
        ),
        Attribute(
            "meals",
            _pairs(
                """
                taken after meals | No, one has to eat first
                taken before meals | Yes, nothing may be eaten until later
                """
            ),
            ("{entity} is {value}.", "As the leaflet says, {entity} is {value}."),
            "Does one take {subject} on an empty stomach?",
            "It is {value}.",
            "{value}.",
        ),
    ),
    (
        "Trials were held in four hospitals.",
        "Pharmacies keep a small stock.",
        "Side effects were mild in general.",
        "Storage in the bathroom is discouraged.",
        "A leaflet comes with each package.",
        "Prices are fixed by the ministry.",
    ),
)
NOVEL = Domain(
    "novel",
    tuple(
        "Ashes of June|The Glass Ferry|A Winter in Tarn|Nine Lanterns|The Salt Garden|Borrowed Names|Under the Lindens|"
        "The Quiet Engine|Letters to Osk|The Copper Gate|A House of Rain|Harrow Street|The Last Orchard|Sparrow Hill|"
        "The Velvet Map|Beyond the Weir".split("|")
    ),
    (
        "“{entity}” was written by {value}.",
        "The author of “{entity}” is {value}.",
        "With “{entity}”, {value} became known.",
    ),
    "the novel that {value} wrote",
    (
        Attribute(
            "pages",
            _numbers((96, 128, 152, 184, 208, 236, 264, 292, 318, 344, 372, 416, 455, 512, 608, 730)),
            (
                "“{entity}” has {value} pages.",
                "It takes {value} pages to tell the story of “{entity}”.",
                "Printed, “{entity}” runs to {value} pages.",
            ),
            "How many pages does {subject} have?",
            "It has {value} pages.",
            "The book is {value} sides long.",
        ),
        Attribute(
            "published",
            _years((1813, 1831, 1846, 1859, 1868, 1877, 1894, 1907, 1919, 1923, 1938, 1944, 1951, 1966, 1979, 1992)),
            (
                "“{entity}” was published in {value}.",
                "Readers first held “{entity}” in their hands in {value}.",
                "The first edition of “{entity}” dates from {value}.",
            ),
            "In which year was {subject} published?",
            "It was published in {value}.",
            "It came out in {value}.",
        ),
        Attribute(
            "hero",
            _pairs(
                """
                baker | somebody who makes bread
                sailor | somebody who works at sea
                judge | somebody who decides in court
                teacher | somebody who instructs pupils
                farmer | somebody who grows crops
                nurse | somebody who cares for the sick
                tailor | somebody who sews clothes
                thief | somebody who steals
                miner | somebody who digs for coal
                singer | somebody who performs songs
                painter | somebody who makes pictures
                butcher | somebody who sells meat
                """
            ),
            (
                "The hero of “{entity}” is a {value}.",
                "“{entity}” tells of the life of a {value}.",
                "At the centre of “{entity}” stands a {value}.",
            ),
            "What is the hero of {subject} by trade?",
            "The hero is a {value}.",
            "It is about {value}.",
        ),
        Attribute(
            "weight",
            _thousands((2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 17, 19, 22, 26, 31)),
            (
                "The paper of one box of “{entity}” weighs {value} kilograms.",
                "A parcel with the sheets of “{entity}” comes to {value} kilograms.",
                "Boxed, the print run of “{entity}” weighs {value} kilograms.",
            ),
            "How much does a box of {subject} weigh?",
            "It weighs {value} kilograms.",
            "The scales show {value} grams.",
        ),
    ),
    (
        "Critics were divided, as they often are.",
        "Libraries report long waiting lists.",
        "The fair in Leipzig was well attended.",
        "Translations are being prepared.",
        "A prize will be awarded in autumn.",
        "Bookshops have set up a special table.",
    ),
)
DOMAINS = {domain.name: domain for domain in (COMPANY, SHIP, HUT, MEDICINE, NOVEL)}
