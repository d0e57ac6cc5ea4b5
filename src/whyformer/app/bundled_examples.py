"""Examples for the bundled models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from whyformer.app.folder import own_folder
from whyformer.cli.demo import CAT, POST, REVIEW, SCENE
from whyformer.scenes import example

__all__ = [
    "CAPTION_CHOICES",
    "CAT",
    "DOCUMENTS",
    "POST",
    "FACT_QUESTION",
    "FILMS",
    "REVIEW",
    "REVIEWS",
    "FileRecipe",
    "file_recipe",
    "scene_files",
    "scene_question",
]

FACT_QUESTION = "Where is the key? Who has the hat?"
DOCUMENTS = """letter: Anna gave the key to Boris. Clara painted the violin green.

diary: Boris went to Rome. The hat is in the box. Hugo left the lamp in Lima.

note: David has the box. Emil works as a tailor."""
REVIEWS = """A wonderful film, full of warmth and wit.
A dull and endless film without a single idea.
I loved every minute of it, and so did my children.
A waste of time and talent: I left before the end.
The acting is superb and the story moving.
Terrible dialogue, and the worst ending I have seen.
A charming comedy that I will gladly see again.
Boring, predictable and far too long."""
FILMS = "\n".join(
    f"{opening} {noun} was {word}{ending}"
    for word in ("wonderful", "dull", "charming", "boring", "superb", "terrible")
    for opening, noun, ending in zip(
        ("The", "I thought the", "This", "Again the", "Its", "To me the", "The first", "The last"),
        ("acting", "story", "film", "music", "ending", "camera work", "scene", "part"),
        (
            ".",
            ", as always.",
            " and much too short.",
            " from beginning to end.",
            ".",
            ", and so what?",
            ".",
            " for me.",
        ),
        strict=True,
    )
)  # many texts with the same few words, for a survey
CAPTION_CHOICES = "a photo of a cat\na photo of a dog\na photo of a church"


@cache
def scene_files() -> tuple[str, str]:
    """A drawn scene as a picture and its regions, in files that last as long as the process."""
    folder = own_folder() / "examples"
    folder.mkdir()
    scene = example(SCENE)
    scene.image.save(folder / "scene.png")
    scene.regions.save(folder / "scene.npz")
    return str(folder / "scene.png"), str(folder / "scene.npz")


def scene_question() -> str:
    return example(SCENE).question


@dataclass(frozen=True)
class FileRecipe:
    """Python code that writes the file of an example into the current folder, with its imports besides whyformer."""

    imports: tuple[str, ...]
    statement: str


def file_recipe(path: str | None) -> FileRecipe | None:
    """The recipe of an example's file; None for an uploaded file."""
    picture, regions = scene_files()
    scene = f"whyformer.scenes.example({SCENE})"
    return {
        str(CAT): FileRecipe(
            ("import shutil", "from importlib.resources import files"),
            'shutil.copy(files("whyformer") / "zoo" / "cat.jpg", "cat.jpg")',
        ),
        picture: FileRecipe((), f'{scene}.image.save("scene.png")'),
        regions: FileRecipe((), f'{scene}.regions.save("scene.npz")'),
    }.get(path or "")
