"""The tab Data without a browser: tables and zip files of pictures become a survey."""

import contextlib
import html
import json
import re
import zipfile

import pytest
from PIL import Image

from whyformer import Survey, WhyformerError
from whyformer.app.bundled_examples import CAT, FILMS
from whyformer.app.data_tab import SurveyInputs, survey_upload
from whyformer.app.limits import Limits
from whyformer.app.models import model_choice
from whyformer.app.setup import Setup
from whyformer.app.work import Work

TEXTS = [f"a {word} {noun}" for word in ("wonderful", "dull") for noun in ("film", "story", "plot", "cast") * 4]


@pytest.fixture(scope="module")
def setup():
    return Setup(model_choice())


def surveyed(setup, *inputs, **others):
    return survey_upload(Work(seconds=600), setup, SurveyInputs(*inputs, **others))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("sent") / "films.csv"
    rows = [f"{text},{'positive' if 'wonder' in text else 'negative'}" for text in TEXTS]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def test_a_table_is_surveyed_and_the_code_gives_the_same(setup, table, tmp_path):
    view = surveyed(setup, str(table), "", "film, no such word", "mini-bert")
    paths = view.save(tmp_path)
    result = Survey.load(paths[".json"])
    assert {driver.cue.name for driver in result.drivers if driver.cue.kind == "word"} >= {"wonderful", "dull"}
    assert (result.samples, result.labelled) == (32, 32)
    assert any(driver.should_be_ignored for driver in result.tested if driver.cue.name == "film")
    assert paths[".html"].read_text() == html.unescape(re.search(r'srcdoc="(.*)"', view.html, re.DOTALL)[1])
    with contextlib.chdir(tmp_path):
        (tmp_path / "films.csv").write_bytes(table.read_bytes())
        names = {}
        exec(view.code.python.replace("print(result)", ""), names)
        ignoring, command = view.code.command.rsplit("\n", 1)
        assert ignoring == "printf %s 'film\nno such word\n' > ignore.txt"
    assert command == "whyformer survey mini-bert films.csv --should-ignore ignore.txt --out report.html"
    assert [driver.cue for driver in names["result"].tested] == [driver.cue for driver in result.tested]


def test_texts_are_surveyed_and_the_report_runs_in_an_origin_of_its_own(setup):
    view = surveyed(setup, None, "\n".join(TEXTS), "", "mini-bert")
    assert 'sandbox="allow-scripts"' in view.html
    assert "allow-same-origin" not in view.html
    assert "<script" not in view.html  # of the page itself
    assert "texts.csv" in view.code.command
    assert len(FILMS.splitlines()) == 48


def zipped(path, pictures):
    with zipfile.ZipFile(path, "w") as archive:
        for name, picture in pictures.items():
            with archive.open(name, "w") as file:
                picture.save(file, "PNG")
    return path


def test_a_zip_of_pictures_is_surveyed_with_its_classes(setup, tmp_path):
    cat = Image.open(CAT).convert("RGB").resize((64, 64))
    flipped = cat.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pictures = {f"photos/{name}/1.png": one for name, one in (("cat", cat), ("dog", flipped))}
    archive = zipped(tmp_path / "photos.zip", pictures)
    steps = []
    work = Work(seconds=600)
    work.step = lambda *step: steps.append(step)
    view = survey_upload(work, setup, SurveyInputs(str(archive), "", "border", "mini-vit"))
    result = Survey.load(view.save(tmp_path)[".json"])
    assert (result.kind, result.samples, result.labelled) == ("picture", 2, 2)
    assert [step[:2] for step in steps if step[2].startswith("explaining")] == [(0, 2), (2, 2)]  # one batch
    assert "unzip photos.zip -d photos" in view.code.command


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("films.xlsx", "x", "films.xlsx is not one of .csv, .tsv, .jsonl, .zip: choose another file."),
        ("films.parquet", "x", "films.parquet is not one of .csv"),
        ("films.csv", "text\n" + "a film\n" * 1001, "1001 rows, but this page takes at most 1000"),
        ("films.csv", "one,two\na,b\n", "films.csv has the columns one, two: name the one with the texts 'text'."),
        ("films.zip", "text", "films.zip is not a readable zip file"),
        ("films.csv", "text\n", "The data have no examples: there is nothing to survey."),
    ],
)
def test_a_file_that_cannot_be_surveyed_says_why(setup, tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(WhyformerError, match=re.escape(message)) as error:
        surveyed(setup, str(path), model="mini-bert")
    assert str(tmp_path) not in str(error.value)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "Upload a table of texts or a zip file of pictures, type texts, or click an example."),
        ({"texts": "a film", "model": "mini-llm"}, "does not offer the model 'mini-llm'"),
        ({"texts": "a film", "model": "mini-vit"}, "mini-vit reads pictures, and the data are texts: give a folder of"),
        ({"texts": "a film\n" * 1001}, "1001 texts, but this page takes at most 1000"),
        ({"texts": "a film", "ignored": "one two three four"}, "has 4 words: 1 to 3 make a cue"),
        ({"texts": "a film", "ignored": "a," * 51}, "51 words to be ignored, but this page takes at most 50"),
        ({"file": "/nowhere/films.csv"}, "The file is no longer kept here: upload it again."),
    ],
)
def test_what_cannot_be_surveyed_says_why(setup, asked, message):
    with pytest.raises(WhyformerError, match=re.escape(message)):
        surveyed(setup, **asked)


def test_words_to_be_ignored_name_no_file_of_the_server(setup, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("dull\nwonderful\n")
    view = surveyed(setup, None, "\n".join(TEXTS), str(secret), "mini-bert")
    tested = json.loads(view.save(tmp_path)[".json"].read_text())["tested"]
    assert not any(one["should_be_ignored"] for one in tested)


def test_limits_are_those_of_the_page(setup, table):
    small = Setup(setup.models, Limits(survey_texts=31))
    with pytest.raises(WhyformerError, match="32 rows, but this page takes at most 31"):
        surveyed(small, str(table), model="mini-bert")
