"""Makes the pictures from real models, where `make real` has fetched them; each carries what it was made from.

python docs/real_pictures.py                # all of them
python docs/real_pictures.py real-photo     # those whose file names begin so
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from pictures import CAT, MOST_BYTES, PANEL, PICTURES, caption, panel, sources_picture, what_supports
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import whyformer
from whyformer.modalities.sound_picture import sound_picture
from whyformer.render import canvas
from whyformer.render.heatmaps import overlay

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from dinov2 import HEAD, read_head
from real_models import MODELS, model_folder

KEY = "made from"  # of the text that a picture carries
QUESTION = "When was the lighthouse of Skagen built?"
DOCUMENTS = [
    "The harbour of Hirtshals was built in 1929. It is busy in summer.",
    "The lighthouse of Skagen was built in 1858. Its keeper lives nearby.",
    "The church of Lild was built in 1747. A storm buried it in sand.",
]
SPOKEN, WORD = "The old farmer sold seven horses in London.", "horses"


@dataclass(frozen=True)
class RealPicture:
    """A drawing from a real model: the model's name, and the function that draws it and says what it drew."""

    model: str
    draw: Callable[[Path], tuple[Image.Image, Mapping[str, Any]]]


def reply(folder: Path) -> tuple[Image.Image, Mapping[str, Any]]:
    """A reply of the model's own with the sentences it comes from."""
    response = whyformer.explain_response(
        QUESTION, None, folder, "evidence", context=DOCUMENTS, tokens=24, sources="sentence"
    )
    bodies = []
    for row, span in enumerate(response.rows):
        bodies.append(canvas.label(f"“{span.text.strip()}” comes from", PANEL, 19, colour=canvas.INK))
        documents = [item for item in response.top(len(response.sources), row=row) if item.source.name != "user"]
        bodies += sources_picture(documents[:3], PANEL, 18)
    asked = canvas.paragraph(canvas.chips([(f"asked: {QUESTION}", None)]), PANEL, 18)
    drawn = {"method": response.method, "asked": QUESTION, "written": response.text.strip()}
    return panel("SmolLM2: a reply", *bodies, asked), drawn


def sound(folder: Path) -> tuple[Image.Image, Mapping[str, Any]]:
    """A word in a sound, with the time when it is spoken."""
    from espeak import speak

    speech = speak(SPOKEN, words_a_minute=140)
    heard = whyformer.Sound(speech.samples, speech.rate)
    model = whyformer.load(folder, device="cpu", dtype="float32")
    model.model.generation_config.language = "en"
    response = whyformer.explain_response(heard, f" {SPOKEN}", model, "generic_attention", units=[WORD])
    time = next(word for word in speech.words if word.text == WORD)
    part = response.parts["audio"].part(0)
    words = canvas.paragraph(canvas.chips([(f"where it hears “{WORD}” in “{SPOKEN}”", None)]), PANEL, 18)
    said = caption(f"spoken at {time.start:.1f} to {time.end:.1f} s")
    drawn = {"method": response.method, "spoken by": "espeak-ng, en-us", "text": SPOKEN, "word": WORD}
    return panel("Whisper: a word", sound_picture(part, PANEL), words, said), drawn


def photo(folder: Path) -> tuple[Image.Image, Mapping[str, Any]]:
    """What supports a cat and for a dog in a photograph."""
    head, backbone = read_head(HEAD), transformers.Dinov2Model.from_pretrained(folder)
    names = dict(enumerate(head.labels))
    config = transformers.Dinov2Config(
        **{**backbone.config.to_dict(), "id2label": names, "label2id": {name: n for n, name in names.items()}}
    )
    model = transformers.Dinov2ForImageClassification(config)
    weights = {f"dinov2.{name}": value for name, value in backbone.state_dict().items()}
    model.load_state_dict(weights | {"classifier.weight": head.weight, "classifier.bias": head.bias})
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    found = whyformer.explain_targets(CAT, model.eval(), ["cat", "dog"], processor=processor)
    bodies = [
        body for one in found for body in (overlay(one.parts["image"], longest_side=250), caption(what_supports(one)))
    ]
    drawn = {"method": found[0].method, "photograph": "Chelsea, by Stéfan van der Walt (CC0)"}
    return panel("DINOv2: two labels", *bodies), drawn


REAL: dict[str, RealPicture] = {
    "real-reply": RealPicture("smollm2-135m-instruct", reply),
    "real-sound": RealPicture("whisper-base", sound),
    "real-photo": RealPicture("dinov2-small", photo),
}


def made_from(name: str, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """The model of a picture, the packages of its weights, and what was asked."""
    model = MODELS[name]
    about = {"model": model.title, "licence": model.licence, "weights": model.weights}
    return about | {"packages": [package.title for package in model.packages], **drawn}


def write(picture: Image.Image, path: Path, about: Mapping[str, Any]) -> None:
    """Save a picture of 256 colours with what it was made from."""
    info = PngInfo()
    info.add_itxt(KEY, json.dumps(about, ensure_ascii=False))
    picture.quantize(256, kmeans=1).save(path, optimize=True, pnginfo=info)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)
    if path.stat().st_size > MOST_BYTES:
        sys.exit(f"{path.name} is over {MOST_BYTES // 1000} kB.")


def main() -> None:
    for name, one in REAL.items():
        if not name.startswith(tuple(sys.argv[1:]) or ("",)):
            continue
        folder = model_folder(one.model)
        if not folder.is_dir():
            print(f"{name}.png: kept, since {one.model} is not in {folder}; make real fetches it")
            continue
        picture, drawn = one.draw(folder)
        write(canvas.on_sheet(picture, margin=16), PICTURES / f"{name}.png", made_from(one.model, drawn))
    parts = [PICTURES / f"{name}.png" for name in REAL]
    if all(path.is_file() for path in parts):
        sheets = [Image.open(path) for path in parts]
        about = {path.stem: json.loads(sheet.text[KEY]) for path, sheet in zip(parts, sheets, strict=True)}
        strip = canvas.on_sheet(canvas.side_by_side([sheet.convert("RGB") for sheet in sheets], gap=0))
        write(strip, PICTURES / "real-strip.png", about)


if __name__ == "__main__":
    main()
