"""Domains of the prose register that are made or sold: companies, medicines, novels."""

from __future__ import annotations

from whyformer.facts.prose_wording import DOSES, Attribute, ProseDomain, numbers, pairs, thousands, years

COMPANY = ProseDomain(
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
            numbers((12, 24, 38, 65, 90, 140, 215, 370, 480, 560, 720, 850, 1200, 2400, 3100, 4700)),
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
            years((1804, 1827, 1849, 1862, 1875, 1888, 1891, 1903, 1912, 1926, 1934, 1947, 1958, 1963, 1971, 1986)),
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
            pairs(
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
            pairs(
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
MEDICINE = ProseDomain(
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
            numbers((2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 24)),
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
            pairs(
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
            pairs(
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
NOVEL = ProseDomain(
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
            numbers((96, 128, 152, 184, 208, 236, 264, 292, 318, 344, 372, 416, 455, 512, 608, 730)),
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
            years((1813, 1831, 1846, 1859, 1868, 1877, 1894, 1907, 1919, 1923, 1938, 1944, 1951, 1966, 1979, 1992)),
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
            pairs(
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
            thousands((2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 17, 19, 22, 26, 31)),
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
