"""Texts as token ids for the small BERTs: vocabulary, padded batches, masked tokens."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from tokenizers.trainers import WordPieceTrainer
from torch import Tensor
from transformers import BertTokenizer

from texts import Texts

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # the first ids of every vocabulary, in this order
PAD, _, CLS, SEP, MASK = range(len(SPECIAL))
POSITIONS = 512
MAX_TOKENS = POSITIONS - 2  # of a text, between [CLS] and [SEP]
IGNORED = -100  # the target of a position that no loss is taken of


def new_tokenizer(texts: Sequence[str], size: int) -> BertTokenizer:
    """An uncased BERT tokenizer with a vocabulary of the texts' own word pieces."""
    backend = BertTokenizer().backend_tokenizer
    trainer = WordPieceTrainer(
        vocab_size=size, min_frequency=2, limit_alphabet=120, special_tokens=list(SPECIAL), show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    return BertTokenizer(vocab=backend.get_vocab(with_added_tokens=True), model_max_length=POSITIONS)


@dataclass(frozen=True)
class EncodedTexts:
    """Texts as token ids, one text after the other, without special tokens."""

    tokens: Tensor
    lengths: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def device(self) -> torch.device:
        return self.tokens.device

    def rows(self, texts: Tensor, starts: Tensor, counts: Tensor) -> Tensor:
        """[CLS], `counts` tokens of each text from its token `starts` on, [SEP]; padded to a multiple of 64."""
        width = -(-(int(counts.max()) + 2) // 64) * 64
        texts, starts, counts = (part.to(self.device) for part in (texts, starts, counts))
        first = (self.lengths.cumsum(0) - self.lengths)[texts] + starts
        columns = torch.arange(width, device=self.device)
        places = (first[:, None] + columns - 1).clamp(0, len(self.tokens) - 1)
        ends = counts[:, None] + 1
        ids = torch.where(columns < ends, self.tokens[places], torch.where(columns == ends, SEP, PAD))
        return torch.where(columns == 0, CLS, ids)

    def concatenated(self) -> Tensor:
        """All tokens in one row, with [SEP] after each text."""
        ends = self.lengths.cumsum(0) + torch.arange(len(self), device=self.device)
        row = self.tokens.new_full((len(self.tokens) + len(self),), SEP)
        is_token = torch.ones_like(row, dtype=torch.bool).index_fill_(0, ends, False)
        return row.masked_scatter_(is_token, self.tokens)


def encode_texts(texts: Texts, tokenizer: BertTokenizer, device: str) -> EncodedTexts:
    encodings = tokenizer.backend_tokenizer.encode_batch_fast(list(texts.texts), add_special_tokens=False)
    rows = [encoding.ids for encoding in encodings]
    tokens = torch.tensor(list(itertools.chain.from_iterable(rows)))
    lengths, labels = torch.tensor([len(row) for row in rows]), torch.tensor(texts.labels)
    return EncodedTexts(tokens.to(device), lengths.to(device), labels.to(device))


def mask_tokens(ids: Tensor, *, share: float, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """The rows with a share of their tokens masked as BERT does, the masked places, and what was there.

    Of ten masked tokens eight become [MASK], one a random token, and one stays. Where a row has fewer masked tokens
    than the others, its last targets are IGNORED.
    """
    ranks = torch.rand(ids.shape, device=ids.device) * (ids > MASK)
    values, places = ranks.topk(max(int(share * ids.shape[1]), 1), dim=1)
    order = torch.arange(places.shape[1], device=ids.device)
    is_masked = (values > 0) & (order < share * (ids != PAD).sum(dim=1, keepdim=True))
    truth = ids.gather(1, places)
    draw = torch.rand(values.shape, device=ids.device)
    random_tokens = torch.randint(len(SPECIAL), vocabulary, truth.shape, device=ids.device)
    replacements = torch.where(draw < 0.8, MASK, torch.where(draw < 0.9, random_tokens, truth))
    inputs = ids.scatter(1, places, torch.where(is_masked, replacements, truth))
    return inputs, places, torch.where(is_masked, truth, IGNORED)


def length_batches(lengths: Tensor, repeats: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Without end: `size` texts of about one length, the token each starts at, and how many tokens of it are read.

    Half of the texts are read from their start, and three in ten only in part. In each epoch a text comes as often as
    `repeats` says.
    """
    while True:
        texts = torch.repeat_interleave(torch.arange(len(lengths)), repeats)
        texts = texts[torch.randperm(len(texts))]
        texts = texts[: max(len(texts) // size, 1) * size]
        share = torch.where(torch.rand(len(texts)) < 0.3, 0.5 + 0.5 * torch.rand(len(texts)), 1.0)
        counts = (share * lengths[texts].clamp(max=MAX_TOKENS)).ceil().long()
        offset = (torch.rand(len(texts)) < 0.5) * torch.rand(len(texts))
        starts = (offset * (lengths[texts] - counts)).long()
        order = (counts + 32 * torch.rand(len(texts))).argsort()
        parts = order.split(size)
        for number in torch.randperm(len(parts)).tolist():
            part = parts[number]
            yield texts[part], starts[part], counts[part]
