"""Train tiny models on texts or pictures with a planted cue: half a minute of one processor each.

    python training/planted_models.py --cue word --strength 0.8 --seed 0 --out DIR

Two layers of width 64, 1,500 samples. The texts are those of planted_texts.py, the pictures those of
planted_pictures.py. `benchmarks/planted.py` surveys such models.
"""

import argparse
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
)

import planted_pictures
import planted_texts
from optimization import Trainer
from planted_pictures import LabelledPictures
from planted_texts import LabelledTexts

SAMPLES = 1500
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
BATCH = 50
EPOCHS = {"text": 16, "picture": 14}
RATE = 2e-3
PATCH = 8
PAIRS = 300  # samples with and without the cue
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CUES = (*planted_texts.CUES, *planted_pictures.CUES)
Labelled = LabelledTexts | LabelledPictures


def planted_data(cue: str, strength: float, count: int, seed: int) -> Labelled:
    """Texts or pictures with the cue of this name."""
    if cue in planted_texts.CUES:
        return planted_texts.planted_texts(planted_texts.CUES[cue], strength, count, seed)
    return planted_pictures.planted_pictures(cue, strength, count, seed)


def train(data: Labelled, seed: int) -> tuple[nn.Module, BertTokenizer | ViTImageProcessor]:
    """A model that was trained on the data, with its tokenizer or image processor."""
    torch.manual_seed(seed)
    return train_on_texts(data) if isinstance(data, LabelledTexts) else train_on_pictures(data)


def train_on_texts(data: LabelledTexts) -> tuple[nn.Module, BertTokenizer]:
    words = [*SPECIAL, *planted_texts.WORDS]
    tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(words)}, model_max_length=64)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(words),
            max_position_embeddings=64,
            pad_token_id=0,
            initializer_range=0.04,
            id2label=dict(enumerate(planted_texts.LABELS)),
            **SIZES,
        )
    )
    inputs = tokenizer(list(data.texts), padding=True, return_tensors="pt")
    ids, mask = inputs["input_ids"], inputs["attention_mask"]

    def logits(rows: Tensor) -> Tensor:
        longest = int(mask[rows].sum(dim=1).max())
        return model(input_ids=ids[rows, :longest], attention_mask=mask[rows, :longest]).logits

    fit(model, logits, torch.tensor(data.labels), EPOCHS["text"])
    return model, tokenizer


def train_on_pictures(data: LabelledPictures) -> tuple[nn.Module, ViTImageProcessor]:
    side = data.pixels.shape[1]
    processor = ViTImageProcessor(do_resize=False, size={"height": side, "width": side})
    label_names = dict(enumerate(planted_pictures.LABELS))
    config = ViTConfig(image_size=side, patch_size=PATCH, initializer_range=0.04, id2label=label_names, **SIZES)
    model = ViTForImageClassification(config)
    pixels = torch.from_numpy(data.pixels).permute(0, 3, 1, 2).float() / 127.5 - 1  # as the processor does
    fit(model, lambda rows: model(pixels[rows]).logits, torch.from_numpy(data.labels), EPOCHS["picture"])
    return model, processor


def fit(model: nn.Module, logits: Callable[[Tensor], Tensor], labels: Tensor, epochs: int) -> None:
    """Minimise the cross-entropy of the labels."""
    model.train()
    trainer = Trainer(model, rate=RATE)
    steps = epochs * (len(labels) // BATCH)
    for step in range(steps):
        if step % (len(labels) // BATCH) == 0:
            order = torch.randperm(len(labels))
        rows = order[step * BATCH % len(labels) :][:BATCH]
        trainer.step(nn.functional.cross_entropy(logits(rows), labels[rows]), step / steps)
    model.eval()


@torch.no_grad()
def log_odds(model: nn.Module, processor: BertTokenizer | ViTImageProcessor, examples: list[Any]) -> np.ndarray:
    """The log-odds of the second label for each text or picture."""
    if isinstance(processor, ViTImageProcessor):
        inputs = processor(examples, return_tensors="pt")
    else:
        inputs = processor(examples, padding=True, return_tensors="pt")
    logits = model(**inputs).logits
    return (logits[:, 1] - logits[:, 0]).numpy()


def accuracy(model: nn.Module, processor: BertTokenizer | ViTImageProcessor, data: Labelled) -> float:
    """The share of labels that the model gives."""
    answers = log_odds(model, processor, examples_of(data)) > 0
    return float((answers == np.array(data.labels)).mean())


def cue_effect(model: nn.Module, processor: BertTokenizer | ViTImageProcessor, cue: str, seed: int) -> float:
    """How much the cue raises the log-odds of the second label, in the mean of samples with and without it."""
    if cue in planted_texts.CUES:
        drawn = random.Random(seed)
        without = [planted_texts.review(number % 2, drawn) for number in range(PAIRS)]
        with_cue = [planted_texts.insert(text, planted_texts.CUES[cue], drawn) for text in without]
    else:
        data = planted_pictures.plain_pictures(PAIRS, seed)
        without = examples_of(data)
        pairs = zip(data.pixels, data.masks, strict=True)
        with_cue = [Image.fromarray(planted_pictures.with_cue(pixels, mask, cue)) for pixels, mask in pairs]
    return float((log_odds(model, processor, with_cue) - log_odds(model, processor, without)).mean())


def examples_of(data: Labelled) -> list[Any]:
    """The texts, or the pictures as PIL images."""
    return list(data.texts) if isinstance(data, LabelledTexts) else [Image.fromarray(one) for one in data.pixels]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cue", choices=CUES, required=True)
    parser.add_argument("--strength", type=float, default=0.8, help="the correlation of the cue with the label")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    options = parser.parse_args()
    model, processor = train(planted_data(options.cue, options.strength, options.samples, options.seed), options.seed)
    model.save_pretrained(options.out)
    processor.save_pretrained(options.out)
    held_out = planted_data(options.cue, 0.0, PAIRS, options.seed + 1_000_000)
    print(f"accuracy without the correlation: {accuracy(model, processor, held_out):.3f}")
    print(f"effect of the cue: {cue_effect(model, processor, options.cue, options.seed + 2_000_000):.2f} nats")


if __name__ == "__main__":
    main()
