"""The page: its headline, its tabs, and their actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr

from whyformer.app.bundled_examples import (
    CAPTION_CHOICES,
    CAT,
    DOCUMENTS,
    FACT_QUESTION,
    FILMS,
    POST,
    REVIEW,
    REVIEWS,
    scene_files,
    scene_question,
)
from whyformer.app.comparison_tab import COMPARED_TABS as COMPARED
from whyformer.app.comparison_tab import ComparisonInputs, compare_methods
from whyformer.app.components import (
    choice_input,
    choice_updates,
    clicked_answer,
    count_input,
    example_buttons,
    file_input,
    filled,
    labelled_inputs,
    method_input,
    methods_input,
    model_input,
    picture_input,
)
from whyformer.app.data_tab import PICTURE_ARCHIVE, SURVEYED_TABS, TABLE_UPLOADS, SurveyInputs, survey_upload
from whyformer.app.detection_tab import explain_detection
from whyformer.app.evaluation_tab import EVALUATED, SCENE_MODELS, EvaluationInputs, measure
from whyformer.app.label_tabs import DEFAULT_LABEL, LabelQuestion, explain_picture, explain_text
from whyformer.app.pair_tab import Pair, explain_pair
from whyformer.app.response_tab import ResponseInputs, explain_exchange
from whyformer.app.result_area import ResultArea, connect, name_of, tab_columns
from whyformer.app.setup import Setup
from whyformer.app.tab_view import TabView
from whyformer.app.work import Work
from whyformer.methods.registry import methods_of, trace_methods

TITLE = "Why did the model answer that?"
LEAD = (
    "Whyformer shows what an answer of a Transformer depends on: the patches of a picture, the words of a text, the "
    "sentences of a document. Click an example, or use your own."
)


def build_page(setup: Setup) -> gr.Blocks:
    """The page with all its tabs."""
    kept = (60, setup.limits.kept_seconds)
    gr.set_static_paths([CAT, *scene_files()])  # served in place, not copied to the uploads
    page: gr.Blocks

    def leave(request: gr.Request) -> None:
        setup.visitors.leave(name_of(request))
        for files in page.temp_file_sets:  # Gradio only forgets files that it deleted itself
            files.difference_update([file for file in tuple(files) if not Path(file).exists()])

    with gr.Blocks(title="Whyformer", analytics_enabled=False, delete_cache=kept) as page:
        gr.Markdown(f"# {TITLE}\n\n{LEAD}", elem_classes="headline")
        with gr.Tabs():
            with gr.Tab("Picture"):
                first = _picture_tab(setup)
            with gr.Tab("Text"):
                _text_tab(setup)
            with gr.Tab("Response"):
                _response_tab(setup)
            with gr.Tab("Picture + text"):
                _pair_tab(setup)
            with gr.Tab("Detection"):
                _detection_tab(setup)
            with gr.Tab("Compare"):
                _compare_tab(setup)
            with gr.Tab("Evaluate"):
                _evaluate_tab(setup)
            with gr.Tab("Data"):
                _data_tab(setup)
        first(page.load)
        page.unload(leave)
    # Private: a direct call of a function would bypass the queue.
    page.queue(api_open=False, max_size=setup.limits.waiting, default_concurrency_limit=setup.limits.at_once)
    return page


def _picture_tab(setup: Setup) -> Callable[[Any], None]:
    """Build the tab; return a function that runs its first example on an event."""
    column, area = tab_columns(
        "Where does it look?", "The picture appears here with a heatmap of the evidence for its label.", setup
    )
    with column:
        picture = picture_input(setup.visitors)
        cat, dog, two = example_buttons("Why a cat?", "Cat rather than dog", "Two methods")
        controls = labelled_inputs(setup.models, "Picture")
        start = gr.Button("Explain", variant="primary")
    cases: list[tuple[gr.Button, list[Any]]] = [
        (cat, [str(CAT), "mini-vit", None, None, [DEFAULT_LABEL]]),
        (dog, [str(CAT), "mini-vit", "cat", "dog", [DEFAULT_LABEL]]),
        (two, [str(CAT), "mini-vit", None, None, [DEFAULT_LABEL, "raw_attention"]]),
    ]
    return _connect_labelled(setup, explain_picture, picture, [picture.upload, start.click], controls, area, cases)


def _text_tab(setup: Setup) -> None:
    column, area = tab_columns(
        "Which words matter?", "The text appears here, coloured by its evidence for the label.", setup
    )
    with column:
        text = gr.Textbox(label="Text", lines=7, max_lines=14, placeholder="Paste or type")
        review, against, post = example_buttons("A film review", "Positive, not negative", "A news post")
        controls = labelled_inputs(setup.models, "Text")
        start = gr.Button("Explain", variant="primary")
    cases: list[tuple[gr.Button, list[Any]]] = [
        (review, [REVIEW, "mini-bert", None, None, [DEFAULT_LABEL]]),
        (against, [REVIEW, "mini-bert", "positive", "negative", [DEFAULT_LABEL]]),
        (post, [POST, "mini-news", None, None, [DEFAULT_LABEL]]),
    ]
    _connect_labelled(setup, explain_text, text, [text.submit, start.click], controls, area, cases)


def _connect_labelled(
    setup: Setup,
    explain: Callable[..., TabView],
    example: Any,
    triggers: Sequence[Any],
    controls: Sequence[Any],
    area: ResultArea,
    cases: Sequence[tuple[gr.Button, list[Any]]],
) -> Callable[[Any], None]:
    """Connect a tab of labels; its lists of labels are those of the last model."""
    model, label, other, _ = controls
    inputs = [example, *controls]

    def action(work: Work, content: Any, *values: Any) -> TabView:
        return explain(work, setup, content, LabelQuestion(*values))

    def updates(view: TabView) -> list[Any]:
        return [*choice_updates(view), gr.update(choices=list(view.choices))] if view.choices else []

    def ask(*events: Any) -> None:
        connect(events, action, inputs, area, setup, updates=updates, others=[label, other])

    fresh = [filled(event, [None, None], [label, other]) for event in (triggers[0], model.input)]
    chosen = [filled(button.click, values, inputs) for button, values in cases]
    ask(*fresh, *triggers[1:], clicked_answer(area.html, label), label.input, other.input, *chosen)

    @cache
    def first(*values: Any) -> TabView:
        """The first example, computed once for all visitors."""
        return action(Work(setup.limits.seconds), *values)

    def ask_first(event: Any) -> None:
        values = cases[0][1]
        first_values = [*values[:-1], tuple(values[-1])]
        start = filled(event, values, inputs)
        connect(
            [start], lambda work, *_: first(*first_values), inputs, area, setup, updates=updates, others=[label, other]
        )

    return ask_first


def _response_tab(setup: Setup) -> None:
    column, area = tab_columns(
        "Where does it come from?", "The response appears here: click a sentence of it to see its sources.", setup
    )
    with column:
        prompt = gr.Textbox(label="Question or prompt", lines=2)
        open_question, known_answer = example_buttons("Let it answer", "Explain a given answer")
        documents = gr.Textbox(
            label="Documents",
            info="Separate documents with a blank line; each may begin with its name and a colon.",
            lines=7,
            max_lines=14,
        )
        files = file_input("More documents", setup.visitors, ".txt", several=True)
        response = gr.Textbox(label="Response", info="Leave it empty to let the model write it.")
        with gr.Accordion("Model, method, contrast", open=False):
            model = model_input(setup.models, setup.models.names["Response"])
            method = method_input(methods_of("response"))
            contrast = gr.Textbox(label="Rather than", info="Another response: why not this one.")
        start = gr.Button("Explain", variant="primary")
    inputs = [prompt, documents, files, response, contrast, model, method]

    def action(work: Work, question: str, context: str, sent: list[str] | None, *rest: Any) -> TabView:
        texts = [value or "" for value in (question, context, *rest[:2])]
        return explain_exchange(
            work, setup, ResponseInputs(texts[0], texts[1], sent or (), texts[2], texts[3], *rest[2:])
        )

    examples = [
        filled(button.click, [FACT_QUESTION, DOCUMENTS, None, answer, "", "mini-llm", DEFAULT_LABEL], inputs)
        for button, answer in ((open_question, ""), (known_answer, "Anna has the key."))
    ]
    connect([prompt.submit, start.click, *examples], action, inputs, area, setup)


def _pair_tab(setup: Setup) -> None:
    column, area = tab_columns(
        "Which words, which patches?", "Picture and text appear here with what matters in both.", setup
    )
    with column:
        picture = picture_input(setup.visitors)
        compare, ask, describe = example_buttons("Cat, dog or church?", "A question", "Describe it")
        text = gr.Textbox(
            label="Texts, a question, or a prompt",
            info="For texts to compare the picture with, one per line.",
            lines=3,
        )
        model = model_input(setup.models, setup.models.names["Picture + text"])
        with gr.Row(elem_classes="choices"):
            target = choice_input("Why this answer")
            method = method_input(trace_methods() | methods_of("image prompt"))
        with gr.Accordion("Regions, for models that see no pixels", open=False):
            regions = file_input("An .npz file of regions", setup.visitors, ".npz")
        start = gr.Button("Explain", variant="primary")
    inputs = [picture, regions, text, model, target, method]

    def action(work: Work, picture: Any, boxes: Any, text: str | None, *rest: Any) -> TabView:
        return explain_pair(work, setup, Pair(picture, boxes, text or "", *rest))

    scene, boxes = scene_files()
    cases: list[tuple[gr.Button, list[Any]]] = [
        (compare, [str(CAT), None, CAPTION_CHOICES, "mini-clip", None, DEFAULT_LABEL]),
        (ask, [scene, boxes, scene_question(), "mini-lxmert", None, DEFAULT_LABEL]),
        (describe, [scene, None, "describe the scene.", "mini-vlm", None, DEFAULT_LABEL]),
    ]
    examples = [filled(button.click, values, inputs) for button, values in cases]
    fresh = [filled(event, [None], [target]) for event in (start.click, text.submit)]
    triggers = [*fresh, clicked_answer(area.html, target), target.input, *examples]
    connect(triggers, action, inputs, area, setup, updates=choice_updates, others=[target])


def _detection_tab(setup: Setup) -> None:
    column, area = tab_columns(
        "What is there, and why?", "Detected objects appear here as boxes: click one to see why.", setup
    )
    with column:
        picture = picture_input(setup.visitors)
        (drawn,) = example_buttons("A drawn scene")
        model = model_input(setup.models, setup.models.names["Detection"])
        with gr.Row(elem_classes="choices"):
            find = choice_input("Why this find")
            method = method_input(trace_methods())
        start = gr.Button("Explain", variant="primary")
    inputs = [picture, model, find, method]

    def action(work: Work, *values: Any) -> TabView:
        return explain_detection(work, setup, *values)

    def query_of(event: gr.EventData) -> int:
        return int(event.query)

    clicked = area.html.select(query_of, None, find, show_progress="hidden", api_visibility="private").then
    fresh = [filled(event, [None], [find]) for event in (picture.upload, model.input)]
    example = filled(drawn.click, [scene_files()[0], "mini-detr", None, DEFAULT_LABEL], inputs)
    triggers = [clicked, *fresh, start.click, find.input, example]
    connect(triggers, action, inputs, area, setup, updates=choice_updates, others=[find])


def _compare_tab(setup: Setup) -> None:
    offered = [name for tab in COMPARED for name in setup.models.names[tab]]
    column, area = tab_columns("Do they agree?", "Methods appear here side by side, with a row for each label.", setup)
    with column:
        picture = picture_input(setup.visitors)
        animals, review = example_buttons("Cat and dog, three methods", "A film review")
        text = gr.Textbox(label="Or a text", lines=3, max_lines=10)
        model = model_input(setup.models, offered)
        methods = methods_input([DEFAULT_LABEL, "rollout", "random"], setup.limits.methods)
        labels = choice_input("Labels, a row each", setup.limits.labels)
        start = gr.Button("Compare", variant="primary")
    inputs = [picture, text, model, labels, methods]

    def action(work: Work, picture: Any, text: str | None, *rest: Any) -> TabView:
        return compare_methods(work, setup, ComparisonInputs(picture, text or "", *rest))

    cases: list[tuple[gr.Button, list[Any]]] = [
        (animals, [str(CAT), "", "mini-vit", ["cat", "dog"], [DEFAULT_LABEL, "grad_cam", "random"]]),
        (review, [None, REVIEW, "mini-bert", [], [DEFAULT_LABEL, "rollout", "random"]]),
    ]
    examples = [filled(button.click, values, inputs) for button, values in cases]
    fresh = filled(model.input, [[]], [labels])
    connect([start.click, fresh, *examples], action, inputs, area, setup, updates=choice_updates, others=[labels])


def _evaluate_tab(setup: Setup) -> None:
    names = setup.models.names
    offered = [*names["Text"], *names["Picture"], *(name for name in SCENE_MODELS if name in names["Picture + text"])]
    column, area = tab_columns(
        "Which method can you trust?", "A report appears here, with intervals and a control.", setup
    )
    with column:
        model = model_input(setup.models, offered)
        methods = methods_input(list(EVALUATED), setup.limits.methods, with_default=False)
        films, scenes = example_buttons("Eight film reviews", "Eight drawn scenes")
        texts = gr.Textbox(label="Texts, one per line", lines=5, max_lines=14)
        pictures = file_input("Or pictures", setup.visitors, "image", several=True)
        count = count_input("Or drawn scenes", setup.limits.examples, info=f"For {' and '.join(SCENE_MODELS)}")
        start = gr.Button("Measure", variant="primary")
    inputs = [model, texts, pictures, count, methods]

    def action(work: Work, name: str, lines: str | None, sent: list[str] | None, *rest: Any) -> TabView:
        return measure(work, setup, EvaluationInputs(name, lines or "", sent or (), *rest))

    cases: list[tuple[gr.Button, list[Any]]] = [
        (films, ["mini-bert", REVIEWS, None, 8, list(EVALUATED)]),
        (scenes, ["mini-visualbert", "", None, 8, list(EVALUATED)]),
    ]
    examples = [filled(button.click, values, inputs) for button, values in cases]
    seconds = setup.limits.evaluation_seconds
    connect([start.click, *examples], action, inputs, area, setup, seconds=seconds)


def _data_tab(setup: Setup) -> None:
    column, area = tab_columns(
        "What drives it?", "A survey of your data appears here: each word or region, proven by its removal.", setup
    )
    with column:
        model = model_input(setup.models, [name for tab in SURVEYED_TABS for name in setup.models.names[tab]])
        (films,) = example_buttons("Forty-eight sentences on films")
        file = file_input("A table of texts, or a zip of pictures", setup.visitors, *TABLE_UPLOADS, PICTURE_ARCHIVE)
        texts = gr.Textbox(label="Or texts, one per line", lines=5, max_lines=14)
        ignored = gr.Textbox(label="Should not matter", info="Words or regions, separated by commas.")
        start = gr.Button("Survey", variant="primary")
    inputs = [file, texts, ignored, model]

    def action(work: Work, sent: str | None, *rest: Any) -> TabView:
        return survey_upload(work, setup, SurveyInputs(sent, *(value or "" for value in rest)))

    example = filled(films.click, [None, FILMS, "film, story", "mini-bert"], inputs)
    connect([start.click, example], action, inputs, area, setup, seconds=setup.limits.evaluation_seconds)
