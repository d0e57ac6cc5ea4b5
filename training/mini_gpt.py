"""mini-gpt: a stock LlamaForCausalLM that continues film reviews, with its own byte-level BPE vocabulary.

    python training/mini_gpt.py --data DIR --out DIR --minutes 9 --seed 0

It is trained on the 25,000 training reviews of IMDB, less some for validation, and scored on test reviews. The folder
holds, at any time, the averaged model with the lowest validation perplexity so far.
"""

import argparse
import math
import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from checkpoints import load_model, save_model
from optimization import Trainer, WeightAverage
from texts import imdb, sentences_of
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

VOCABULARY = 6000
POSITIONS = 512
PROMPTS = ("The film was", "I watched this movie with my", "The acting is")
SPECIAL = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"}


def new_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE as in GPT-2, with <bos> in front of every text."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer, length=len(texts))
    prepend_bos = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B:1", special_tokens=[("<bos>", backend.token_to_id("<bos>"))]
    )
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), prepend_bos])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **SPECIAL,
    )


def new_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=192,
            num_hidden_layers=6,
            num_attention_heads=6,
            num_key_value_heads=3,
            intermediate_size=512,
            max_position_embeddings=POSITIONS,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def add_dropout(model: LlamaForCausalLM, share: float) -> None:
    """On the embeddings and on what each block adds to the residual stream: Llama's configuration offers neither."""

    def drop(module: nn.Module, _: Any, output: Tensor) -> Tensor:
        return F.dropout(output, share, module.training)

    model.model.embed_tokens.register_forward_hook(drop)
    for block in model.model.layers:
        block.self_attn.o_proj.register_forward_hook(drop)
        block.mlp.down_proj.register_forward_hook(drop)


class TokenWindows:
    """Random windows of all reviews one after another: half of them begin with a review, half anywhere."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, texts: list[str], options: argparse.Namespace) -> None:
        texts = random.Random(options.seed).sample(texts, len(texts))
        reviews = [torch.tensor([*ids, tokenizer.eos_token_id]) for ids in tokenizer(texts, verbose=False)["input_ids"]]
        self.tokens = torch.cat(reviews).to(options.device)
        self.last_start = len(self.tokens) - POSITIONS - 1
        starts = torch.nonzero(self.tokens == tokenizer.bos_token_id).squeeze(1)
        self.review_starts = starts[starts <= self.last_start]
        self.rng = torch.Generator(options.device).manual_seed(options.seed)
        self.offsets = torch.arange(POSITIONS + 1, device=options.device)

    def sample(self, count: int) -> Tensor:
        """window, token: one token more than the model reads, for the last target."""
        anywhere = self._random(self.last_start + 1, count - count // 2)
        at_reviews = self.review_starts[self._random(len(self.review_starts), count // 2)]
        return self.tokens[torch.cat([anywhere, at_reviews])[:, None] + self.offsets]

    def _random(self, below: int, count: int) -> Tensor:
        return torch.randint(below, (count,), generator=self.rng, device=self.tokens.device)


def next_token_loss(model: LlamaForCausalLM, windows: Tensor) -> Tensor:
    """The mean cross-entropy of the next token."""
    with mixed_precision(windows.device):
        logits = model(input_ids=windows[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def language_model_scores(
    model: LlamaForCausalLM, tokenizer: Any, texts: list[str], *, batch: int = 64
) -> dict[str, float]:
    """Perplexity per token and per word, and the accuracy of the next token: each text alone, its first 512 tokens."""
    total_loss = correct = tokens = words = 0.0
    texts = sorted(texts, key=len)
    for part in (texts[start : start + batch] for start in range(0, len(texts), batch)):
        encoded = tokenizer(part, truncation=True, padding=True, return_offsets_mapping=True, return_tensors="pt")
        ends = encoded.pop("offset_mapping")[..., 1].amax(dim=1).tolist()
        encoded = encoded.to(model.device)
        logits = model(**encoded, use_cache=False).logits[:, :-1].float()
        targets = encoded["input_ids"][:, 1:].masked_fill(encoded["attention_mask"][:, 1:] == 0, -100)
        total_loss += float(F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum"))
        correct += float((logits.argmax(dim=-1) == targets).sum())
        tokens += float((targets >= 0).sum())
        words += sum(len(text[:end].split()) for text, end in zip(part, ends, strict=True))
    return {
        "perplexity_per_token": math.exp(total_loss / tokens),
        "perplexity_per_word": math.exp(total_loss / words),
        "next_token_accuracy": 100 * correct / tokens,
        "tokens_per_word": tokens / words,
    }


def continuations(model: LlamaForCausalLM, tokenizer: Any, *, seed: int) -> dict[str, dict[str, str]]:
    """Of each prompt: one by greedy decoding, and one sampled at temperature 0.7."""
    decodings = {"greedy": {"do_sample": False}, "sampled": {"do_sample": True, "temperature": 0.7, "top_k": 0}}
    outputs: dict[str, dict[str, str]] = {}
    torch.manual_seed(seed)
    for prompt in PROMPTS:
        encoded = tokenizer(prompt, return_tensors="pt").to(model.device)
        outputs[prompt] = {}
        for name, settings in decodings.items():
            ids = model.generate(**encoded, max_new_tokens=60, **settings)[0]
            outputs[prompt][name] = tokenizer.decode(ids, skip_special_tokens=True)
    return outputs


class BestCheckpoint:
    """Saves the averaged model whenever its validation perplexity is the lowest so far."""

    def __init__(self, model: LlamaForCausalLM, tokenizer: Any, validation: list[str], folder: Path) -> None:
        self.model, self.tokenizer, self.validation, self.folder = model, tokenizer, validation, folder
        self.perplexity = math.inf

    def validate(self) -> dict[str, float]:
        scores = language_model_scores(self.model, self.tokenizer, self.validation)
        if scores["perplexity_per_token"] < self.perplexity:
            self.perplexity = scores["perplexity_per_token"]
            save_model(self.model, self.folder, [self.tokenizer])
        return {name: round(scores[name], 3) for name in ("perplexity_per_token", "next_token_accuracy")}


def reviews(options: argparse.Namespace) -> tuple[list[str], list[str], list[str]]:
    """For training, validation and test, one space between words; no test review overlaps with the others."""
    train, validation = imdb(options.data, "train").split(options.kept_back)
    _, test = imdb(options.data, "test").split(options.held_out)
    parts = train, validation, test.without_overlap(sentences_of(train, validation))
    return tuple([" ".join(text.split()) for text in part.texts] for part in parts)


def read_options() -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with imdb-train.jsonl.xz, imdb-test.jsonl.xz")
    parser.add_argument("--held-out", type=int, default=5000, help="test reviews")
    parser.add_argument("--kept-back", type=int, default=500, help="training reviews for validation")
    parser.add_argument("--batch", type=int, default=64, help="windows of 512 tokens")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.1)
    return start_run(parser)


def main() -> None:
    options = read_options()
    train, validation, test = reviews(options)
    tokenizer = new_tokenizer(train)
    windows = TokenWindows(tokenizer, train, options)
    model = new_model(tokenizer).to(options.device)
    log({"event": "data ready", "tokens": len(windows.tokens), "parameters": model.num_parameters()}, options.out)
    average = WeightAverage(model)
    add_dropout(model, options.dropout)
    trial = windows.sample(options.batch)
    loss_of = compile_if_possible(next_token_loss, lambda loss_of: loss_of(model, trial).backward(), options)
    model.zero_grad(set_to_none=True)
    trainer = Trainer(model, rate=options.rate, decay=options.decay)
    best = BestCheckpoint(average.model, tokenizer, validation, options.out / "model")

    def step(progress: float) -> dict[str, Tensor]:
        loss = loss_of(model, windows.sample(options.batch))
        trainer.step(loss, progress)
        average.update()
        return {"loss": loss.detach()}

    steps = train_for(step, seconds=seconds_left(options, reserve=45), options=options, validate=best.validate)
    log(best.validate(), options.out)

    model = load_model(LlamaForCausalLM, options)
    tokenizer = AutoTokenizer.from_pretrained(options.out / "model")
    scores = language_model_scores(model, tokenizer, test)
    epochs = round(steps * options.batch * POSITIONS / len(windows.tokens), 1)
    texts = continuations(model, tokenizer, seed=options.seed)
    facts = {"test_reviews": len(test), "steps": steps, "epochs": epochs}
    write_metrics({**scores, "continuations": texts}, model, options, **facts)


if __name__ == "__main__":
    main()
