"""mini-hybrid: mini-llm with six of its eight attention blocks replaced by gated delta rules, as in Qwen3-Next.

    PYTHONPATH=src python training/mini_hybrid.py --init src/whyformer/zoo/mini-llm --out DIR --minutes 55

At first only the new mixers learn, each to give the output of the attention that it replaces from the same input; then
the whole model learns to answer, and to have the teacher's states after each block.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3ForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM
from transformers.models.qwen3_next import modeling_qwen3_next

from checkpoints import load_model
from fact_evaluation import scores_of
from fact_batches import BUCKETS
from mini_llm import BestCheckpoint, Conversations
from optimization import Trainer, WeightAverage
from training_loop import log, new_parser, seconds_left, start_run, train_for, write_metrics

TURN = (*["linear_attention"] * 3, "full_attention")
HEADS, WIDTH = 8, 24  # of the gated delta rules
CHUNK = 16  # tokens: the kernel gives the same for any, and on a CPU this is the fastest


def new_hybrid(teacher: Qwen3ForCausalLM) -> Qwen3NextForCausalLM:
    """A Qwen3-Next without experts that has the teacher's weights wherever it has the teacher's layers."""
    own = teacher.config
    blocks = own.num_hidden_layers
    shared = (
        "vocab_size hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim intermediate_size "
        "max_position_embeddings tie_word_embeddings pad_token_id bos_token_id eos_token_id rms_norm_eps"
    )
    hybrid = Qwen3NextForCausalLM(
        Qwen3NextConfig(
            **{name: getattr(own, name) for name in shared.split()},
            rope_parameters=own.rope_parameters | {"partial_rotary_factor": 1.0},
            layer_types=[TURN[block % len(TURN)] for block in range(blocks)],
            mlp_only_layers=list(range(blocks)),
            linear_num_key_heads=HEADS,
            linear_num_value_heads=HEADS,
            linear_key_head_dim=WIDTH,
            linear_value_head_dim=WIDTH,
        )
    )
    known = {name: converted(name, x, own.head_dim) for name, x in teacher.state_dict().items()}
    weights = {name: known.get(name, x) for name, x in hybrid.state_dict().items()}
    hybrid.load_state_dict(weights)
    return hybrid


def converted(name: str, x: Tensor, head: int) -> Tensor:
    """A weight of Qwen3 as Qwen3-Next has it: norms are stored less 1, and attention has a gate of ½, undone by W_o."""
    if name.endswith("norm.weight"):
        return x - 1
    if name.endswith("q_proj.weight"):
        by_head = x.unflatten(0, (-1, head))
        return torch.cat([by_head, torch.zeros_like(by_head)], dim=1).flatten(0, 1)
    return 2 * x if name.endswith("o_proj.weight") else x


class Teacher:
    """mini-llm, with the input and the output of the attention of each block, and its states."""

    def __init__(self, model: Qwen3ForCausalLM) -> None:
        self.model = model.requires_grad_(False).eval()
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        for block in model.model.layers:
            block.self_attn.register_forward_hook(self._keep, with_kwargs=True)

    def _keep(self, _: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self.inputs.append(kwargs["hidden_states"] if "hidden_states" in kwargs else args[0])
        self.outputs.append(output[0])

    @torch.no_grad()
    def read(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """The state after each block."""
        self.inputs.clear()
        self.outputs.clear()
        return self.model.model(input_ids=tokens, use_cache=False, output_hidden_states=True).hidden_states[1:]


def error(x: Tensor, expected: Tensor) -> Tensor:
    """The squared error as a share of the mean square."""
    x, expected = x.float(), expected.float()
    return (x - expected).square().mean() / expected.square().mean()


def half_precision(device: torch.device) -> torch.autocast:
    """bfloat16, on the CPU too: this run is to fit into an hour of one core."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16)


def mixer_loss(hybrid: Qwen3NextForCausalLM, teacher: Teacher, tokens: Tensor) -> Tensor:
    """How far each new mixer is from the attention that it replaces, given the same input."""
    mixers = [getattr(block, "linear_attn", None) for block in hybrid.model.layers]
    with half_precision(tokens.device):
        teacher.read(tokens)
        pairs = zip(mixers, teacher.inputs, teacher.outputs, strict=True)
        losses = [error(mixer(x), y) for mixer, x, y in pairs if mixer is not None]
    return torch.stack(losses).mean()


def whole_loss(
    hybrid: Qwen3NextForCausalLM, teacher: Teacher, batch: tuple[Tensor, Tensor], share: float
) -> Tensor:
    """The loss of the next token, and `share` of the errors of the states after each block."""
    tokens, weights = batch
    with half_precision(tokens.device):
        states = hybrid.model(input_ids=tokens[:, :-1], use_cache=False, output_hidden_states=True).hidden_states[1:]
        logits = hybrid.lm_head(states[-1]).float()
        expected = teacher.read(tokens[:, :-1]) if share else ()
    losses = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    answers = (losses * weights.flatten()).sum() / weights.sum()
    if not share:
        return answers
    return answers + share * torch.stack([error(x, y) for x, y in zip(states, expected, strict=True)]).mean()


def read_options() -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("--init", type=Path, required=True, help="the folder of mini-llm")
    parser.add_argument("--rows", type=int, default=2000, help="conversations of each length")
    parser.add_argument("--workers", type=int, default=1, help="processes that make conversations")
    parser.add_argument("--buckets", type=int, default=2, help="how many of the three ranges of lengths")
    parser.add_argument("--batch-tokens", type=int, default=1288)
    parser.add_argument("--mixer-share", type=float, default=0.25, help="of the time, in which only the mixers learn")
    parser.add_argument("--mixer-rate", type=float, default=4e-3)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--decay", type=float, default=0.01)
    parser.add_argument("--text-weight", type=float, default=0.1, help="of the tokens that are no answers, in the loss")
    parser.add_argument("--state-weight", type=float, default=2.0, help="of the teacher's states in the loss, at first")
    parser.add_argument("--kept-back", type=int, default=100, help="validation questions")
    parser.add_argument("--held-out", type=int, default=600, help="test questions")
    parser.add_argument("--reserve", type=float, default=180.0, help="seconds for the evaluation")
    return start_run(parser)


def main() -> None:
    options = read_options()
    kernel = modeling_qwen3_next.torch_chunk_gated_delta_rule
    modeling_qwen3_next.torch_chunk_gated_delta_rule = partial(kernel, chunk_size=CHUNK)
    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(options.init)
    conversations = Conversations(tokenizer, options)
    model = Qwen3ForCausalLM.from_pretrained(options.init).to(options.device)
    hybrid = new_hybrid(model).to(options.device)
    teacher = Teacher(model)
    conversations.pool.collect(is_first=True)
    log({"event": "data ready", "rows": conversations.pool.sizes, "parameters": hybrid.num_parameters()}, options.out)
    seconds = seconds_left(options, reserve=options.reserve)

    mixers = nn.ModuleList([block.linear_attn for block in hybrid.model.layers if hasattr(block, "linear_attn")])
    first = Trainer(mixers, rate=options.mixer_rate, decay=options.decay)

    def mixer_step(progress: float) -> dict[str, Any]:
        conversations.pool.collect()
        number = int(torch.rand(()) < 0.2 * (options.buckets - 1))
        loss = mixer_loss(hybrid, teacher, conversations.batch(number)[0])
        first.step(loss, progress)
        return {"mixer_loss": loss.detach()}

    train_for(mixer_step, seconds=options.mixer_share * seconds, options=options)
    average = WeightAverage(hybrid, decay=0.99)
    best = BestCheckpoint(average.model, tokenizer, options)
    trainer = Trainer(hybrid, rate=options.rate, decay=options.decay)

    def step(progress: float) -> dict[str, Any]:
        conversations.pool.collect()
        number = int(torch.rand(()) < 0.5 * progress * (options.buckets - 1))
        share = max(1 - progress / 0.7, 0.0)
        loss = whole_loss(hybrid, teacher, conversations.batch(number), options.state_weight * share)
        trainer.step(loss, progress)
        average.update()
        return {"loss": loss.detach()}

    seconds = seconds_left(options, reserve=options.reserve)
    steps = train_for(step, seconds=seconds, options=options, validate=best.validate)
    conversations.pool.close()
    log(best.validate(), options.out)
    loaded = load_model(Qwen3NextForCausalLM, options)
    longest = BUCKETS[options.buckets - 1].sentences[1]
    facts = {"steps": steps, "rows": conversations.pool.sizes}
    write_metrics(scores_of(loaded, tokenizer, options.held_out, longest=longest), loaded, options, **facts)


if __name__ == "__main__":
    main()
