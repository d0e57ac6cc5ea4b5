"""mini-gpt: a stock LlamaForCausalLM that continues film reviews, with its own byte-level BPE vocabulary.

    python training/mini_gpt.py --data DIR --out DIR --minutes 9 --seed 0

It reads the 25,000 training reviews of IMDB, some of them kept back to choose the epoch by, and is scored on the
test reviews. The folder holds, at any time, the running average that foretells those kept back best.
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

import course
from course import say
from texts import imdb, sentences_of

PIECES = 6000
POSITIONS = 512
PROMPTS = ("The film was", "I watched this movie with my", "The acting is")
SPECIAL = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"}


def new_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE as in GPT-2, with <bos> in front of every text."""
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pieces.train_from_iterator(texts, trainer, length=len(texts))
    begin = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B:1", special_tokens=[("<bos>", pieces.token_to_id("<bos>"))]
    )
    pieces.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), begin])
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces,
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
    """On the embeddings and on what each block adds to the stream: Llama's configuration offers neither."""

    def dropped(module: nn.Module, _: Any, output: Tensor) -> Tensor:
        return F.dropout(output, share, module.training)

    model.model.embed_tokens.register_forward_hook(dropped)
    for block in model.model.layers:
        block.self_attn.o_proj.register_forward_hook(dropped)
        block.mlp.down_proj.register_forward_hook(dropped)


class Stream:
    """All reviews one after another, in random order, and windows of it: half begin with a review, half anywhere."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, texts: list[str], options: argparse.Namespace) -> None:
        texts = random.Random(options.seed).sample(texts, len(texts))
        ended = [torch.tensor([*ids, tokenizer.eos_token_id]) for ids in tokenizer(texts, verbose=False)["input_ids"]]
        self.tokens = torch.cat(ended).to(options.device)
        self.last_start = len(self.tokens) - POSITIONS - 1
        starts = torch.nonzero(self.tokens == tokenizer.bos_token_id).squeeze(1)
        self.reviews = starts[starts <= self.last_start]
        self.rng = torch.Generator(options.device).manual_seed(options.seed)
        self.offsets = torch.arange(POSITIONS + 1, device=options.device)

    def windows(self, count: int) -> Tensor:
        anywhere = self._random(self.last_start + 1, count - count // 2)
        at_reviews = self.reviews[self._random(len(self.reviews), count // 2)]
        return self.tokens[torch.cat([anywhere, at_reviews])[:, None] + self.offsets]

    def _random(self, below: int, count: int) -> Tensor:
        return torch.randint(below, (count,), generator=self.rng, device=self.tokens.device)


def next_token_loss(model: LlamaForCausalLM, windows: Tensor) -> Tensor:
    with torch.autocast(windows.device.type, dtype=torch.bfloat16, enabled=windows.is_cuda):
        logits = model(input_ids=windows[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def foretelling(model: LlamaForCausalLM, tokenizer: Any, texts: list[str], *, batch: int = 64) -> dict[str, float]:
    """How well the next token is foretold, and the next word: each text alone, its first 512 tokens."""
    surprise = right = tokens = words = 0.0
    texts = sorted(texts, key=len)
    for some in (texts[start : start + batch] for start in range(0, len(texts), batch)):
        encoded = tokenizer(some, truncation=True, padding=True, return_offsets_mapping=True, return_tensors="pt")
        ends = encoded.pop("offset_mapping")[..., 1].amax(dim=1).tolist()
        encoded = encoded.to(model.device)
        logits = model(**encoded, use_cache=False).logits[:, :-1].float()
        targets = encoded["input_ids"][:, 1:].masked_fill(encoded["attention_mask"][:, 1:] == 0, -100)
        surprise += float(F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum"))
        right += float((logits.argmax(dim=-1) == targets).sum())
        tokens += float((targets >= 0).sum())
        words += sum(len(text[:end].split()) for text, end in zip(some, ends, strict=True))
    return {
        "perplexity_per_token": math.exp(surprise / tokens),
        "perplexity_per_word": math.exp(surprise / words),
        "next_token_accuracy": 100 * right / tokens,
        "tokens_per_word": tokens / words,
    }


def continuations(model: LlamaForCausalLM, tokenizer: Any, *, seed: int) -> dict[str, dict[str, str]]:
    """Of the prompts: the likeliest token each time, and one sample at temperature 0.7."""
    ways = {"greedy": {"do_sample": False}, "sampled": {"do_sample": True, "temperature": 0.7, "top_k": 0}}
    told: dict[str, dict[str, str]] = {}
    torch.manual_seed(seed)
    for prompt in PROMPTS:
        encoded = tokenizer(prompt, return_tensors="pt").to(model.device)
        told[prompt] = {}
        for way, choice in ways.items():
            ids = model.generate(**encoded, max_new_tokens=60, **choice)[0]
            told[prompt][way] = tokenizer.decode(ids, skip_special_tokens=True)
    return told


class Best:
    """Saves the running average whenever it foretells the reviews kept back better than before."""

    def __init__(self, model: LlamaForCausalLM, tokenizer: Any, kept_back: list[str], folder: Path) -> None:
        self.model, self.tokenizer, self.kept_back, self.folder = model, tokenizer, kept_back, folder
        self.perplexity = math.inf

    def probe(self) -> dict[str, float]:
        found = foretelling(self.model, self.tokenizer, self.kept_back)
        if found["perplexity_per_token"] < self.perplexity:
            self.perplexity = found["perplexity_per_token"]
            course.save(self.model, self.folder, [self.tokenizer])
        return {name: round(found[name], 3) for name in ("perplexity_per_token", "next_token_accuracy")}


def reviews(options: argparse.Namespace) -> tuple[list[str], list[str], list[str]]:
    """To learn from, to choose the epoch by, and to be scored on; one space between words."""
    known, kept_back = imdb(options.data, "train").parted(options.kept_back)
    _, held_out = imdb(options.data, "test").parted(options.held_out)
    parts = known, kept_back, held_out.without(sentences_of(known, kept_back))
    return tuple([" ".join(text.split()) for text in part.texts] for part in parts)


def options_of_the_call() -> argparse.Namespace:
    parser = course.options_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with imdb-train.jsonl.xz, imdb-test.jsonl.xz")
    parser.add_argument("--held-out", type=int, default=5000, help="test reviews to be scored on")
    parser.add_argument("--kept-back", type=int, default=500, help="training reviews to choose the epoch by")
    parser.add_argument("--batch", type=int, default=64, help="windows of 512 tokens")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.1)
    return course.begin(parser)


def main() -> None:
    options = options_of_the_call()
    known, kept_back, held_out = reviews(options)
    tokenizer = new_tokenizer(known)
    stream = Stream(tokenizer, known, options)
    model = new_model(tokenizer).to(options.device)
    say({"event": "data ready", "tokens": len(stream.tokens), "parameters": model.num_parameters()}, options.out)
    average = course.Average(model)
    add_dropout(model, options.dropout)
    trial = stream.windows(options.batch)
    loss_of = course.compiled(next_token_loss, lambda loss_of: loss_of(model, trial).backward(), options)
    model.zero_grad(set_to_none=True)
    trainer = course.Trainer(model, rate=options.rate, decay=options.decay)
    best = Best(average.model, tokenizer, kept_back, options.out / "model")

    def step(progress: float) -> dict[str, Tensor]:
        loss = loss_of(model, stream.windows(options.batch))
        trainer.step(loss, progress)
        average.update()
        return {"loss": loss.detach()}

    steps = course.follow(step, seconds=course.seconds_left(options, keep=45), options=options, probe=best.probe)
    say(best.probe(), options.out)

    model = course.reloaded(LlamaForCausalLM, options)
    tokenizer = AutoTokenizer.from_pretrained(options.out / "model")
    scores = foretelling(model, tokenizer, held_out)
    epochs = round(steps * options.batch * POSITIONS / len(stream.tokens), 1)
    told = continuations(model, tokenizer, seed=options.seed)
    facts = {"test_reviews": len(held_out), "steps": steps, "epochs": epochs}
    course.finish({**scores, "continuations": told}, model, options, **facts)


if __name__ == "__main__":
    main()
