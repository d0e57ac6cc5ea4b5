"""`survey`: find the cues that drive a model over a data set, and prove them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from whyformer.api.predictions import Predict
from whyformer.models.loading import LoadedModel
from whyformer.progress import stage_progress
from whyformer.ray_actors import EngineName
from whyformer.surveys.conclusion import SurveyFindings, survey_of
from whyformer.surveys.cue_choice import choose_cues
from whyformer.surveys.held_out import label_relations
from whyformer.surveys.journal import Journal
from whyformer.surveys.lemmas import Lemmas, lemmatiser
from whyformer.surveys.proof import halves
from whyformer.surveys.proof_plan import plan_proof
from whyformer.surveys.proof_run import Effects, measure_effects
from whyformer.surveys.sample_pages import check_pages, with_sample_pages
from whyformer.surveys.survey_data import data_name, survey_data
from whyformer.surveys.survey_engines import SurveyEngine, check_engine, survey_engine
from whyformer.surveys.survey_plan import SurveyPlan, checked_plan, respondent_of
from whyformer.surveys.survey_records import SurveyRecords, Watch, cluster_all, score_all
from whyformer.surveys.survey_result import Survey


def survey(
    model: str | Path | nn.Module | LoadedModel | None,
    data: Any,
    *,
    method: str | None = None,
    masks: str | Path | None = None,
    should_ignore: Iterable[str] | str | Path = (),
    held_out: Any = None,
    lemmas: Lemmas | None = None,
    column: str | None = None,
    label_map: Mapping[str, str] | None = None,
    processor: Any = None,
    predict: Predict | None = None,
    labels: Sequence[str] | None = None,
    batch_size: int | None = None,
    journal: str | Path | None = None,
    pages: str | Path | None = None,
    most_pages: int = 24,
    seed: int = 0,
    engine: EngineName = "local",
    progress: bool = False,
    watch: Watch | None = None,
    **options: Any,
) -> Survey:
    """Find out what drives a model over a data set: which words, or parts of pictures or
    sounds, and which drive its errors.

    Every sample is explained once. The cues with the highest scores in one half of the samples are then removed from
    samples of the other half, and random equal parts of the same samples for comparison. Those that change answers more
    are proven, at a false-discovery rate of 5 % over all cues. Regions, masks, positions, the stretches of time
    and frequency bands of sounds, and the cues that `should_ignore` names, are known beforehand, and tested on all
    samples.

    Args:
        model: A model that labels texts, pictures or sounds, as in `explain`; None with `predict`.
        data: A .csv, .tsv, .jsonl, .json or .parquet file with a text in each row. Or a folder with a folder of
            pictures or of sounds for each class, or with the folders `images` and `masks`. Or a reader of
            `whyformer.data` with its options, a data set of `datasets`, or a list of texts, pictures, sounds, pairs of
            one with its label, or rows.
            Labels are optional.
        method: A method of `explain` for the scores by which cues are chosen. By default it is that of `explain`, and
            with `predict` the drop of the answer's log-odds when one word, patch or twentieth of a sound is removed.
        masks: The folder of the objects' masks, named as the pictures are.
        should_ignore: Words and phrases that should not matter, as a list or a text file with one in each line. For
            pictures it is the names of regions ("border", "top left corner" …), or "masks" for the background with the
            regions and clusters in it; for sounds those of stretches and bands ("beginning", "low band" …). Drivers
            among them are shortcuts.
        held_out: Labelled texts from elsewhere, given as `data` are: drivers that go with their label in the data, but
            not there, are shortcuts, too.
        lemmas: Count the forms of a word as one cue. A mapping from words in lower case to their lemmas, or a function
            of such a word, as stemmers of other packages have. Or a text file with a word and its lemma in each line,
            separated by a tab. Other words keep their form.
        column: The column of the texts in a file, as in `explain_batch`.
        label_map: The model's names for the labels of the data, if they differ.
        processor: The processor of your own module, if its folder has none.
        predict: Instead of a model, a function that takes a list of examples and returns an array [example, label], as
            in `explain`.
        labels: The names of the labels that `predict` scores.
        batch_size: The number of examples per call of `predict`.
        journal: A .jsonl file that keeps everything computed: an interrupted survey resumes there. By default it is
            temporary.
        pages: A folder next to the report for pages of single explanations, to which it links; for models alone.
        most_pages: The maximum number of these pages.
        seed: The seed of the halves, of the samples that cues are removed from, and of random parts.
        engine: "local", this process, or "ray", a Ray cluster, whose workers load the model themselves: it is then
            given by name or folder.
        progress: Whether to show progress, with the time left.
        watch: A function called with the stage, the number of samples done, and that of all.
        **options: Options of the method.

    Returns:
        The Survey: print it, `save("report.html")`.

    Raises:
        UnsupportedModel: If the model does not label texts, pictures or sounds.
        WhyformerError: If the data, the model, a label or an option cannot be used as given.

    Example:
        >>> films = ["a wonderful film", "a dull film", "wonderful from beginning to end", "dull to the end"] * 12
        >>> result = whyformer.survey("mini-bert", films)
        >>> sorted({driver.cue.name for driver in result.drivers if driver.cue.kind == "word"})
        ['dull', 'wonderful']
    """
    start = time.perf_counter()
    check_engine(engine, model, processor)
    plan = checked_plan(
        respondent_of(model, processor, predict, labels, batch_size),
        survey_data(data, masks, column, label_map),
        should_ignore,
        method=method,
        options=options,
        seed=seed,
        held_out=None if held_out is None else survey_data(held_out, None, column, label_map),
        lemmatiser=lemmatiser(lemmas),
    )
    if pages is not None:
        check_pages(plan)
    with stage_progress(quiet=not progress) as show, tempfile.TemporaryDirectory(prefix="whyformer-") as folder:
        kept = Journal(Path(folder) / "survey.jsonl" if journal is None else Path(journal))
        kept.open_for(plan.settings)
        with survey_engine(engine, plan.respondent, model, len(plan.data)) as run:
            result = _surveyed(plan, kept, run, watch or show)
        if pages is not None:
            result = with_sample_pages(result, plan, Path(pages), most_pages, watch or show)
    return replace(result, seconds=time.perf_counter() - start, file=data_name(data))


def _surveyed(plan: SurveyPlan, journal: Journal, engine: SurveyEngine, watch: Watch) -> Survey:
    """Explain, choose, remove, prove, survey_of."""
    respondent, data, seed = plan.respondent, plan.data, plan.seed
    score_all(engine, data, journal, plan.method, plan.options, watch)
    is_kept, records = halves(len(data), seed), SurveyRecords(journal, plan.lemmatiser)
    clusters = cluster_all(respondent, data, journal, is_kept, watch, seed=seed)
    chosen = choose_cues(lambda: (sample for sample in records if not is_kept[sample.number]))
    proof = plan_proof(records, chosen.questions, plan.given, is_kept, seed=seed)
    planned = proof.cues
    patches = {sample.number: sample.patch_parts for sample in records if sample.number in planned}
    effects: Effects = {}
    for done, total, own in measure_effects(
        engine, data, proof, patches, journal, lemmatiser=plan.lemmatiser, seed=seed
    ):
        effects |= own
        watch("removing", done, total)
    relations = {} if plan.held_out is None else label_relations(proof.samples, data, plan.held_out, plan.lemmatiser)
    findings = SurveyFindings(respondent, data, records, proof, effects, plan.given, clusters, relations)
    return survey_of(findings, seed=seed)
