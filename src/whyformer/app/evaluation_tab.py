"""The tab Evaluate: measure methods on a visitor's own examples."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from whyformer.api.attribute import DEFAULT_METHOD
from whyformer.app.code import Code, Expression, call, command
from whyformer.app.models import Tab
from whyformer.app.setup import Setup
from whyformer.app.tab_view import TabView, framed
from whyformer.app.uploads import read_upload
from whyformer.app.work import Work
from whyformer.benchmark import evaluate
from whyformer.errors import WhyformerError
from whyformer.render.canvas import stack

MEASURED_TABS: tuple[Tab, ...] = ("Text", "Picture", "Picture + text")
TAB_PROTOCOLS = {"texts": ["text_perturbation"], "pictures": ["image_perturbation"], "scenes": ["vqa_removal"]}
EVALUATED = (DEFAULT_METHOD, "rollout", "generic_attention")  # by default
SCENE_MODELS = ("mini-visualbert", "mini-lxmert")
SEED, SHARD = 11, 4  # of the drawn scenes; samples between two updates of the progress


@dataclass(frozen=True)
class EvaluationInputs:
    """Inputs of an evaluation.

    Attributes:
        model: The model's name.
        texts: For a model that reads texts, one text per line.
        pictures: For a model that reads pictures, files of pictures.
        scenes: For mini-visualbert and mini-lxmert, the number of drawn scenes.
        methods: The methods; the control `random` is always added.
    """

    model: str
    texts: str = ""
    pictures: Sequence[str] = ()
    scenes: int = 8
    methods: Sequence[str] = EVALUATED


def measure(work: Work, setup: Setup, inputs: EvaluationInputs) -> TabView:
    """The report of an evaluation: how fast the answer falls when the parts that a method found are removed."""
    limits = setup.limits
    if not inputs.methods:
        raise WhyformerError("Choose at least one method.")
    limits.check_count("methods", len(inputs.methods), limits.methods)
    name, loaded_model = (
        setup.models.name(inputs.model, *MEASURED_TABS),
        setup.models.open(inputs.model, *MEASURED_TABS),
    )
    if loaded_model.task.sees_regions and name in SCENE_MODELS:
        if inputs.scenes < 2:
            raise WhyformerError("Choose at least two scenes.")
        limits.check_count("scenes", inputs.scenes, limits.examples)
        kind, data, written = "scenes", ("scenes", {"count": inputs.scenes, "seed": SEED}), None
    elif loaded_model.task.sees_pictures and not loaded_model.task.reads_text:
        kind, (data, written) = "pictures", _pictures(inputs, setup)
    elif loaded_model.task.sees is None:
        kind, (data, written) = "texts", _texts(inputs, setup)
    else:
        raise WhyformerError(f"{name} is evaluated from Python or by a suite: docs/guides/evaluation.md shows how.")
    protocols, methods = TAB_PROTOCOLS[kind], list(inputs.methods)
    work.step(0, 1, f"{loaded_model.name} is measured")

    def watch(done: int, total: int) -> None:
        work.step(done, total, f"{len(methods) + 1} methods on {loaded_model.name}")

    settings: dict[str, Any] = {"seed": SEED, "shard_size": SHARD, "watch": watch}
    result = evaluate(loaded_model, data, methods, protocols, **settings)
    with tempfile.TemporaryDirectory(prefix="whyformer-app-") as folder:
        page = result.report(folder)
        files = {".html": page.read_bytes(), ".json": (page.parent / "results.json").read_bytes()}
        charts = [Image.open(path).convert("RGB") for path in sorted(page.parent.glob("curves/*.png"))]
    writers = {suffix: _writer(content) for suffix, content in files.items()}
    if charts:
        writers[".png"] = lambda path: stack(charts, gap=16).save(path, "PNG")
    return TabView(
        framed(files[".html"].decode(), "The report"), _code(name, data, written, methods, protocols), writers
    )


def _texts(inputs: EvaluationInputs, setup: Setup) -> tuple[Any, Any]:
    texts = [line.strip() for line in inputs.texts.splitlines() if line.strip()]
    if not texts:
        raise WhyformerError("Type texts first, one per line, or click an example.")
    setup.limits.check_count("texts", len(texts), setup.limits.examples)
    setup.limits.check_texts(*texts)
    return texts, texts


def _pictures(inputs: EvaluationInputs, setup: Setup) -> tuple[Any, Any]:
    if not inputs.pictures:
        raise WhyformerError("Send pictures first, or click an example.")
    setup.limits.check_count("pictures", len(inputs.pictures), setup.limits.examples)
    return [read_upload(path, setup.limits) for path in inputs.pictures], [Path(path).name for path in inputs.pictures]


def _writer(content: bytes) -> Any:
    return lambda path: path.write_bytes(content)


def _code(model: str, data: Any, written: Any, methods: list[str], protocols: list[str]) -> Code:
    """The evaluation in Python, and as a suite; pictures outside folders of classes have no reader, only Python."""
    lines = ["from whyformer import evaluate", ""]
    examples: Any = data if written is None else written
    if examples is not data:
        lines = ["from PIL import Image", *lines]
        examples = Expression(f"[Image.open(name) for name in {written!r}]")
    evaluation = call("evaluate", model, examples, methods, protocols, seed=SEED)
    python = "\n".join([*lines, f"result = {evaluation}", "print(result)", 'result.report("report")'])
    if examples is not data:
        return Code(python, f"python -c {shlex.quote(python)}")
    files = {}
    source = {"reader": data[0], **data[1]} if written is None else {"reader": "table", "path": "texts.jsonl"}
    if written is not None:
        files["texts.jsonl"] = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in written)
    suite = [f"model = {json.dumps(model)}", f"methods = {json.dumps(methods)}", f"protocols = {json.dumps(protocols)}"]
    suite += [f"seed = {SEED}", "[data]", *(f"{key} = {json.dumps(value)}" for key, value in source.items())]
    files["suite.toml"] = "\n".join(suite) + "\n"
    writing = [f"printf %s {shlex.quote(content)} > {name}" for name, content in files.items()]
    typed = [command("evaluate", "suite.toml", out="results"), command("report", "results")]
    return Code(python, "\n".join([*writing, *typed]))
