"""A linear text classifier: ridge regression on tokens and pairs of neighbouring tokens, in closed form.

Its prediction for a training text is fitted to all the other texts (leave-one-out), so it can soften that text's label;
its predictions for test texts are the baseline a small BERT is compared with.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from token_batches import EncodedTexts

MIN_TEXTS = 3  # a feature that fewer texts have is left out
PENALTY = 1.0
SCALES = torch.linspace(1, 20, 77)  # candidates for the factor that turns scores into logits


def fit_ridge(texts: EncodedTexts, classes: int) -> tuple[Tensor, Callable[[EncodedTexts], Tensor]]:
    """The leave-one-out probabilities of every text's classes, and a function that gives scores of other texts."""
    codes, owners = features(texts)
    vocabulary, columns = codes.unique(return_inverse=True)
    texts_with = torch.unique(owners * len(vocabulary) + columns).remainder(len(vocabulary)).bincount()
    is_common = texts_with >= MIN_TEXTS
    vocabulary, rarity = vocabulary[is_common], (len(texts) / texts_with[is_common]).log() + 1
    rows = weighted_counts(texts, vocabulary, rarity)
    targets = 2 * F.one_hot(texts.labels, classes).float() - 1
    kernel = inner_products(rows)
    kernel.diagonal().add_(PENALTY)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(kernel))
    dual_weights = inverse @ targets
    left_out_scores = targets - dual_weights / inverse.diagonal()[:, None]
    losses = torch.stack([F.cross_entropy(scale * left_out_scores, texts.labels) for scale in SCALES.tolist()])
    weights = torch.sparse.mm(rows.t(), dual_weights)
    probabilities = (SCALES[losses.argmin().item()].item() * left_out_scores).softmax(dim=-1)
    return probabilities, lambda other: torch.sparse.mm(weighted_counts(other, vocabulary, rarity), weights)


def features(texts: EncodedTexts) -> tuple[Tensor, Tensor]:
    """A code for every token and for every pair of neighbours, and the text it is from."""
    owners = torch.repeat_interleave(torch.arange(len(texts), device=texts.device), texts.lengths)
    same_text = owners[1:] == owners[:-1]
    pairs = (texts.tokens[:-1] + 1) * 2**20 + texts.tokens[1:]
    return torch.cat([texts.tokens, pairs[same_text]]), torch.cat([owners, owners[1:][same_text]])


def weighted_counts(texts: EncodedTexts, vocabulary: Tensor, rarity: Tensor) -> Tensor:
    """One sparse row of length 1 per text: (1 + log count) × the feature's rarity."""
    codes, owners = features(texts)
    columns = torch.searchsorted(vocabulary, codes).clamp(max=len(vocabulary) - 1)
    is_known = vocabulary[columns] == codes
    cells, counts = torch.unique(owners[is_known] * len(vocabulary) + columns[is_known], return_counts=True)
    owners, columns = cells // len(vocabulary), cells % len(vocabulary)
    values = (1 + counts.float().log()) * rarity[columns]
    norms = torch.zeros(len(texts), device=texts.device).index_add_(0, owners, values.square()).sqrt()
    shape = (len(texts), len(vocabulary))
    cells = torch.stack([owners, columns])
    return torch.sparse_coo_tensor(cells, values / norms[owners], shape, check_invariants=False, is_coalesced=True)


def inner_products(rows: Tensor, *, block: int = 1024) -> Tensor:
    """Of every sparse row with every other, `block` rows at a time."""
    (owners, columns), values = rows.indices(), rows.values()
    parts = []
    for start in range(0, rows.shape[0], block):
        inside = (owners >= start) & (owners < start + block)
        dense = torch.zeros(rows.shape[1], block, device=rows.device)
        dense[columns[inside], owners[inside] - start] = values[inside]
        parts.append(torch.sparse.mm(rows, dense))
    return torch.cat(parts, dim=1)[:, : rows.shape[0]].contiguous()
