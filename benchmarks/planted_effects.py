"""The effect of words in fresh texts: what a survey estimates, measured without the package.

Every word of every text is removed in turn, so that the comparison is with all other words instead of a few random
ones. A proven word whose effect in fresh texts is not above zero is a false discovery.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

AT_ONCE = 500  # texts


def fresh_effects(
    model: Any, tokenizer: Any, texts: Sequence[str], wanted: Sequence[tuple[str, str]]
) -> list[tuple[str, str, float, float, int]]:
    """For each word and answer the mean effect, its standard error, and the number of texts with both.

    The effect is the drop of the answer's log-odds without the word, beyond the mean drop without one of the other
    words of as many tokens. Removed tokens are masked out. Texts that have the word twice are left out.
    """
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for text in texts:
        words = text.split()
        odds, sizes = removed_one_by_one(model, tokenizer, words)
        answer = model.config.id2label[int(odds[0] > 0)]
        drops = (odds[0] - odds[1:]) * (1 if odds[0] > 0 else -1)
        names = [word.strip(".,") for word in words]
        for place, name in enumerate(names):
            others = sizes == sizes[place]
            others[place] = False
            if names.count(name) == 1 and others.any():
                found[name, answer].append(drops[place] - drops[others].mean())
    rows = []
    for key in wanted:
        own = np.array(found.get(key, ()))
        error = own.std(ddof=1) / np.sqrt(len(own)) if len(own) > 1 else 0.0
        rows.append((*key, round(float(own.mean()), 3) if len(own) else 0.0, round(float(error), 3), len(own)))
    return rows


@torch.no_grad()
def removed_one_by_one(model: Any, tokenizer: Any, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The log-odds of the second label for the whole text and without each word, and the tokens of each word."""
    pieces = tokenizer(list(words), add_special_tokens=False)["input_ids"]
    sizes = np.array([len(own) for own in pieces])
    owner = np.concatenate([[-1], np.repeat(np.arange(len(words)), sizes), [-1]])
    ids = torch.tensor([tokenizer.cls_token_id, *(piece for own in pieces for piece in own), tokenizer.sep_token_id])
    removed = torch.from_numpy(owner[None] == np.arange(-2, len(words))[:, None])[1:]
    removed[0] = False
    logits = model(input_ids=torch.where(removed, tokenizer.pad_token_id, ids), attention_mask=(~removed).long()).logits
    return (logits[:, 1] - logits[:, 0]).double().numpy(), sizes
