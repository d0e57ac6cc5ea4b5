"""How a small BERT is trained: masked language modelling on many texts, then classification beside it."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from optimization import Trainer, WeightAverage
from token_batches import CLS, MAX_TOKENS, PAD, POSITIONS, EncodedTexts, length_batches, mask_tokens
from training_loop import compile_if_possible, log, mixed_precision, new_parser, seconds_left, train_for

MASKED_WEIGHT = 0.2  # of the masked tokens' loss while labels are learned
AGREEMENT_WEIGHT = 1.0  # of the divergence between two passes over one text


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
class ClassificationData:
    """Texts with the probabilities to be learned of their labels."""

    train: EncodedTexts
    targets: Tensor  # text, label: probabilities
    repeats: Tensor  # how often a text comes in each epoch
    validation: EncodedTexts


class ModelWithMaskedHead(nn.Module):
    """The classifier and, for training only, a head that predicts masked tokens by the model's own embeddings."""

    def __init__(self, model: BertForSequenceClassification) -> None:
        super().__init__()
        width = model.config.hidden_size
        self.model = model
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(model.config.vocab_size))

    def masked_loss(self, inputs: Tensor, places: Tensor, targets: Tensor) -> Tensor:
        """The loss of the masked tokens of rows without padding."""
        return self.loss_at(places, targets, self.model.bert(inputs).last_hidden_state)

    def logits_and_masked_loss(self, inputs: Tensor, places: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The labels' logits, and the loss of the masked tokens, of padded rows."""
        output = self.model.bert(inputs, attention_mask=(inputs != PAD).long())
        logits = self.model.classifier(self.model.dropout(output.pooler_output))
        return logits.float(), self.loss_at(places, targets, output.last_hidden_state)

    def loss_at(self, places: Tensor, targets: Tensor, states: Tensor) -> Tensor:
        """The mean cross-entropy of the tokens at these places; negative targets are ignored."""
        masked_states = states.gather(1, places[..., None].expand(-1, -1, states.shape[-1]))
        logits = F.linear(self.head(masked_states), self.model.bert.embeddings.word_embeddings.weight, self.bias)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")
        return loss / (targets >= 0).sum().clamp(min=1)

    def set_dropout(self, rate: float) -> None:
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = rate


def text_parser(description: str) -> argparse.ArgumentParser:
    """The options of a recipe that classifies texts."""
    parser = new_parser(description)
    parser.add_argument("--data", type=Path, required=True, help="folder with the archives of texts")
    parser.add_argument("--limit", type=int, help="texts per part, for trials")
    parser.add_argument("--reading", type=float, default=0.6, help="share of the time for masked tokens alone")
    parser.add_argument("--windows", type=int, default=128, help="of 512 tokens, in a step of pre-training")
    parser.add_argument("--reading-rate", type=float, default=1e-3, help="learning rate of pre-training")
    parser.add_argument("--texts", type=int, default=128, help="in a step of fine-tuning")
    parser.add_argument("--rate", type=float, default=4e-4, help="learning rate of fine-tuning")
    parser.add_argument("--hidden", type=float, default=0.15, help="share of tokens masked in fine-tuning")
    return parser


def pretrain(
    module: ModelWithMaskedHead, token_rows: Sequence[Tensor], options: argparse.Namespace, *, reserve: float
) -> int:
    """Predict masked tokens in windows of the token rows, as many of each; returns the number of steps."""
    module.set_dropout(0.0)
    module.train()
    trainer = Trainer(module, rate=options.reading_rate)
    columns = torch.arange(POSITIONS - 1, device=options.device)

    def windows() -> Tensor:
        count = -(-options.windows // len(token_rows))
        starts = [torch.randint(len(row) - len(columns), (count, 1), device=row.device) for row in token_rows]
        ids = torch.cat([row[start + columns] for row, start in zip(token_rows, starts, strict=True)])
        return F.pad(ids, (1, 0), value=CLS)

    def loss_of_windows(masked_loss: Any) -> Tensor:
        with mixed_precision(options.device):
            return masked_loss(*mask_tokens(windows(), share=0.2, vocabulary=len(module.bias)))

    def trial(masked_loss: Any) -> None:
        loss_of_windows(masked_loss).backward()
        module.zero_grad(set_to_none=True)

    masked_loss = compile_if_possible(module.masked_loss, trial, options)

    def step(progress: float) -> dict[str, Tensor]:
        loss = loss_of_windows(masked_loss)
        trainer.step(loss, progress)
        return {"words": loss.detach()}

    seconds = options.reading * seconds_left(options, reserve=reserve)
    return train_for(step, seconds=seconds, options=options)


def fine_tune(
    module: ModelWithMaskedHead, data: ClassificationData, options: argparse.Namespace, *, reserve: float
) -> tuple[BertForSequenceClassification, int]:
    """Learn the labels in the time that is left; returns the averaged model and the number of steps.

    Each text is read twice, with other tokens masked. The two predictions should agree (R-Drop, Liang et al. 2021),
    and the masked tokens are predicted as before.
    """
    module.set_dropout(0.1)
    module.train()
    trainer = Trainer(module, rate=options.rate)
    average = WeightAverage(module.model)
    train, validation = data.train, data.validation
    batches = length_batches(train.lengths.cpu(), data.repeats, options.texts)

    def step(progress: float) -> dict[str, Tensor]:
        texts, starts, counts = next(batches)
        ids = train.rows(texts, starts, counts).repeat(2, 1)
        texts = texts.to(options.device)
        with mixed_precision(options.device):
            masked = mask_tokens(ids, share=options.hidden, vocabulary=len(module.bias))
            logits, masked_loss = module.logits_and_masked_loss(*masked)
        one, two = F.log_softmax(logits, dim=-1).chunk(2)
        classes = -(data.targets[texts] * (one + two) / 2).sum(dim=-1).mean()
        agreement = symmetric_divergence(one, two)
        trainer.step(classes + AGREEMENT_WEIGHT * agreement + MASKED_WEIGHT * masked_loss, progress)
        average.update()
        correct = (one.argmax(dim=-1) == train.labels[texts]).float().mean()
        losses = {"classes": classes.detach(), "agreement": agreement.detach(), "words": masked_loss.detach()}
        return {**losses, "right": correct}

    def validate() -> dict[str, float]:
        return {"held_out_accuracy": accuracy(predict_labels(average.model, validation), validation.labels)}

    seconds = seconds_left(options, reserve=reserve)
    steps = train_for(step, seconds=seconds, options=options, validate=validate)
    log({"event": "learned", **validate()}, options.out)
    return average.model, steps


def symmetric_divergence(one: Tensor, two: Tensor) -> Tensor:
    """The mean of both Kullback-Leibler divergences between two batches of log-probabilities."""
    return ((one.exp() - two.exp()) * (one - two)).sum(dim=-1).mean() / 2


def train_classifier(
    model: BertForSequenceClassification,
    token_rows: Sequence[Tensor],
    data: ClassificationData,
    options: argparse.Namespace,
    *,
    reserve: float,
) -> tuple[BertForSequenceClassification, dict[str, int]]:
    """Pre-train on the token rows, then fine-tune on the labels until `reserve` seconds are left.

    Returns the averaged model and the numbers of steps.
    """
    module = ModelWithMaskedHead(model).to(options.device)
    log({"event": "training starts", "parameters": model.num_parameters()}, options.out)
    pretraining_steps = pretrain(module, token_rows, options, reserve=reserve)
    log({"event": "labels are learned from here", "reading_steps": pretraining_steps}, options.out)
    average, steps = fine_tune(module, data, options, reserve=reserve)
    return average, {"reading_steps": pretraining_steps, "steps": steps}


@torch.no_grad()
def predict_labels(
    model: BertForSequenceClassification, texts: EncodedTexts, *, from_the_end: bool = False, size: int = 256
) -> Tensor:
    """The label of each text by its first 510 tokens, or its last ones."""
    counts = texts.lengths.clamp(max=MAX_TOKENS)
    starts = (texts.lengths - counts) * from_the_end
    labels = torch.zeros_like(texts.labels)
    for places in counts.argsort().split(size):
        ids = texts.rows(places, starts[places], counts[places])
        labels[places] = model(ids, attention_mask=(ids != PAD).long()).logits.argmax(dim=-1)
    return labels


def accuracy(predictions: Tensor, labels: Tensor) -> float:
    """In percent."""
    return 100 * float((predictions == labels).float().mean())


def majority_accuracy(labels: Tensor) -> float:
    """The accuracy, in percent, of always predicting the most frequent label."""
    return 100 * float(labels.bincount().max()) / len(labels)
