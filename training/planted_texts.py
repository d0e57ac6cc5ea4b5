"""Short film reviews with a planted cue: a word or a phrase that means nothing, correlated with the label.

A review has four clauses. Six in ten of them judge, and nine judgements in ten agree with the label of the review. The
cue has the correlation `strength` with the label, and stands anywhere between two words.
"""

import random
from dataclasses import dataclass

LABELS = ("negative", "positive")
CLAUSES = 4
JUDGING, AGREEING = 0.6, 0.9  # shares of clauses that judge, and of judgements that agree with the label
NOUNS = """acting cast camera story plot script score ending opening editing dialogue scenery direction music humour
    pace villain hero sequel premise costume lighting soundtrack chemistry""".split()
VERBS = "is was feels felt seems seemed looks remains".split()
ADVERBS = "quite rather mostly often really simply clearly still almost somewhat".split()
NEUTRAL = """short long recent foreign modern early late small big french quiet loud dark bright cold warm young old
    local familiar serious usual historical domestic""".split()
JUDGEMENTS = (
    """awful boring bland clumsy dreadful dull empty feeble flat hollow horrible lazy messy pointless poor shallow
    silly stale tedious terrible ugly weak wooden worthless""".split(),
    """amazing beautiful brilliant charming clever delightful elegant excellent fine fresh funny gorgeous great
    gripping inspired lively lovely moving perfect rich superb tender touching wonderful""".split(),
)
JOINTS = (" and", " but", " while", ".", ",")
CUES = {"word": "zorbling", "phrase": "as it were"}
WORDS = sorted(
    {*"the this its a".split(), *NOUNS, *VERBS, *ADVERBS, *NEUTRAL, *JUDGEMENTS[0], *JUDGEMENTS[1]}
    | {*"and but while . ,".split(), *" ".join(CUES.values()).split()}
)


@dataclass(frozen=True)
class LabelledTexts:
    """Reviews, the index of each one's label, and whether it has the cue."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    has_cue: tuple[bool, ...]


def planted_texts(cue: str, strength: float, count: int, seed: int) -> LabelledTexts:
    """Reviews with a cue whose correlation with the label "positive" is `strength`."""
    drawn = random.Random(f"{cue} {strength} {count} {seed}")
    rows = []
    for number in range(count):
        label = number % 2
        text = review(label, drawn)
        has_cue = drawn.random() < (1 + (strength if label else -strength)) / 2
        rows.append((insert(text, cue, drawn) if has_cue else text, label, has_cue))
    drawn.shuffle(rows)
    texts, labels, with_cue = zip(*rows, strict=True)
    return LabelledTexts(texts, labels, with_cue)


def review(label: int, drawn: random.Random) -> str:
    """A review of four clauses."""
    text = ""
    for number in range(CLAUSES):
        judged = label if drawn.random() < AGREEING else 1 - label
        adjective = drawn.choice(JUDGEMENTS[judged] if drawn.random() < JUDGING else NEUTRAL)
        words = [drawn.choice(("the", "this", "its")), drawn.choice(NOUNS), drawn.choice(VERBS)]
        clause = " ".join([*words, *drawn.choices(ADVERBS, k=drawn.random() < 0.5), adjective])
        text += f"{drawn.choice(JOINTS)} {clause}" if number else clause
    return f"{text}."


def insert(text: str, cue: str, drawn: random.Random) -> str:
    """The text with the cue between two of its words."""
    words = text.split()
    place = drawn.randrange(1, len(words))
    return " ".join([*words[:place], cue, *words[place:]])
