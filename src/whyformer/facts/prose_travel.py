"""Domains of the prose register that one travels by or to: ships, mountain huts."""

from __future__ import annotations

from whyformer.facts.prose_wording import DURATIONS, Attribute, ProseDomain, numbers, pairs

SHIP = ProseDomain(
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
            numbers((6, 8, 11, 14, 17, 19, 22, 26, 31, 34, 43, 48, 57, 62, 71, 85)),
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
            pairs(
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
            numbers((3, 5, 9, 12, 16, 18, 21, 23, 27, 29, 33, 36, 39, 41, 44, 47)),
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
            pairs(
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
HUT = ProseDomain(
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
            numbers((8, 12, 16, 21, 25, 32, 37, 44, 52, 58, 63, 76, 84, 95, 110, 130)),
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
            DURATIONS,
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
            numbers((1180, 1340, 1425, 1560, 1690, 1715, 1830, 1975, 2040, 2110, 2260, 2385, 2450, 2590, 2710, 2845)),
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
            pairs(
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
