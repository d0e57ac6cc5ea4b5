"""Tables as strangers write them: no row may vanish, and no text may get another row's label, without a word."""

from __future__ import annotations

import csv
import json
import random
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commands import invoke, refusal
from whyformer import WhyformerError, evaluate, explain, explain_batch, load
from whyformer.cli import compare_command, input_sources
from whyformer.data import table

QUOTES = [("the film was great", "good"), ('"tis a bad film', "bad"), ("a great film", "good"), ('said "bad"', "bad")]


def rows_of(path, **options):
    return [(document.text, document.label) for document in table(path, **options)]


def rows_or_refusal(path, **options):
    """The rows of a table, or the line by which it is refused."""
    try:
        return rows_of(path, **options)
    except WhyformerError as error:
        return str(error)


def write(path, content, encoding="utf-8"):
    path.write_bytes(content.encode(encoding))
    return path


def test_a_quotation_mark_in_a_tsv_is_text_and_swallows_no_row(tmp_path):
    lines = ["text\tlabel", *("\t".join(row) for row in QUOTES)]
    assert rows_of(write(tmp_path / "a.tsv", "\n".join(lines))) == QUOTES
    assert rows_of(write(tmp_path / "b.tsv", "\r\n".join(lines) + "\r\n")) == QUOTES


def test_a_tsv_whose_quotation_marks_all_enclose_fields_is_unquoted(tmp_path):
    quoted = [f'"{text.replace(chr(34), chr(34) * 2)}"\t{label}' for text, label in QUOTES]
    assert rows_of(write(tmp_path / "a.tsv", "\n".join(["text\tlabel", *quoted]))) == QUOTES


def test_line_breaks_and_commas_between_quotation_marks_stay_in_their_field(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\r\n"two\r\nlines, and a ""quote""",good\r\nplain,bad\r\n')
    assert rows_of(path) == [('two\r\nlines, and a "quote"', "good"), ("plain", "bad")]


def test_quotation_marks_within_a_field_without_them_are_text(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\nhe said "no",bad\n5" wide,good\n')
    assert rows_of(path) == [('he said "no"', "bad"), ('5" wide', "good")]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_quotation_mark_typed_anywhere_costs_its_own_field_or_is_refused(tmp_path, suffix):
    rows = [("the film was great", "good"), ("a bad film", "bad"), ("it is dull", "bad")]
    mark = "," if suffix == ".csv" else "\t"
    header, content = f"text{mark}label\n", "".join(f"{text}{mark}{label}\n" for text, label in rows)
    refused = 0
    for place in range(len(content)):
        path = write(tmp_path / f"a{suffix}", header + content[:place] + '"' + content[place:])
        found = rows_or_refusal(path)
        if isinstance(found, str):
            refused += 1
            assert found.startswith(f"Line {2 + content[:place].count(chr(10))} of ")
            continue
        assert [(text.replace('"', ""), label.replace('"', "")) for text, label in found] == rows
    assert refused == (6 if suffix == ".csv" else 0)  # at the beginning of each field


def test_any_text_survives_a_csv_and_a_tsv_file(tmp_path):
    """Texts of odd characters, as Python's own writer puts them down."""
    draw = random.Random(0)
    texts = ["x" + "".join(draw.choices("a ,;'\"\n\r\u2028\x1c\x85é", k=12)) for _ in range(300)]
    for suffix, mark in ((".csv", ","), (".tsv", "\t")):
        expected = [(text if suffix == ".csv" else re.sub("[\r\n]", " ", text), str(n)) for n, text in enumerate(texts)]
        with (tmp_path / f"a{suffix}").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=mark).writerows([("text", "label"), *expected])
        assert rows_of(tmp_path / f"a{suffix}") == expected


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".parquet"])
def test_a_table_with_bytes_changed_at_random_is_read_or_refused_in_one_line(tmp_path, suffix):
    draw, path = random.Random(1), tmp_path / f"a{suffix}"
    whole = write_table(tmp_path / f"whole{suffix}").read_bytes()
    for _ in range(100):
        content = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            place = draw.randrange(len(content))
            content[place : place + draw.randint(0, 2)] = draw.randbytes(draw.randint(0, 2))
        path.write_bytes(content)
        found = rows_or_refusal(path, text="review", label=None)
        assert isinstance(found, list) or "\n" not in found


REFUSED = {
    "an open quote": (
        'text,label\nfine,good\n"tis bad,bad\nfine,good\n',
        r"Line 3 of '.*a.csv' opens a quotation mark",
    ),
    "a quote that ends early": ('text,label\n"tis bad,bad\nsaid "so,good\n', r"Line 2 of '.*a.csv' opens a quotation"),
    "too many fields": (
        "text,label\nfine,good\nbad, really,bad\n",
        r"Line 3 of '.*' has 3 fields, and the header has 2",
    ),
    "too few fields": ('text,label\n"over\nlines",good\nbad\n', r"Line 4 of '.*' has 1 field, and the header has 2"),
    "two columns of one name": ("text,text\nfine,bad\n", r"Line 1 of '.*' names the column 'text' twice"),
    "semicolons": ("text;label\nfine;good\n", r"a.csv' has ';' between its columns: save it with commas"),
    "a NUL": ("text,label\nfine,good\nb\0d,bad\n", r"Line 3 of '.*a.csv' has a NUL character"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_csv_whose_rows_cannot_be_told_apart_is_refused_with_the_line(tmp_path, what):
    content, said = REFUSED[what]
    with pytest.raises(WhyformerError, match=said) as caught:
        table(write(tmp_path / "a.csv", content))
    assert "\n" not in str(caught.value)


def test_a_tab_too_many_in_a_tsv_is_refused_with_the_line(tmp_path):
    with pytest.raises(WhyformerError, match=r"Line 2 of '.*a.tsv' has 3 fields, and the header has 2: save texts"):
        table(write(tmp_path / "a.tsv", "text\tlabel\nfine\tfilm\tgood\n"))


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_another_encoding_is_refused_in_one_line(tmp_path, encoding):
    with pytest.raises(WhyformerError, match=r"cannot be read: line [12] is not UTF-8 text \(byte \d+\)") as caught:
        table(write(tmp_path / "a.csv", "text,label\nschön,good\n", encoding))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path, suffix):
    mark = "\t" if suffix == ".tsv" else ","
    content = f"text{mark}label\r\nfine{mark}good\r\n"
    content = '{"text": "fine", "label": "good"}\r\n' if suffix == ".jsonl" else content
    assert rows_of(write(tmp_path / f"a{suffix}", content, "utf-8-sig")) == [("fine", "good")]


def test_a_line_of_json_ends_at_a_line_feed_alone(tmp_path):
    rows = [{"text": "one\u2028text\u0085here", "label": "good"}, {"text": "next", "label": "bad"}]
    path = write(tmp_path / "a.jsonl", "\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    assert rows_of(path) == [("one\u2028text\u0085here", "good"), ("next", "bad")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_json_that_is_nested_too_deeply_is_refused_in_one_line(tmp_path, name):
    with pytest.raises(WhyformerError, match=r"is not JSON: it is nested too deeply\.$"):
        table(write(tmp_path / name, "[" * 100_000))


@pytest.mark.parametrize("content", [b"PAR1", b"PAR1" + bytes(100) + b"PAR1"])
def test_a_damaged_parquet_file_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(WhyformerError, match=r"a.parquet' is not Parquet: ") as caught:
        table(tmp_path / "a.parquet")
    assert "\n" not in str(caught.value)


TEXTS = ["the film was great", "a bad film, great", "film.txt"]
ROWS = [{"id": n, "review": text, "label": label} for n, (text, label) in enumerate(zip(TEXTS, "gbg", strict=True))]


def write_table(path):
    if path.suffix in (".csv", ".tsv"):
        mark = "," if path.suffix == ".csv" else "\t"
        rows = [mark.join((str(row["id"]), f'"{row["review"]}"', row["label"])) for row in ROWS]
        return write(path, "\n".join([mark.join(ROWS[0]), *rows]))
    if path.suffix == ".json":
        return write(path, json.dumps(ROWS))
    if path.suffix == ".jsonl":
        return write(path, "\n".join(map(json.dumps, ROWS)))
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_the_rows_of_a_table_are_explained_one_by_one(bert, tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    expected = [explain(text, load(bert)).scores for text in TEXTS]
    write(tmp_path / "film.txt", "the name of a file is a text in a table")
    path = write_table(tmp_path / f"films{suffix}")
    result = invoke("explain", path.name, "--model", bert, "--json")
    assert result.stderr == f"{path.name}: 3 rows, texts in 'review', labels in 'label'.\n"
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["input"] for one in documents] == [f"{path.name} row {number}" for number in (1, 2, 3)]
    assert [one["label"] for one in documents] == ["g", "b", "g"]
    from_python = explain_batch(path, load(bert), column="review")
    for document, one, scores in zip(documents, from_python, expected, strict=True):
        np.testing.assert_allclose(document["parts"]["text"]["scores"], scores, atol=1e-5)
        np.testing.assert_allclose(one.scores, scores, atol=1e-5)


def test_a_table_goes_to_a_folder_or_a_page_as_several_inputs_do(bert, tmp_path):
    path = write_table(tmp_path / "films.csv")
    shown = invoke("explain", path, "--model", bert, "--out", tmp_path / "pages", "--format", "json")
    assert f"{path} row 2, labelled b\n" in shown.stdout
    names = sorted(file.name for file in (tmp_path / "pages").iterdir())
    assert names == [f"films-csv-row-{number}.json" for number in (1, 2, 3)]
    assert "several inputs go to a folder" in refusal("explain", path, "--model", bert, "--out", tmp_path / "one.json")
    write(path, "text\n" + TEXTS[0])
    assert invoke("explain", path, "--model", bert, "--out", tmp_path / "page.html").exit_code == 0


def test_rows_without_a_text_are_left_out_and_rows_over_several_lines_are_counted(bert, tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\n"a great\nfilm",good\n,bad\n" ",bad\na bad film,bad\n')
    result = invoke("explain", path, "--model", bert, "--json")
    said = "4 rows, texts in 'text', labels in 'label', 1 over several lines, 2 without a text left out."
    assert result.stderr == f"{path}: {said}\n"
    assert [json.loads(line)["input"] for line in result.stdout.splitlines()] == [f"{path} row 1", f"{path} row 4"]
    with pytest.raises(WhyformerError, match=r"^a.csv row 2 has no text.$"):
        explain_batch(path, load(bert))


def test_the_column_of_the_texts_is_asked_for_where_it_cannot_be_known(bert, tmp_path):
    two = write(tmp_path / "two.csv", "question,sentence\na film,a great film\n")
    line = refusal("explain", two, "--model", bert)
    assert line == (
        f"2 columns of '{two}' (question, sentence) may hold the texts: name it by --column, in Python by column=, in "
        "a suite by text =."
    )
    printed = invoke("explain", two, "--model", bert, "--column", "sentence", "--json").stdout
    assert json.loads(printed)["parts"]["text"]["tokens"] == ["a", "great", "film"]
    none = write(tmp_path / "none.csv", "x,y\na film,a great film\n")
    assert refusal("explain", none, "--model", bert).startswith(f"No column of '{none}' (x, y) has a usual name")
    assert "has no column 'z'" in refusal("explain", none, "--model", bert, "--column", "z")
    assert "no input is one" in refusal("explain", "a film", "--model", bert, "--column", "z")
    assert rows_of(write(tmp_path / "one.csv", "whatever\na film\n")) == [("a film", None)]


def test_the_lines_of_a_file_are_texts_where_that_is_asked_for(bert, tmp_path):
    path = write(tmp_path / "films.txt", "a great film\r\n\r\n  a bad film\n")
    result = invoke("explain", path, "--model", bert, "--lines", "--json")
    assert result.stderr == f"{path}: 2 lines with a text.\n"
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["input"] for one in documents] == [f"{path} line 1", f"{path} line 3"]
    assert documents[1]["parts"]["text"]["tokens"] == ["a", "bad", "film"]
    piped = invoke("explain", "-", "--model", bert, "--lines", "--json", input="a great film\na bad film\n")
    assert [json.loads(line)["input"][-6:] for line in piped.stdout.splitlines()] == ["line 1", "line 2"]
    whole = invoke("explain", path, "--model", bert, "--json")
    assert whole.stderr == ""
    assert json.loads(whole.stdout)["parts"]["text"]["tokens"] == ["a", "great", "film", "a", "bad", "film"]


def test_a_file_that_may_hold_a_text_in_each_line_is_said_to_be_read_as_one(bert, tmp_path):
    path = write(tmp_path / "films.txt", "a great film\na bad film\na film\n")
    result = invoke("explain", path, "--model", bert, "--json")
    assert result.stderr == f"{path} is read as one text; use --lines for one text per line.\n"


def test_what_cannot_be_taken_row_by_row_is_said(vit, bert, tmp_path, monkeypatch):
    path = write_table(tmp_path / "films.csv")
    assert "does not read texts only: choose a text model" in refusal("explain", path, "--model", vit)
    assert "leave --lines out" in refusal("explain", path, "--model", bert, "--lines")
    assert "is not a file: leave it out" in refusal("explain", "a film", "--model", bert, "--lines")
    assert refusal("explain", tmp_path / "no.csv", "--model", bert) == f"No file '{tmp_path / 'no.csv'}'."
    assert "has no texts" in refusal("explain", write(tmp_path / "empty.csv", "text\n"), "--model", bert)
    with pytest.raises(WhyformerError, match=r"films.csv' is a table, not one text: explain_batch"):
        explain(path, load(bert))
    assert "is a table, not one text" in refusal("continue", path)
    with pytest.raises(WhyformerError, match=r"^No file 'no.csv'\.$"):
        explain_batch("no.csv", load(bert))
    monkeypatch.setitem(input_sources.open_inputs.__kwdefaults__, "most", 2)
    assert "has 3 texts, more than the limit of 2" in refusal("explain", path, "--model", bert)


def test_methods_are_compared_on_the_rows_of_a_table(bert, tmp_path, monkeypatch):
    path = write_table(tmp_path / "films.csv")
    command = ["compare", path, "--model", bert, "--method", "rollout", "--method", "raw_attention"]
    result = invoke(*command, "--json")
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    expected = [(f"{path} row {row}", method) for row in (1, 2, 3) for method in ("rollout", "raw_attention")]
    assert [(one["input"], one["column"]) for one in documents] == expected
    rollout = explain(TEXTS[1], load(bert), method="rollout").scores
    np.testing.assert_allclose(documents[2]["parts"]["text"]["scores"], rollout, atol=1e-5)
    assert invoke(*command, "--out", tmp_path / "page.html").exit_code == 0
    assert "row 2, labelled b" in (tmp_path / "page.html").read_text()
    monkeypatch.setattr(compare_command, "MOST_COMPARED", 2)
    assert "has 3 texts, more than the limit of 2" in refusal(*command)


def test_a_table_of_prompts_is_a_batch_of_responses(tmp_path):
    from whyformer.cli.response_batch import read_lines

    path = write(tmp_path / "a.csv", 'prompt,response,context\n"Who, then?",Ann,\nWhere?,,In Rome.\n')
    cases = [(line.number, line.case()) for line in read_lines(path)]
    assert cases == [
        (1, {"prompt": "Who, then?", "response": "Ann"}),
        (2, {"prompt": "Where?", "context": ["In Rome."]}),
    ]
    with pytest.raises(WhyformerError, match=r"a.csv' has an unknown column 'promt'. Did you mean 'prompt'\?"):
        read_lines(write(path, "promt\nWho?\n"))


def test_a_table_is_evaluated_by_its_path(bert, tmp_path):
    rows = ["the film was great,good", "a bad film,bad", "a great film,good"]
    path = write(tmp_path / "films.csv", "\n".join(["sentence,label", *rows]))
    by_path, by_list = (
        evaluate(str(bert), data, "rollout", "class_sensitivity").results["protocols"]
        for data in (path, [tuple(row.split(",")) for row in rows])
    )
    assert by_path == by_list


def test_a_column_that_a_line_of_json_has_twice_is_refused(tmp_path):
    (tmp_path / "films.jsonl").write_text('{"text": "A dull film.", "text": "A wonderful film."}\n')
    with pytest.raises(WhyformerError, match=r"Line 1 of '.*' is not JSON: the key 'text' occurs twice\.$"):
        explain_batch(tmp_path / "films.jsonl", model="mini-bert")
