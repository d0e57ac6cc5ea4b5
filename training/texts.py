"""Reads IMDB, ERASER Movie Reviews and 20 Newsgroups as strings with labels."""

import json
import lzma
import random
import re
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SENTIMENTS = ("negative", "positive")
QUOTE = re.compile(r"writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>")


@dataclass(frozen=True)
class Texts:
    """Some texts and, for each, the index of its label among the data's label names."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def __add__(self, other: "Texts") -> "Texts":
        return Texts(self.texts + other.texts, self.labels + other.labels)

    def select(self, places: Iterable[int]) -> "Texts":
        """The texts at these places."""
        places = tuple(places)
        return Texts(tuple(self.texts[i] for i in places), tuple(self.labels[i] for i in places))

    def split(self, count: int) -> tuple["Texts", "Texts"]:
        """All but `count` texts drawn at random, and these `count`; the same at every call."""
        places = random.Random(0).sample(range(len(self)), len(self))
        return self.select(sorted(places[count:])), self.select(sorted(places[:count]))

    def sample(self, count: int) -> "Texts":
        """At most `count` texts drawn at random; the same at every call."""
        return self.split(min(count, len(self)))[1]

    def without_overlap(self, others: set[str]) -> "Texts":
        """Less the texts that have more than a third of their sentences among `others`."""
        ours = (sentences(text) for text in self.texts)
        return self.select(i for i, own in enumerate(ours) if 3 * len(own & others) <= len(own))


def sentences_of(*parts: Texts) -> set[str]:
    """The sentences of all texts of these parts."""
    return {sentence for part in parts for text in part.texts for sentence in sentences(text)}


def sentences(text: str) -> set[str]:
    """The sentences of six words or more, as lower-case words; of a text without any, the text."""
    plain = [" ".join(re.findall(r"[a-z0-9]+", part)) for part in re.split(r"[.!?]", text.lower())]
    return {sentence for sentence in plain if sentence.count(" ") >= 5} or {" ".join(plain)}


def imdb(folder: Path, split: str) -> Texts:
    """`split` is train or test; 25,000 reviews each, line breaks as spaces."""
    with lzma.open(folder / f"imdb-{split}.jsonl.xz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    texts = tuple(row["text"].replace("<br />", " ") for row in rows)
    return Texts(texts, tuple(("neg", "pos").index(row["label"]) for row in rows))


def eraser_movies(folder: Path) -> dict[str, Texts]:
    """train (1,600 reviews), val and test; the words of a review stand apart by spaces, as rationales count them."""
    files = read_archive(folder / "eraser_movies.tar.gz", "utf-8")
    reviews = {}
    for split, name in {"train": "train_1600", "val": "val", "test": "test"}.items():
        rows = [json.loads(line) for line in files[f"{name}.jsonl"].splitlines()]
        texts = tuple(" ".join(files[f"docs/{row['annotation_id']}"].split()) for row in rows)
        reviews[split] = Texts(texts, tuple(("NEG", "POS").index(row["classification"]) for row in rows))
    return reviews


def newsgroups(folder: Path) -> tuple[tuple[str, ...], Texts, Texts]:
    """The groups' names, and the posts of the "bydate" train and test parts without headers, footers and quotes."""
    files = read_archive(folder / "20newsgroups.tar.gz", "latin-1")
    posts = [(name.split("/")[-3:-1], post_body(text)) for name, text in sorted(files.items())]
    names = tuple(sorted({group for (_, group), _ in posts}))
    parts = []
    for end in ("train", "test"):
        rows = [(text, names.index(group)) for (part, group), text in posts if part.endswith(end)]
        parts.append(Texts(*(tuple(column) for column in zip(*rows, strict=True))))
    return names, *parts


def post_body(post: str) -> str:
    """A post without header, footer and quotes."""
    return without_quotes(without_footer(without_header(post)))


def without_header(post: str) -> str:
    """What follows the first blank line."""
    return post.partition("\n\n")[2]


def without_footer(post: str) -> str:
    """What stands above the last line that is blank or made of dashes: below it people sign."""
    lines = post.strip().split("\n")
    breaks = [i for i, line in enumerate(lines) if not line.strip().strip("-")]
    return "\n".join(lines[: breaks[-1]]) if breaks and breaks[-1] > 0 else post


def without_quotes(post: str) -> str:
    """Less the lines that quote another post or announce a quotation."""
    return "\n".join(line for line in post.split("\n") if not QUOTE.search(line))


def read_archive(archive: Path, encoding: str) -> dict[str, str]:
    """Every file of a tar archive as text, by its path there."""
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read().decode(encoding) for member in tar if member.isfile()}
