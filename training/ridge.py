"""What counting words already tells: ridge regression on pieces and pairs of pieces, in closed form.

Its opinion of a training text comes from all the other ones, so it can soften that text's label; what it makes of test
texts is the baseline a small BERT is compared with.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from masked_words import Shelf

RARE = 3  # a feature that fewer texts have is left out
PENALTY = 1.0
SCALES = torch.linspace(1, 20, 77)  # of scores, to be read as logits


def fitted_ridge(shelf: Shelf, classes: int) -> tuple[Tensor, Callable[[Shelf], Tensor]]:
    """For every text of the shelf the classes' probabilities by all others, and a function for the scores of others."""
    codes, owners = features(shelf)
    vocabulary, found = codes.unique(return_inverse=True)
    texts_with = torch.unique(owners * len(vocabulary) + found).remainder(len(vocabulary)).bincount()
    common = texts_with >= RARE
    vocabulary, rarity = vocabulary[common], (len(shelf) / texts_with[common]).log() + 1
    rows = weighted_counts(shelf, vocabulary, rarity)
    answers = 2 * F.one_hot(shelf.labels, classes).float() - 1
    kernel = products(rows)
    kernel.diagonal().add_(PENALTY)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(kernel))
    shares = inverse @ answers
    without_it = answers - shares / inverse.diagonal()[:, None]
    losses = torch.stack([F.cross_entropy(scale * without_it, shelf.labels) for scale in SCALES.tolist()])
    weights = torch.sparse.mm(rows.t(), shares)
    opinions = (SCALES[losses.argmin().item()].item() * without_it).softmax(dim=-1)
    return opinions, lambda other: torch.sparse.mm(weighted_counts(other, vocabulary, rarity), weights)


def features(shelf: Shelf) -> tuple[Tensor, Tensor]:
    """A code for every piece and for every pair of neighbours, and the text it is from."""
    owners = torch.repeat_interleave(torch.arange(len(shelf), device=shelf.device), shelf.lengths)
    same = owners[1:] == owners[:-1]
    pairs = (shelf.pieces[:-1] + 1) * 2**20 + shelf.pieces[1:]
    return torch.cat([shelf.pieces, pairs[same]]), torch.cat([owners, owners[1:][same]])


def weighted_counts(shelf: Shelf, vocabulary: Tensor, rarity: Tensor) -> Tensor:
    """One sparse row of length 1 per text: (1 + log count) × the feature's rarity."""
    codes, owners = features(shelf)
    found = torch.searchsorted(vocabulary, codes).clamp(max=len(vocabulary) - 1)
    known = vocabulary[found] == codes
    places, counts = torch.unique(owners[known] * len(vocabulary) + found[known], return_counts=True)
    owners, found = places // len(vocabulary), places % len(vocabulary)
    values = (1 + counts.float().log()) * rarity[found]
    norms = torch.zeros(len(shelf), device=shelf.device).index_add_(0, owners, values.square()).sqrt()
    shape = (len(shelf), len(vocabulary))
    places = torch.stack([owners, found])
    return torch.sparse_coo_tensor(places, values / norms[owners], shape, check_invariants=False, is_coalesced=True)


def products(rows: Tensor, *, block: int = 1024) -> Tensor:
    """Of every row with every row."""
    (owners, found), values = rows.indices(), rows.values()
    parts = []
    for begin in range(0, rows.shape[0], block):
        inside = (owners >= begin) & (owners < begin + block)
        columns = torch.zeros(rows.shape[1], block, device=rows.device)
        columns[found[inside], owners[inside] - begin] = values[inside]
        parts.append(torch.sparse.mm(rows, columns))
    return torch.cat(parts, dim=1)[:, : rows.shape[0]].contiguous()
