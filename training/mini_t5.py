"""mini-t5: a stock T5ForConditionalGeneration that answers questions about a described scene in a short sentence.

    PYTHONPATH=src python training/mini_t5.py --out DIR --minutes 9 --seed 0

It reads "what colour is the circle? a small red circle at the top left. ..." and writes "the circle is red".
The scenes are those of Shapes World, drawn anew for every batch; no test scene is among those it trains on.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import Generator, Tensor
from torch.nn import functional as F
from transformers import AutoTokenizer, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from checkpoints import load_model, save_model
from optimization import Trainer, WeightAverage
from training_loop import (
    compile_if_possible,
    log,
    mixed_precision,
    new_parser,
    seconds_left,
    start_run,
    train_for,
    write_metrics,
)
from vqa_baselines import best_guess_from_question
from whyformer.scenes import KINDS, WORDS, descriptions, questions, sample, texts

PAD, END = 0, 1
BATCHES_PER_DRAW = 8  # the scenes of so many batches are drawn at once
QUESTIONS_PER_SCENE = 4
SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
FIRST_WORD = len(SPECIAL) - 1  # plus the index in WORDS, whose first is nothing, gives a word's id


def new_tokenizer() -> PreTrainedTokenizerFast:
    """Word by word, with </s> at the end; a pair is read as one text, the question first."""
    vocabulary = dict(zip((*SPECIAL.values(), *WORDS[1:]), range(len(SPECIAL) + len(WORDS) - 1), strict=True))
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A $B </s>", special_tokens=[("</s>", END)]
    )
    words.decoder = decoders.WordPiece(cleanup=True)  # no space in front of a full stop
    return PreTrainedTokenizerFast(
        tokenizer_object=words, model_input_names=["input_ids", "attention_mask"], model_max_length=128, **SPECIAL
    )


def new_model(tokenizer: PreTrainedTokenizerFast) -> T5ForConditionalGeneration:
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=len(tokenizer),
            d_model=128,
            d_kv=32,
            d_ff=256,
            num_layers=4,
            num_heads=4,
            dropout_rate=0.0,  # the data never repeat
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=PAD,
        )
    )


def encode(*sentences: Tensor) -> Tensor:
    """Words one sentence after another as the tokenizer encodes the strings: </s> last, then padding."""
    words = torch.cat(sentences, dim=1)
    ids = F.pad(torch.where(words > 0, words + FIRST_WORD, PAD), (0, 1), value=END)
    return ids.gather(1, (ids == PAD).long().argsort(dim=1, stable=True))


def training_batches(options: argparse.Namespace) -> Iterator[tuple[Tensor, Tensor]]:
    """Source and target ids of the training split, without end: many scenes at once, each asked about a few times."""
    rng = Generator(options.device).manual_seed(options.seed)
    while True:
        scenes = sample(BATCHES_PER_DRAW * options.batch, "train", rng=rng)
        description = descriptions(scenes).words
        for _ in range(QUESTIONS_PER_SCENE):
            about = questions(scenes, rng)
            pairs = (encode(about.words, description), encode(about.replies))
            yield from zip(*(part.split(options.batch) for part in pairs), strict=True)


def reply_loss(model: T5ForConditionalGeneration, source: Tensor, target: Tensor) -> Tensor:
    """The cross-entropy of the reply's words."""
    labels = target.masked_fill(target == PAD, -100)
    with mixed_precision(source.device):
        logits = model(input_ids=source, attention_mask=(source != PAD).long(), labels=labels).logits
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


@torch.no_grad()
def exact_matches(model: Any, tokenizer: Any, sources: list[str], replies: list[str], *, batch: int = 1024) -> Tensor:
    """Whether the likeliest sentence, word by word, is the reply."""
    outputs: list[str] = []
    for start in range(0, len(sources), batch):
        inputs = tokenizer(sources[start : start + batch], padding=True, return_tensors="pt").to(model.device)
        ids = model.generate(**inputs, do_sample=False, max_new_tokens=12)
        outputs += tokenizer.batch_decode(ids, skip_special_tokens=True)
    return torch.tensor([ours == theirs for ours, theirs in zip(outputs, replies, strict=True)])


class Evaluation:
    """Questions about held-out scenes, with and without their descriptions."""

    def __init__(self, split: str, count: int, options: argparse.Namespace) -> None:
        rng = Generator(options.device).manual_seed(options.seed)
        self.scenes = sample(count, split, rng=rng)
        about = questions(self.scenes, rng)
        self.kind, self.questions, self.replies = about.kind.cpu(), texts(about.words), texts(about.replies)
        scene_texts = texts(descriptions(self.scenes).words)
        self.sources = [f"{question} {text}" for question, text in zip(self.questions, scene_texts, strict=True)]

    def scores(self, model: Any, tokenizer: Any) -> dict[str, dict[str, float]]:
        return {
            "exact_match": self._by_kind(exact_matches(model, tokenizer, self.sources, self.replies)),
            "without_description": self._by_kind(exact_matches(model, tokenizer, self.questions, self.replies)),
            "best_guess_from_the_question": best_guess_from_question(self.scenes),
        }

    def _by_kind(self, correct: Tensor) -> dict[str, float]:
        """In percent, of all questions and of each kind."""
        kinds = {name: correct[self.kind == kind] for kind, name in enumerate(KINDS)}
        return {name: 100 * float(part.float().mean()) for name, part in {"all": correct, **kinds}.items()}


def read_options() -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("--batch", type=int, default=512, help="questions")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--test-questions", type=int, default=5000)
    return start_run(parser)


def main() -> None:
    options = read_options()
    tokenizer = new_tokenizer()
    model = new_model(tokenizer).to(options.device)
    average = WeightAverage(model)
    trainer = Trainer(model, rate=options.rate)
    validation = Evaluation("val", min(512, options.test_questions), options)

    batches = training_batches(options)
    trial = next(batches)
    loss_of = compile_if_possible(reply_loss, lambda loss_of: loss_of(model, *trial).backward(), options)
    model.zero_grad(set_to_none=True)

    def step(progress: float) -> dict[str, Tensor]:
        loss = loss_of(model, *next(batches))
        trainer.step(loss, progress)
        average.update()
        return {"loss": loss.detach()}

    def validate() -> dict[str, float]:
        correct = exact_matches(average.model, tokenizer, validation.sources, validation.replies)
        return {"exact_match": 100 * float(correct.float().mean())}

    steps = train_for(step, seconds=seconds_left(options, reserve=30), options=options, validate=validate)
    save_model(average.model, options.out / "model", [tokenizer])

    model = load_model(T5ForConditionalGeneration, options)
    evaluation = Evaluation("test", options.test_questions, options)
    scores = evaluation.scores(model, AutoTokenizer.from_pretrained(options.out / "model"))
    log({"example": evaluation.sources[0], "reply": evaluation.replies[0]}, options.out)
    write_metrics(scores, model, options, steps=steps, questions_seen=steps * options.batch)


if __name__ == "__main__":
    main()
