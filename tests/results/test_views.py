"""What an explanation offers beside its scores: the strongest units, heat maps, tables, pictures, plots."""

import io
import json
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from whyformer.errors import WhyformerError
from whyformer.inputs.layouts import Boxes, Patches, WordPieces
from whyformer.render import html, show
from whyformer.render.text_spans import one_line
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part, TopItem
from whyformer.results.result_documents import continuation_document, explanation_document

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

BOX = (2.0, 0.0, 10.0, 8.0)


def photo():
    return Image.new("RGB", (12, 8), (90, 120, 150))


def patches(scores=(0.0, 0.25, -2.0, 0.5)):
    return Part(Patches(photo(), 2, 2, BOX), np.array(scores))


def regions():
    return Part(Boxes(photo(), ((0, 0, 6, 8), (4, 0, 8, 8))), np.array([1.0, -3.0]))


def text(tokens=("bad", "##ly", ",", "Ġfilm"), scores=(-3.0, -2.0, 0.01, 0.5)):
    return Part(WordPieces(("badly, film",), tokens, (0,) * 4, ((0, 3), (3, 5), (5, 6), (6, 11))), np.array(scores))


def explanation(**parts):
    return Explanation(parts or {"text": text()}, "cat", 0.93, "bi_token", "mini-vit", {"steps": 3}, ("a note",), 0.5)


def continuation():
    def written(token, count):
        layout = WordPieces(
            ("a film"[: 1 + 5 * (count - 1)],), ("a", "film")[:count], (0,) * count, ((0, 1), (2, 6))[:count]
        )
        return replace(explanation(text=Part(layout, np.array([0.5, -1.0][:count]))), target=token)

    return Continuation(" film.", (written(" film", 1), written(".", 2)))


def test_a_word_has_the_sum_of_its_tokens_everywhere():
    shown = explanation()
    assert [word.score for word in shown.words()] == [-4.99, 0.5]
    assert [word.score for word in shown.words("max")] == [-3.0, 0.5]
    assert [item.score for item in shown.top(by="word")] == [-4.99, 0.5]
    assert "-4.99  badly," in str(shown)
    assert 'title="bad  -3 · ly  -2 · ,  0.01" tabindex="0">badly,</span>' in html.html_page([shown])


def test_the_strongest_come_first_with_their_signs():
    shown = explanation()
    assert shown.top(1) == [TopItem("badly,", 0, -4.99, "text")]
    assert shown.top(3, "token") == [
        TopItem("bad", 0, -3.0, "text"),
        TopItem("ly", 1, -2.0, "text"),
        TopItem("film", 3, 0.5, "text"),
    ]
    assert explanation(image=patches()).top(2) == [
        TopItem("row 2, column 1", 2, -2.0, "image"),
        TopItem("row 2, column 2", 3, 0.5, "image"),
    ]
    assert explanation(image=regions()).top(by="region")[0] == TopItem("region 2", 1, -3.0, "image")


def test_several_parts_are_ranked_together_or_one_alone():
    both = explanation(image=patches(), text=text())
    assert [(item.part, item.score) for item in both.top(3)] == [("text", -4.99), ("image", -2.0), ("image", 0.5)]
    assert {item.part for item in both.top(by="patch")} == {"image"}
    assert {item.part for item in both.top(part="text")} == {"text"}


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda shown: shown.top(0), "k=0: a positive integer."),
        (lambda shown: shown.top(1.5), "k=1.5: a positive integer."),
        (lambda shown: shown.top(by="pixel"), "by='pixel'. Choose from: word, token, patch, region, frame."),
        (lambda shown: shown.top(by="patch"), "by='patch': this part is 4 word pieces. Use by='word'."),
        (lambda shown: shown.top(part="image"), "No part named 'image'. Known: text."),
        (lambda shown: shown.heatmap("image"), "No part named 'image'. Known: text."),
        (
            lambda shown: shown.heatmap(),
            "Only a picture has a heatmap; this part is 4 word pieces. Use words() or top().",
        ),
        (lambda shown: shown.show(where="paper"), "where='paper'. Choose from: notebook, terminal, browser."),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(call, reason):
    with pytest.raises(WhyformerError) as caught:
        call(explanation())
    assert str(caught.value) == reason


def test_the_heat_map_is_the_grid_spread_over_what_the_model_saw():
    values = explanation(image=patches()).heatmap()
    assert (values.shape, values.dtype) == ((8, 12), np.float64)
    np.testing.assert_array_equal(np.isnan(values).any(0), [*[True] * 2, *[False] * 8, *[True] * 2])
    assert (values[0, 2], values[0, 9], values[7, 2], values[7, 9]) == (0.0, 0.25, -2.0, 0.5)
    assert values[3, 2] == pytest.approx(0.375 * -2.0)  # centres of pixel rows 3 and of patch rows at 2 and 6


def test_the_heat_map_of_regions_has_the_strongest_on_top_and_nothing_between():
    values = explanation(image=regions(), text=text()).heatmap()
    np.testing.assert_array_equal(values[0], [1.0] * 4 + [-3.0] * 4 + [np.nan] * 4)
    twice = explanation(one=regions(), two=patches())
    with pytest.raises(
        WhyformerError, match=r"Several parts have heatmap\(\): one, two\. .*parts\['one'\]\.heatmap\(\)"
    ):
        twice.heatmap()
    assert twice.heatmap("two").shape == (8, 12)


@pytest.mark.parametrize("units", ["word", "token"])
def test_the_image_is_what_the_png_file_has(tmp_path, units):
    for name, shown in {"explanation": explanation(), "continuation": continuation()}.items():
        shown.save(tmp_path / f"{name}.png", units=units)
        with Image.open(tmp_path / f"{name}.png") as saved:
            np.testing.assert_array_equal(np.asarray(shown.image(units=units)), np.asarray(saved))


def test_tokens_are_coloured_where_asked_for(tmp_path):
    shown = explanation()
    shown.save(tmp_path / "tokens.html", units="token")
    page = (tmp_path / "tokens.html").read_text("utf-8")
    assert ['title="bad  -3" tabindex="0">bad</span>' in page, "badly,</span>" in page] == [True, False]
    assert not np.array_equal(np.asarray(shown.image()), np.asarray(shown.image(units="token")))


def test_one_shape_serves_scripts_and_files(tmp_path):
    shown = explanation(image=patches(), regions=regions(), text=text())
    plain = shown.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert explanation_document(shown, "a.png") == {"input": "a.png", **plain}
    shown.save(tmp_path / "e.json")
    saved = json.loads((tmp_path / "e.json").read_text())
    added = {"format", "version"}
    for name, part in plain["parts"].items():
        extra = {"dtype", "image"} & set(saved["parts"][name])
        assert {key: value for key, value in saved["parts"][name].items() if key not in extra} == part
    assert {key: saved[key] for key in saved if key not in {*added, "parts"}} == {
        key: plain[key] for key in plain if key != "parts"
    }
    assert plain["parts"]["text"] == {
        "layout": "word pieces",
        "texts": ["badly, film"],
        "segments": [0, 0, 0, 0],
        "offsets": [[0, 3], [3, 5], [5, 6], [6, 11]],
        "tokens": ["bad", "##ly", ",", "Ġfilm"],
        "scores": [-3.0, -2.0, 0.01, 0.5],
    }
    assert continuation_document(continuation(), "a")["explanations"][1] == continuation().explanations[1].to_dict()


def test_a_table_has_a_row_for_each_token():
    pandas = pytest.importorskip("pandas")
    frame = explanation(image=patches(), regions=regions(), text=text()).to_pandas()
    assert frame["part"].tolist() == ["image"] * 4 + ["regions"] * 2 + ["text"] * 4
    assert frame["score"].tolist() == [0.0, 0.25, -2.0, 0.5, 1.0, -3.0, -3.0, -2.0, 0.01, 0.5]
    assert frame["row"].tolist()[:4] == [1, 1, 2, 2]
    assert frame[["left", "right"]].iloc[5].tolist() == [4, 8]
    assert frame[["start", "end"]].iloc[9].tolist() == [6, 11]
    assert frame["start"].isna().sum() == 6
    assert frame.attrs == {"target": "cat", "method": "bi_token", "model": "mini-vit"}
    written = continuation().to_pandas()
    assert isinstance(written, pandas.DataFrame)
    assert written["written"].tolist() == [0, 1, 1]
    assert written["written_token"].tolist() == [" film", ".", "."]
    assert written["token"].tolist() == ["a", "a", "film"]


@pytest.mark.parametrize("call", [lambda shown: shown.to_pandas(), lambda shown: shown.plot()])
def test_a_missing_library_is_said_with_how_to_get_it(monkeypatch, call):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(WhyformerError, match=r"This needs (pandas|matplotlib): in the checkout, pip install"):
        call(explanation())


def test_a_text_is_plotted_as_bars_and_a_picture_as_its_overlay():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    _, ax = pyplot.subplots()
    assert explanation().plot(ax) is ax
    assert [label.get_text() for label in ax.get_yticklabels()] == ["badly,", "film"]
    assert [bar.get_width() for bar in ax.patches] == [-4.99, 0.5]
    both = explanation(image=patches(), text=text())
    assert both.plot(part="image").images[0].get_array().shape == (213, 320, 3)
    with pytest.raises(WhyformerError, match=r"Several parts have plot\(\): image, text\. .*plot\(part='image'\)"):
        both.plot()
    pyplot.close("all")


def test_a_formula_in_a_text_is_plotted_as_it_is_written():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    part = Part(WordPieces(("$\\frac $",), ("a", "b"), (0, 0), ((0, 6), (7, 8))), np.array([1.0, 2.0]))
    figure = explanation(text=part).plot().figure
    figure.savefig(io.BytesIO())
    pyplot.close(figure)


def test_a_continuation_is_plotted_as_its_matrix():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    ax = continuation().plot()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "film"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["␣film", "."]
    assert ax.images[0].get_array().shape == (2, 2, 3)
    pyplot.close("all")


def test_a_continuation_has_the_words_before_each_token():
    words = [[(word.text, word.score) for word in row] for row in continuation().words()]
    assert words == [[("a", 0.5)], [("a", 0.5), ("film", -1.0)]]
    with pytest.raises(WhyformerError, match=r"No part named 'source'\. Known: text"):
        continuation().words(part="source")


def test_a_continuation_has_the_strongest_before_each_token():
    assert continuation().top(1) == [[TopItem("a", 0, 0.5, "text")], [TopItem("film", 1, -1.0, "text")]]
    with pytest.raises(WhyformerError, match=r"No part named 'source'\. Known: text"):
        continuation().top(part="source")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def notebook(monkeypatch, **shell):
    """An IPython that runs this, and what it was made to display."""
    displayed = []
    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython = lambda: types.SimpleNamespace(**shell)
    display.HTML, display.display = str, displayed.append
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return displayed


def test_a_notebook_displays_inline(monkeypatch):
    displayed = notebook(monkeypatch, kernel=object())
    assert show.reader_place(Terminal()) == "notebook"
    explanation().show()
    continuation().show()
    assert displayed == [explanation()._repr_html_(), continuation()._repr_html_()]


def test_a_terminal_prints(monkeypatch, capsys):
    notebook(monkeypatch)  # IPython's own terminal
    assert show.reader_place(Terminal()) == "terminal"
    explanation().show(where="terminal")
    assert capsys.readouterr().out == f"{explanation()}\n"


def test_a_script_opens_the_page_in_a_browser(monkeypatch, capsys, tmp_path):
    opened = []
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setattr(show.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(show.webbrowser, "open", lambda address: opened.append(address) or True)
    assert (show.reader_place(io.StringIO()), show.reader_place(None)) == ("browser", "browser")
    explanation().show(units="token")
    (file,) = tmp_path.iterdir()
    assert opened == [file.as_uri()]
    assert file.read_text("utf-8") == html.html_page([explanation()], units="token")
    assert capsys.readouterr().out == ""


def test_without_a_browser_the_file_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(show.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(show.webbrowser, "open", lambda address: False)
    continuation().show(where="browser")
    (file,) = tmp_path.iterdir()
    assert capsys.readouterr().out == f"There is no browser here: open {file}\n"


def test_names_from_files_do_not_drive_the_terminal(tmp_path):
    hostile = tmp_path / "evil\x1b]0;PWNED\x07.json"
    hostile.write_text("{}")
    unknown = explanation(**{"\x1b[2J": text(), "b": text()})
    for call in (lambda: Explanation.load(hostile), lambda: unknown.words(), lambda: unknown.plot()):
        with pytest.raises(WhyformerError) as caught:
            call()
        assert "\x1b" not in str(caught.value)
    assert "\x1b" not in repr(unknown)
    assert one_line("a\x1b[2J\n b\x07") == "a␛[2J b␇"
