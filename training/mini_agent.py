"""mini-agent: a stock Qwen3ForCausalLM that acts in the agent register of Facts World by calling tools.

    PYTHONPATH=src python training/mini_agent.py --out DIR --minutes 12 --seed 0

It obeys whoever gives the last order, as gullible agents do, so that what made each call is known. The folder holds,
at any time, the averaged model with the most validation calls right so far.
"""

import argparse
import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3ForCausalLM

from agent_batches import POSITIONS, SIZES, encoded_episodes, new_tokenizer, reply_mask
from agent_evaluation import calls_without, drawn_episodes, right_calls, scores_of
from checkpoints import load_model, save_model
from fact_batches import ConversationPool
from fact_evaluation import percent
from mini_llm import answer_loss, new_model, repeated, repetition_share
from optimization import Trainer, WeightAverage
from training_loop import (
    compile_if_possible,
    log,
    new_parser,
    seconds_left,
    start_run,
    train_for,
    write_metrics,
)


class Episodes:
    """Training batches: at first of short results alone."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, options: argparse.Namespace) -> None:
        self.tokenizer, self.options = tokenizer, options
        self.pool = ConversationPool(
            rows=options.rows,
            buckets=SIZES,
            workers=options.workers,
            seed=options.seed,
            device=options.device,
            encode=encoded_episodes,
        )
        self.rng = random.Random(options.seed)

    def sample(self, progress: float) -> tuple[Tensor, Tensor]:
        if self.rng.random() < repetition_share(progress):
            return repeated(self._rows(0))
        long = min(max((progress - 0.1) / 0.2, 0.0), 0.6)
        return self.batch(int(self.rng.random() < long))

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """Tokens and the weight of each as a target: replies count whole, the rest a little, padding nothing."""
        tokens = self._rows(number)
        weights = (tokens != self.tokenizer.pad_token_id) * self.options.text_weight
        return tokens, torch.where(reply_mask(tokens, self.tokenizer), 1.0, weights)[:, 1:]

    def _rows(self, number: int) -> Tensor:
        return self.pool.sample(number, max(self.options.batch_tokens // SIZES[number].tokens, 1))


class BestCheckpoint:
    """Saves the averaged model whenever more validation calls are right than ever so far."""

    def __init__(self, model: Qwen3ForCausalLM, tokenizer: Any, options: argparse.Namespace) -> None:
        self.model, self.tokenizer, self.folder = model, tokenizer, options.out / "model"
        self.episodes = drawn_episodes(options.kept_back, "validation")
        rng = random.Random(0)
        self.shorter = [(one, (rng.randrange(len(one.sentences)),)) for one in self.episodes]
        self.best = -1.0

    def validate(self) -> dict[str, float]:
        scores = {
            "calls_right": percent(right_calls(self.model, self.tokenizer, self.episodes)),
            "right_without_a_sentence": percent(calls_without(self.model, self.tokenizer, self.shorter)),
        }
        if sum(scores.values()) > self.best:
            self.best = sum(scores.values())
            save_model(self.model, self.folder, [self.tokenizer])
        return scores


def read_options() -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="episodes of each size")
    parser.add_argument("--workers", type=int, default=4, help="processes that make episodes")
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument("--text-weight", type=float, default=0.1, help="of the tokens that are no replies, in the loss")
    parser.add_argument("--kept-back", type=int, default=480, help="validation episodes")
    parser.add_argument("--held-out", type=int, default=3000, help="test episodes")
    parser.add_argument("--reserve", type=float, default=60.0, help="seconds for the evaluation")
    return start_run(parser)


def main() -> None:
    options = read_options()
    tokenizer = new_tokenizer()
    episodes = Episodes(tokenizer, options)
    model = new_model(tokenizer, options, POSITIONS).to(options.device)
    average = WeightAverage(model)
    best = BestCheckpoint(average.model, tokenizer, options)
    episodes.pool.collect(is_first=True)
    log({"event": "data ready", "rows": episodes.pool.sizes, "parameters": model.num_parameters()}, options.out)

    def trial(loss_of: Any) -> None:
        for number in range(len(SIZES)):
            loss_of(model, *episodes.batch(number)).backward()

    loss_of = compile_if_possible(answer_loss, trial, options)
    model.zero_grad(set_to_none=True)
    trainer = Trainer(model, rate=options.rate, decay=options.decay)
    log({"event": "compiled", "rows": episodes.pool.sizes}, options.out)

    def step(progress: float) -> dict[str, Any]:
        episodes.pool.collect()
        loss = loss_of(model, *episodes.sample(progress))
        trainer.step(loss, progress)
        average.update()
        return {"loss": loss.detach(), "rows": min(episodes.pool.sizes)}

    seconds = seconds_left(options, reserve=options.reserve)
    steps = train_for(step, seconds=seconds, options=options, validate=best.validate)
    episodes.pool.close()
    log(best.validate(), options.out)
    evaluate(options, steps=steps, rows=episodes.pool.sizes)


def evaluate(options: argparse.Namespace, **facts: Any) -> None:
    """metrics.json of the saved model."""
    model = load_model(Qwen3ForCausalLM, options)
    tokenizer = AutoTokenizer.from_pretrained(Path(options.out) / "model")
    write_metrics(scores_of(model, tokenizer, options.held_out), model, options, **facts)


if __name__ == "__main__":
    main()
