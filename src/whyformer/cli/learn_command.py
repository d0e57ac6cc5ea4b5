"""`whyformer learn`: the weights of a model's attention heads, for the method at2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whyformer.cli import command_options
from whyformer.cli.call_arguments import load_model
from whyformer.cli.command_options import OUTPUT
from whyformer.cli.console import announce, safe
from whyformer.errors import WhyformerError


def learn_command(
    model: Annotated[str, typer.Argument(help="A bundled model, a folder, or a Hugging Face id.")],
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="LOG.jsonl",
            help="Answers to learn from, in the form of `whyformer support`; by default generated questions, which the "
            "model answers.",
        ),
    ] = None,
    examples: Annotated[int, typer.Option(help="How many answers to learn from, at most those of the log.")] = 200,
    masks: Annotated[int, typer.Option(help="How many random choices of sources for each answer.")] = 32,
    seed: Annotated[int, typer.Option(help="The seed of these choices.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="A .safetensors file; by default where at2 finds it.", rich_help_panel=OUTPUT),
    ] = None,
    quiet: command_options.OnlyErrors = False,
    device: command_options.DeviceName = None,
    dtype: command_options.DtypeOption = None,
) -> None:
    """Learn which attention heads show where a response comes from; an interrupted run can be resumed."""
    from whyformer.api.learn_heads import LearningRun, generated_answers, learn_heads, logged_answers
    from whyformer.cli.output import check_out_file
    from whyformer.inputs.support_logs import read_support_log
    from whyformer.models.head_weights import heads_file, save_heads

    if out is not None:
        check_out_file(out, (".safetensors",))
    loaded_model = load_model(model, device=device, dtype=dtype, quiet=quiet)
    place = out or heads_file(loaded_model.model)
    text, replies = f"{examples} generated questions", generated_answers(loaded_model, examples)
    if data is not None:
        answers, errors = read_support_log(data)
        if errors:
            raise WhyformerError(f"{safe(data)}, {errors[0]}")
        examples = min(examples, len(answers))
        text, replies = f"{examples} answers of {data.name}", logged_answers(loaded_model, answers)
    run = LearningRun(loaded_model, text, masks, seed, place.with_suffix(".part.safetensors"))
    weights = learn_heads(run, replies, examples, progress=not quiet)
    save_heads(weights, place)
    if not quiet:
        learned, mean = (weights.facts[name] for name in ("correlation", "correlation_of_mean_attention"))
        typer.echo(f"correlation with removal, held out: {learned:.2f}; of the mean of all heads: {mean:.2f}")
    announce(f"Written to {safe(place)}", quiet=quiet)
