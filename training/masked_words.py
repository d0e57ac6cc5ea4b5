"""How a small BERT is taught to read: it guesses masked pieces of many texts, then it also learns their labels."""

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers.trainers import WordPieceTrainer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

import course
from texts import Texts

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # the first ids of every vocabulary, in this order
PAD, _, CLS, SEP, MASK = range(len(SPECIAL))
POSITIONS = 512
ROOM = POSITIONS - 2  # for pieces, between [CLS] and [SEP]
WORDS_WEIGHT = 0.2  # of the masked pieces while labels are learned
AGREEMENT_WEIGHT = 1.0  # of two readings of one text


def new_tokenizer(texts: Sequence[str], size: int) -> BertTokenizer:
    """An uncased BERT tokenizer with a vocabulary of the texts' own pieces."""
    learner = BertTokenizer().backend_tokenizer
    trainer = WordPieceTrainer(
        vocab_size=size, min_frequency=2, limit_alphabet=120, special_tokens=list(SPECIAL), show_progress=False
    )
    learner.train_from_iterator(texts, trainer)
    return BertTokenizer(vocab=learner.get_vocab(with_added_tokens=True), model_max_length=POSITIONS)


def new_model(names: Sequence[str], tokenizer: BertTokenizer, **sizes: int) -> BertForSequenceClassification:
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=len(tokenizer),
            max_position_embeddings=POSITIONS,
            initializer_range=0.04,  # twice the usual: the model is narrow
            pad_token_id=PAD,
            id2label=dict(enumerate(names)),
            label2id={name: label for label, name in enumerate(names)},
            **sizes,
        )
    )


@dataclass(frozen=True)
class Shelf:
    """Texts as pieces, one after the other, without special ones."""

    pieces: Tensor
    lengths: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def device(self) -> torch.device:
        return self.pieces.device

    def rows(self, texts: Tensor, skipped: Tensor, taken: Tensor) -> Tensor:
        """[CLS], so many pieces of each text after the skipped ones, [SEP]; padded to a multiple of 64."""
        width = -(-(int(taken.max()) + 2) // 64) * 64
        texts, skipped, taken = (part.to(self.device) for part in (texts, skipped, taken))
        begins = (self.lengths.cumsum(0) - self.lengths)[texts] + skipped
        columns = torch.arange(width, device=self.device)
        places = (begins[:, None] + columns - 1).clamp(0, len(self.pieces) - 1)
        ends = taken[:, None] + 1
        ids = torch.where(columns < ends, self.pieces[places], torch.where(columns == ends, SEP, PAD))
        return torch.where(columns == 0, CLS, ids)

    def stream(self) -> Tensor:
        """All pieces, with [SEP] after each text."""
        ends = self.lengths.cumsum(0) + torch.arange(len(self), device=self.device)
        stream = self.pieces.new_full((len(self.pieces) + len(self),), SEP)
        inside = torch.ones_like(stream, dtype=torch.bool).index_fill_(0, ends, False)
        return stream.masked_scatter_(inside, self.pieces)


def shelf(texts: Texts, tokenizer: BertTokenizer, device: str) -> Shelf:
    encoded = tokenizer.backend_tokenizer.encode_batch_fast(list(texts.texts), add_special_tokens=False)
    rows = [encoding.ids for encoding in encoded]
    pieces = torch.tensor(list(itertools.chain.from_iterable(rows)))
    lengths, labels = torch.tensor([len(row) for row in rows]), torch.tensor(texts.labels)
    return Shelf(pieces.to(device), lengths.to(device), labels.to(device))


@dataclass(frozen=True)
class Lesson:
    """Texts with what is to be learned of them."""

    train: Shelf
    targets: Tensor  # text, label: probabilities
    copies: Tensor  # how often a text is read in each round
    held_out: Shelf  # for a look at the progress


class Reader(nn.Module):
    """The classifier and, for training only, a head that names masked pieces by the model's own embeddings."""

    def __init__(self, model: BertForSequenceClassification) -> None:
        super().__init__()
        width = model.config.hidden_size
        self.model = model
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(model.config.vocab_size))

    def words_loss(self, inputs: Tensor, places: Tensor, answers: Tensor) -> Tensor:
        """Of rows without padding."""
        return self.loss_at(places, answers, self.model.bert(inputs).last_hidden_state)

    def logits_and_words_loss(self, inputs: Tensor, places: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
        reading = self.model.bert(inputs, attention_mask=(inputs != PAD).long())
        logits = self.model.classifier(self.model.dropout(reading.pooler_output))
        return logits.float(), self.loss_at(places, answers, reading.last_hidden_state)

    def loss_at(self, places: Tensor, answers: Tensor, tokens: Tensor) -> Tensor:
        asked = tokens.gather(1, places[..., None].expand(-1, -1, tokens.shape[-1]))
        logits = F.linear(self.head(asked), self.model.bert.embeddings.word_embeddings.weight, self.bias)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), answers.flatten(), reduction="sum")
        return loss / (answers >= 0).sum().clamp(min=1)

    def set_dropout(self, rate: float) -> None:
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = rate


def masked(ids: Tensor, *, share: float, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """The rows with a share of their pieces hidden as BERT hides them, the places, and what was there (-100: ignore).

    Of ten hidden pieces eight become [MASK], one another piece, and one stays.
    """
    ranks = torch.rand(ids.shape, device=ids.device) * (ids > MASK)
    values, places = ranks.topk(max(int(share * ids.shape[1]), 1), dim=1)
    order = torch.arange(places.shape[1], device=ids.device)
    asked = (values > 0) & (order < share * (ids != PAD).sum(dim=1, keepdim=True))
    truth = ids.gather(1, places)
    fate = torch.rand(values.shape, device=ids.device)
    other = torch.randint(len(SPECIAL), vocabulary, truth.shape, device=ids.device)
    shown = torch.where(fate < 0.8, MASK, torch.where(fate < 0.9, other, truth))
    inputs = ids.scatter(1, places, torch.where(asked, shown, truth))
    return inputs, places, torch.where(asked, truth, -100)


def options_of(description: str) -> argparse.ArgumentParser:
    """The options of a recipe that teaches reading."""
    parser = course.options_of(description)
    parser.add_argument("--data", type=Path, required=True, help="folder with the archives of texts")
    parser.add_argument("--limit", type=int, help="texts per part, for trials")
    parser.add_argument("--reading", type=float, default=0.6, help="share of the time for masked pieces alone")
    parser.add_argument("--windows", type=int, default=128, help="of 512 pieces, in a step of reading")
    parser.add_argument("--reading-rate", type=float, default=1e-3)
    parser.add_argument("--texts", type=int, default=128, help="in a step of learning")
    parser.add_argument("--rate", type=float, default=4e-4)
    parser.add_argument("--hidden", type=float, default=0.15, help="share of pieces hidden while labels are learned")
    return parser


def mixed_precision(options: argparse.Namespace) -> torch.autocast:
    kind = torch.device(options.device).type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda")


def read(reader: Reader, streams: Sequence[Tensor], options: argparse.Namespace, *, keep: float) -> int:
    """Guess masked pieces of windows of the streams, as many of each. Returns the steps made."""
    reader.set_dropout(0.0)
    reader.train()
    trainer = course.Trainer(reader, rate=options.reading_rate)
    columns = torch.arange(POSITIONS - 1, device=options.device)

    def windows() -> Tensor:
        count = -(-options.windows // len(streams))
        begins = [torch.randint(len(stream) - len(columns), (count, 1), device=stream.device) for stream in streams]
        ids = torch.cat([stream[begin + columns] for stream, begin in zip(streams, begins, strict=True)])
        return F.pad(ids, (1, 0), value=CLS)

    def loss_of_windows(words_loss: Any) -> Tensor:
        with mixed_precision(options):
            return words_loss(*masked(windows(), share=0.2, vocabulary=len(reader.bias)))

    def trial(words_loss: Any) -> None:
        loss_of_windows(words_loss).backward()
        reader.zero_grad(set_to_none=True)

    words_loss = course.compiled(reader.words_loss, trial, options)

    def step(progress: float) -> dict[str, Tensor]:
        loss = loss_of_windows(words_loss)
        trainer.step(loss, progress)
        return {"words": loss.detach()}

    seconds = options.reading * course.seconds_left(options, keep=keep)
    return course.follow(step, seconds=seconds, options=options)


def groups(lengths: Tensor, copies: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For ever: texts of about one length, how many of their pieces are skipped, and how many taken.

    Half of the readings begin where the text does, and three in ten take a part only. A text with `copies` is read so
    often in each round.
    """
    while True:
        texts = torch.repeat_interleave(torch.arange(len(lengths)), copies)
        texts = texts[torch.randperm(len(texts))]
        texts = texts[: max(len(texts) // size, 1) * size]
        share = torch.where(torch.rand(len(texts)) < 0.3, 0.5 + 0.5 * torch.rand(len(texts)), 1.0)
        taken = (share * lengths[texts].clamp(max=ROOM)).ceil().long()
        late = (torch.rand(len(texts)) < 0.5) * torch.rand(len(texts))
        skipped = (late * (lengths[texts] - taken)).long()
        order = (taken + 32 * torch.rand(len(texts))).argsort()
        parts = order.split(size)
        for place in torch.randperm(len(parts)).tolist():
            chosen = parts[place]
            yield texts[chosen], skipped[chosen], taken[chosen]


def learn(
    reader: Reader, lesson: Lesson, options: argparse.Namespace, *, keep: float
) -> tuple[BertForSequenceClassification, int]:
    """Learn the labels from texts read twice, each time with other pieces hidden, in all the time that is left.

    The two readings should agree (R-Drop), and the hidden pieces are guessed as before. Returns the mean model of the
    course and the steps made.
    """
    reader.set_dropout(0.1)
    reader.train()
    trainer = course.Trainer(reader, rate=options.rate)
    average = course.Average(reader.model)
    train, held_out = lesson.train, lesson.held_out
    batches = groups(train.lengths.cpu(), lesson.copies, options.texts)

    def step(progress: float) -> dict[str, Tensor]:
        texts, skipped, taken = next(batches)
        ids = train.rows(texts, skipped, taken).repeat(2, 1)
        texts = texts.to(options.device)
        with mixed_precision(options):
            hidden = masked(ids, share=options.hidden, vocabulary=len(reader.bias))
            logits, words = reader.logits_and_words_loss(*hidden)
        one, two = F.log_softmax(logits, dim=-1).chunk(2)
        classes = -(lesson.targets[texts] * (one + two) / 2).sum(dim=-1).mean()
        agreement = ((one.exp() - two.exp()) * (one - two)).sum(dim=-1).mean() / 2
        trainer.step(classes + AGREEMENT_WEIGHT * agreement + WORDS_WEIGHT * words, progress)
        average.update()
        right = (one.argmax(dim=-1) == train.labels[texts]).float().mean()
        return {"classes": classes.detach(), "agreement": agreement.detach(), "words": words.detach(), "right": right}

    def probe() -> dict[str, float]:
        return {"held_out_accuracy": accuracy(predictions(average.model, held_out), held_out.labels)}

    seconds = course.seconds_left(options, keep=keep)
    steps = course.follow(step, seconds=seconds, options=options, probe=probe)
    course.say({"event": "learned", **probe()}, options.out)
    return average.model, steps


def taught(
    model: BertForSequenceClassification,
    streams: Sequence[Tensor],
    lesson: Lesson,
    options: argparse.Namespace,
    *,
    keep: float,
) -> tuple[BertForSequenceClassification, dict[str, int]]:
    """The model after reading the streams and learning the lesson, and the steps made; `keep` seconds remain."""
    reader = Reader(model).to(options.device)
    course.say({"event": "training starts", "parameters": model.num_parameters()}, options.out)
    reading_steps = read(reader, streams, options, keep=keep)
    course.say({"event": "labels are learned from here", "reading_steps": reading_steps}, options.out)
    learned, steps = learn(reader, lesson, options, keep=keep)
    return learned, {"reading_steps": reading_steps, "steps": steps}


@torch.no_grad()
def predictions(model: BertForSequenceClassification, shelf: Shelf, *, last: bool = False, size: int = 256) -> Tensor:
    """The label of each text by its first 510 pieces, or its last ones."""
    taken = shelf.lengths.clamp(max=ROOM)
    skipped = (shelf.lengths - taken) * last
    found = torch.zeros_like(shelf.labels)
    for texts in taken.argsort().split(size):
        ids = shelf.rows(texts, skipped[texts], taken[texts])
        found[texts] = model(ids, attention_mask=(ids != PAD).long()).logits.argmax(dim=-1)
    return found


def accuracy(found: Tensor, labels: Tensor) -> float:
    return 100 * float((found == labels).float().mean())


def majority(labels: Tensor) -> float:
    """The accuracy of always saying what is most often right."""
    return 100 * float(labels.bincount().max()) / len(labels)
