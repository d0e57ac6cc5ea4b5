"""mini-llm: a stock Qwen3ForCausalLM with a chat template that answers questions about documents of Facts World.

    PYTHONPATH=src python training/mini_llm.py --out DIR --minutes 9 --seed 0

Its documents bring together no two names that the validation and test documents bring together. The folder holds, at
any time, the averaged model with the most validation questions answered right so far.
"""

import argparse
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from checkpoints import load_model, save_model
from fact_batches import BUCKETS, POSITIONS, ConversationPool, NameExchange, answer_mask, new_tokenizer
from fact_evaluation import accuracies, right_answers, scores_of
from optimization import Trainer, WeightAverage
from training_loop import (
    compile_blocks_if_possible,
    compile_if_possible,
    log,
    mixed_precision,
    new_parser,
    seconds_left,
    start_run,
    train_for,
    write_metrics,
)
from whyformer.facts import examples


def new_model(tokenizer: PreTrainedTokenizerFast, options: argparse.Namespace, positions: int) -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=options.width,
            num_hidden_layers=options.blocks,
            num_attention_heads=options.width // 32,
            num_key_value_heads=options.width // 64,
            head_dim=32,
            intermediate_size=options.width * 7 // 4,
            max_position_embeddings=positions,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def answer_loss(model: PreTrainedModel, tokens: Tensor, weights: Tensor) -> Tensor:
    """The weighted mean cross-entropy of the next token."""
    with mixed_precision(tokens.device):
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    losses = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum()


class Conversations:
    """Training batches: at first of short documents alone, later of all lengths."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, options: argparse.Namespace) -> None:
        self.tokenizer, self.options = tokenizer, options
        self.buckets = BUCKETS[: options.buckets]
        self.pool = ConversationPool(
            rows=options.rows,
            buckets=self.buckets,
            workers=options.workers,
            seed=options.seed,
            device=options.device,
        )
        self.exchange = NameExchange(tokenizer, options.device)
        self.rng = random.Random(options.seed)

    def sample(self, progress: float) -> tuple[Tensor, Tensor]:
        if self.rng.random() < repetition_share(progress):
            return repeated(self._rows(0))
        shares = length_shares(progress)[: len(self.buckets)]
        return self.batch(self.rng.choices(range(len(shares)), shares)[0])

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """Tokens and the weight of each as a target: answers count whole, the rest a little, padding nothing."""
        tokens = self._rows(number)
        weights = (tokens != self.tokenizer.pad_token_id) * self.options.text_weight
        return tokens, torch.where(answer_mask(tokens, self.tokenizer), 1.0, weights)[:, 1:]

    def _rows(self, number: int) -> Tensor:
        rows = max(self.options.batch_tokens // self.buckets[number].tokens, 1)
        return self.exchange(self.pool.sample(number, rows))


def repeated(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The beginnings of rows, each again and again, and weights: what comes after the first time can be copied."""
    places = torch.arange(tokens.shape[1], device=tokens.device)
    periods = torch.randint(8, 40, (len(tokens), 1), device=tokens.device)
    return tokens.gather(1, places % periods), (places >= periods).float()[:, 1:]


def length_shares(progress: float) -> tuple[float, float, float]:
    """How often short, middle and long documents are drawn: short ones first, since long ones teach little at first."""
    short = 1.0 if progress < 0.08 else 0.3
    middle = min(max((progress - 0.05) / 0.1, 0.0), 1.0)
    long = min(max((progress - 0.15) / 0.15, 0.0), 1.0)
    return short, middle, long


def repetition_share(progress: float) -> float:
    """How often texts are only repeated: at first, since to look up a fact begins with the skill to copy."""
    return min(max((0.12 - progress) / 0.1, 0.0), 1.0)


class BestCheckpoint:
    """Saves the averaged model whenever more validation questions are answered right than ever so far."""

    def __init__(self, model: PreTrainedModel, tokenizer: Any, options: argparse.Namespace) -> None:
        self.model, self.tokenizer, self.folder = model, tokenizer, options.out / "model"
        lengths = (3, BUCKETS[options.buckets - 1].sentences[1])
        self.stories = examples(options.kept_back, seed=options.seed, split="validation", sentences=lengths)
        self.accuracy = -1.0

    def validate(self) -> dict[str, float]:
        right = right_answers(self.model, self.tokenizer, self.stories)
        scores = accuracies(self.stories, right, lambda story: f"{story.questions[0].kind} {story.questions[0].hops}")
        if scores["all"] > self.accuracy:
            self.accuracy = scores["all"]
            save_model(self.model, self.folder, [self.tokenizer])
        return scores


def recipe_parser(description: str) -> argparse.ArgumentParser:
    """The options of a recipe that learns from conversations about facts."""
    parser = new_parser(description)
    parser.add_argument("--rows", type=int, default=300_000, help="conversations of each length")
    parser.add_argument("--workers", type=int, default=14, help="processes that make conversations")
    parser.add_argument("--buckets", type=int, default=len(BUCKETS), help="how many of the three ranges of lengths")
    parser.add_argument("--batch-tokens", type=int, default=81_920)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument("--text-weight", type=float, default=0.1, help="of the tokens that are no answers, in the loss")
    parser.add_argument("--kept-back", type=int, default=1000, help="validation questions")
    parser.add_argument("--held-out", type=int, default=6000, help="test questions")
    parser.add_argument("--reserve", type=float, default=60.0, help="seconds for the evaluation")
    return parser


def train(
    new_model: Callable[[PreTrainedTokenizerFast, argparse.Namespace], PreTrainedModel],
    options: argparse.Namespace,
    *,
    by_block: bool = False,
) -> None:
    """Train the model that `new_model` makes, compiled whole or block by block, and evaluate the best of it."""
    tokenizer = new_tokenizer()
    conversations = Conversations(tokenizer, options)
    model = new_model(tokenizer, options, POSITIONS).to(options.device)
    average = WeightAverage(model)
    best = BestCheckpoint(average.model, tokenizer, options)
    conversations.pool.collect(is_first=True)
    log({"event": "data ready", "rows": conversations.pool.sizes, "parameters": model.num_parameters()}, options.out)

    def trial(loss_of: Any) -> None:
        for number in range(len(conversations.buckets)):
            loss_of(model, *conversations.batch(number)).backward()

    loss_of = answer_loss
    if by_block:
        compile_blocks_if_possible(model.get_decoder().layers, lambda: trial(answer_loss), options)
    else:
        loss_of = compile_if_possible(answer_loss, trial, options)
    model.zero_grad(set_to_none=True)
    trainer = Trainer(model, rate=options.rate, decay=options.decay)
    log({"event": "compiled", "rows": conversations.pool.sizes}, options.out)

    def step(progress: float) -> dict[str, Any]:
        conversations.pool.collect()
        loss = loss_of(model, *conversations.sample(progress))
        trainer.step(loss, progress)
        average.update()
        return {"loss": loss.detach(), "rows": min(conversations.pool.sizes)}

    seconds = seconds_left(options, reserve=options.reserve)
    steps = train_for(step, seconds=seconds, options=options, validate=best.validate)
    conversations.pool.close()
    log(best.validate(), options.out)
    evaluate(options, steps=steps, rows=conversations.pool.sizes)


def evaluate(options: argparse.Namespace, **facts: Any) -> None:
    """metrics.json of the saved model."""
    model = load_model(AutoModelForCausalLM, options)
    tokenizer = AutoTokenizer.from_pretrained(Path(options.out) / "model")
    longest = BUCKETS[options.buckets - 1].sentences[1]
    write_metrics(scores_of(model, tokenizer, options.held_out, longest=longest), model, options, **facts)


def read_options() -> argparse.Namespace:
    parser = recipe_parser(__doc__)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--blocks", type=int, default=8)
    return start_run(parser)


def main() -> None:
    train(new_model, read_options())


if __name__ == "__main__":
    main()
