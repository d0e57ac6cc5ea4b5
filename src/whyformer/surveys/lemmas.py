"""Forms of a word as one cue: lemmas by a table or a function of the user."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.surveys.cues import bare_word

Lemmas = Mapping[str, str] | Callable[[str], str] | str | Path


class LemmaError(WhyformerError):
    """A function or a table gives a word no lemma."""


@dataclass(frozen=True, eq=False)
class Lemmatiser:
    """The lemma of a word in lower case; `identity` is the digest of the table, or the name of the function."""

    lemma: Callable[[str], str]
    identity: str

    def of(self, words: Sequence[str]) -> tuple[str, ...]:
        """The words with their lemmas in their place; punctuation around them stays."""
        return tuple(map(self._of_word, words))

    def _of_word(self, word: str) -> str:
        bare = bare_word(word)
        if not bare:
            return word
        try:
            lemma = self.lemma(bare.casefold())
        except Exception as error:  # of a function of the user
            raise LemmaError(f"lemmas fails for {bare!r:.40}: {type(error).__name__}: {error!s:.200}") from error
        if not isinstance(lemma, str) or len(lemma.split()) != 1:
            raise LemmaError(f"lemmas gives {lemma!r:.40} for {bare!r:.40}: return one word, or the word itself.")
        start = word.index(bare)
        return f"{word[:start]}{lemma}{word[start + len(bare) :]}"


def lemmatiser(lemmas: Lemmas | None) -> Lemmatiser | None:
    """Lemmas by a mapping, a function, or a file with a word and its lemma in each line, separated by a tab."""
    if lemmas is None:
        return None
    if isinstance(lemmas, (str, Path)):
        return _of_table(_read(Path(lemmas)))
    if isinstance(lemmas, Mapping):
        return _of_table(lemmas)
    if callable(lemmas):
        return Lemmatiser(lemmas, getattr(lemmas, "__qualname__", type(lemmas).__qualname__))
    raise WhyformerError(f"lemmas={lemmas!r:.40}: give a mapping, a function, or a file.")


@dataclass(frozen=True, eq=False)
class _Table:
    """A function that workers can be sent."""

    lemmas: Mapping[str, str]

    def __call__(self, word: str) -> str:
        return self.lemmas.get(word, word)


def _of_table(lemmas: Mapping[Any, Any]) -> Lemmatiser:
    table = {str(word).casefold(): lemma for word, lemma in lemmas.items()}
    content = json.dumps(table, sort_keys=True, default=repr)
    return Lemmatiser(_Table(table), f"sha256:{hashlib.sha256(content.encode()).hexdigest()}")


def _read(path: Path) -> dict[str, str]:
    if not path.is_file():
        raise WhyformerError(f"No file {str(path)!r} with lemmas.")
    lemmas = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        columns = [column.strip() for column in line.split("\t")]
        if columns == [""]:
            continue
        if len(columns) != 2 or not all(len(column.split()) == 1 for column in columns):
            raise WhyformerError(
                f"Line {number} of {str(path)!r} is {line!r:.40}: write a word and its lemma, separated by a tab."
            )
        lemmas[columns[0]] = columns[1].casefold()
    return lemmas
