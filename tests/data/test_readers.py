"""Readers of the data people have, and of a user's own: folders, tables, data sets of other libraries."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from conftest import save_noise
from whyformer import WhyformerError
from whyformer.data import READERS, Document, Examples, hugging_face, image_folder, image_masks, reader, table
from whyformer.data.in_memory import memory_examples

ROWS = [
    {"review": "a fine, quiet film", "stars": "5", "why": [1, 2]},
    {"review": 'called "art", is dull', "stars": "1", "why": [3]},
    {"review": "  ", "stars": "2", "why": []},
]


def written(folder: Path, suffix: str) -> Path:
    path = folder / f"films{suffix}"
    if suffix in (".csv", ".tsv"):
        mark = "," if suffix == ".csv" else "\t"
        lines = [mark.join(("review", "stars", "why"))]
        for row in ROWS:
            quoted = '"' + row["review"].replace('"', '""') + '"'
            lines.append(mark.join((quoted, row["stars"], " ".join(map(str, row["why"])))))
        path.write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8", newline="")
    elif suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    elif suffix == ".json":
        path.write_text(json.dumps(ROWS))
    else:
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".parquet"])
def test_a_table_of_any_format_is_read_alike(tmp_path, suffix):
    examples = table(written(tmp_path, suffix), text="review", label="stars", rationale="why")
    assert examples.names == tuple(f"films{suffix} row {number}" for number in (1, 2, 3))
    first, second = examples[0], examples[1]
    assert (first.text, first.label, first.rationale.tolist()) == (
        "a fine, quiet film",
        "5",
        [False, True, True, False],
    )
    assert (second.text, second.label) == ('called "art", is dull', "1")
    with pytest.raises(WhyformerError, match=f"^films{suffix} row 3 has no text.$"):
        examples[2]
    assert pickle.loads(pickle.dumps(examples))[1].text == second.text


def test_a_table_without_labels_has_none_and_a_misspelt_column_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("text\na film\n")
    assert table(tmp_path / "a.csv")[0].label is None
    with pytest.raises(WhyformerError, match=r"a.csv' has no column 'txt'. Did you mean 'text'\?"):
        table(tmp_path / "a.csv", text="txt")
    with pytest.raises(WhyformerError, match=r"has no column 'zzz'. Known: text."):
        table(tmp_path / "a.csv", label="zzz")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text"', r"Line 2 of .*a.jsonl' is not JSON"),
        ("a.jsonl", b"[1]", r"Line 1 of .*a.jsonl' is not a row"),
        ("a.json", b'{"text": "x"}', r"a.json' is not a list of rows"),
        ("a.parquet", b"nothing", r"a.parquet' is not Parquet"),
        ("a.csv", b"text\n\xff\xfe", r"a.csv' cannot be read"),
        ("a.xlsx", b"", r"a.xlsx': '.xlsx' is not a table format. Known: .csv, .tsv, .jsonl, .json, .parquet."),
    ],
)
def test_a_file_that_is_no_table_is_said_so(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WhyformerError, match=said):
        table(tmp_path / name)


@pytest.mark.parametrize(
    ("why", "said"), [([9], "marks word 9, and it has 3, from 0 on"), ("first", "is not a list of the words' numbers")]
)
def test_a_rationale_that_marks_no_word_is_refused(tmp_path, why, said):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a fine film", "why": why}))
    with pytest.raises(WhyformerError, match=f"^a.jsonl row 1: its rationale .*{said}"):
        table(tmp_path / "a.jsonl", rationale="why")[0]


def test_a_folder_of_classes_labels_its_pictures(tmp_path):
    for name in ("cat/2.png", "cat/1.JPG", "dog/a.webp", ".cache/x.png", "dog/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if name.endswith("txt"):
            (tmp_path / name).write_text("no picture")
        else:
            save_noise(tmp_path / name)
    examples = image_folder(tmp_path)
    assert examples.names == ("cat/1.JPG", "cat/2.png", "dog/a.webp")
    assert [photo.label for photo in examples] == ["cat", "cat", "dog"]
    assert examples[1].image.size == (60, 40)
    save_noise(tmp_path / "loose.png")
    with pytest.raises(
        WhyformerError, match=r"loose.png' is not in a class folder: move it to one, such as cat/loose.png"
    ):
        image_folder(tmp_path)


MASK = np.zeros((40, 60), dtype=np.uint8)
MASK[5:20, 10:30] = 1


@pytest.mark.parametrize(
    ("values", "marks"), [((0, 1), None), ((0, 255), None), ((2, 1), None), ((7, 9), {"7": 0, "9": 1})]
)
def test_pictures_beside_their_masks(tmp_path, values, marks):
    for name in ("cat/1", "dog/2"):
        for folder, suffix in (("images", "jpg"), ("masks", "png")):
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            if folder == "images":
                save_noise(tmp_path / folder / f"{name}.{suffix}")
            else:
                Image.fromarray(np.array(values, dtype=np.uint8)[MASK]).save(tmp_path / folder / f"{name}.{suffix}")
    save_noise(tmp_path / "images" / "cat" / "without.png")
    examples = image_masks(tmp_path / "images", tmp_path / "masks", marks=marks)
    assert examples.names == ("cat/1.jpg", "dog/2.jpg")
    for photo, label in zip(examples, ("cat", "dog"), strict=True):
        assert photo.label == label
        np.testing.assert_array_equal(photo.mask, MASK)
    save_noise(tmp_path / "images" / "cat" / "1.jpg", width=50)
    with pytest.raises(WhyformerError, match=r"mask of '.*1.jpg' is 60×40, the picture \(50, 40\)"):
        examples[0]
    with pytest.raises(WhyformerError, match=r"No picture has a mask: '.*masks' has none of the name"):
        image_masks(tmp_path / "images" / "cat", tmp_path / "masks")


class ClassLabel:
    names = ("bad", "good")


class Rows:
    """What is used of a datasets.Dataset."""

    def __init__(self, rows, features=None):
        self.rows, self.features = rows, features or {}
        self.column_names = list(rows[0])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return self.rows[number]


def test_a_data_set_of_hugging_face_is_read_by_its_columns():
    rows = Rows([{"text": "a film", "label": 1}, {"text": "no film", "label": -1}], {"label": ClassLabel})
    examples = hugging_face(rows)
    assert [(one.name, one.text, one.label) for one in examples] == [
        ("row 0", "a film", "good"),
        ("row 1", "no film", None),
    ]
    image = Image.new("RGB", (4, 3), "red")
    (photo,) = hugging_face(Rows([{"img": image, "fine": 7}]), image="img", label="fine")
    assert (photo.image.size, photo.label) == ((4, 3), "7")
    assert memory_examples(rows)[0].label == "good"
    with pytest.raises(WhyformerError, match=r"The data set has no column 'txt'. Did you mean 'text'"):
        hugging_face(rows, text="txt")
    rows.column_names = {"train": [], "test": []}
    with pytest.raises(
        WhyformerError, match=r"has the splits train, test: give one of them, such as dataset\['test'\]"
    ):
        hugging_face(rows)


def test_a_reader_is_registered_once_unless_it_is_to_be_replaced():
    def films(count: int) -> Examples[Document]:
        return Examples(tuple(map(str, range(count))), lambda number: Document(str(number), "a film"))

    try:
        assert reader("my_films")(films) is films
        with pytest.raises(WhyformerError, match="There is a reader named 'my_films' already"):
            reader("my_films")(films)
        reader("my_films", replace=True)(lambda: Examples((), films))
        assert READERS["my_films"] is not films
    finally:
        READERS.pop("my_films", None)
    with pytest.raises(WhyformerError, match="The reader 'any' takes any arguments"):
        reader("any")(lambda **options: films(1))
    with pytest.raises(WhyformerError, match="There is a reader named 'table' already"):
        reader("table")(films)
