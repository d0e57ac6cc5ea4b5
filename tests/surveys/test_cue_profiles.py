"""Wrong answers are clustered by what misled the model, and the cues of a cluster are removed together."""

import numpy as np
import pytest

from whyformer import survey
from whyformer.surveys.cue_profiles import misleading_cues
from whyformer.surveys.cues import Cue, cue_row, cue_set, members_of, read_cue, text_parts, with_sets
from whyformer.surveys.summary import quoted_cue

NAMES = [Cue("word", name) for name in ("not", "no", "never", "space", "opera", "the")]
LABELS = ["negative", "positive"]


def words(*names):
    """A set of words."""
    return Cue("set", " + ".join(names), tuple(Cue("word", name) for name in names))


def test_profiles_of_two_causes_make_two_clusters_named_by_their_typical_cues():
    random = np.random.default_rng(0)
    profiles = random.uniform(0, 0.05, (30, 6))
    profiles[:20, :2] += random.uniform(0.6, 1.0, (20, 2))
    profiles[20:, 3:5] += random.uniform(0.6, 1.0, (10, 2))
    assert misleading_cues(profiles, NAMES) == [words("no", "not"), words("opera", "space")]


def test_how_strongly_an_answer_was_misled_makes_no_cluster():
    profiles = np.outer(np.geomspace(0.01, 10, 12), [1.0, 0.9, 0.8, 0.0, 0.0, 0.0])
    assert misleading_cues(profiles, NAMES) == [words("never", "no", "not")]


def test_wrong_answers_that_share_no_cue_have_no_cluster():
    assert misleading_cues(np.zeros((12, 6)), NAMES) == []
    assert misleading_cues(-np.ones((12, 6)), NAMES) == []
    assert misleading_cues(np.eye(6)[:2], NAMES) == []


def test_a_set_lies_where_any_of_its_members_do():
    both = cue_set([Cue("word", "not"), Cue("word", "no")])
    assert both == words("no", "not")
    assert cue_set([Cue("word", "not")]) == Cue("word", "not")
    (only,) = text_parts("no film is not a film".split(), frozenset({both})).items()
    assert only[0] == both
    assert np.flatnonzero(only[1]).tolist() == [0, 3]
    patches = {Cue("cluster", f"patch cluster {n}"): np.eye(3)[n] for n in range(3)}
    own = with_sets(patches, frozenset({cue_set([cue for cue in patches if cue.name[-1] != "1"])}))
    assert [part.tolist() for part in own.values()] == [[1.0, 0.0, 1.0]]


@pytest.mark.parametrize("name", ["c + d", "patch cluster 1"])
def test_members_of_a_set_keep_their_kinds_and_names(name):
    members = (Cue("phrase", name), Cue("word", "zoo"))
    both = cue_set(members[::-1])
    assert (both.name, members_of(both)) == (f"{name} + zoo", members)
    assert cue_row(both) == ["set", f"{name} + zoo", [["phrase", name], ["word", "zoo"]]]
    assert read_cue(cue_row(both)) == both
    parts = text_parts([*name.split(), "e", "zoo", "d"], frozenset({both}))
    assert np.flatnonzero(parts[both]).tolist() == [0, 1, 2, 4]


def test_a_set_of_an_earlier_file_has_its_name_alone():
    assert quoted_cue(Cue("set", "no + not")) == "no + not"
    assert quoted_cue(words("no", "not")) == "“no” and “not”"


def told(texts):
    """Counts words of feeling, but takes negations for bad words, and space operas for good ones."""
    weights = {"fine": 2.0, "poor": -2.0, "not": -3.0, "no": -3.0, "space": 1.7, "opera": 1.7}
    odds = np.array([sum(weights.get(word, 0.0) for word in text.split()) for text in texts])
    return np.stack([1 / (1 + np.exp(odds)), 1 / (1 + np.exp(-odds))], axis=1)


@pytest.fixture(scope="module")
def misled():
    random = np.random.default_rng(0)
    rows = []
    for number in range(240):
        others = [f"w{n}" for n in random.integers(0, 9, 8)]
        own, label = [("fine", 1), ("poor", 0), ("not no fine", 1), ("space opera poor", 0)][number % 4]
        place = int(random.integers(0, 8))
        rows.append((" ".join([*others[:place], own, *others[place:]]), LABELS[label]))
    return survey(None, rows, predict=told, labels=LABELS)


def test_groups_of_wrong_answers_are_led_by_the_cues_that_misled_them(misled):
    first, second, *others = misled.failures
    groups = {group.cue: group for group in (first, second)}
    negated = next(group for cue, group in groups.items() if {"no", "not"} <= set(cue.name.replace("+", "").split()))
    operas = next(group for group in (first, second) if group is not negated)
    assert (negated.label, negated.answer, negated.count) == ("positive", "negative", 60)
    assert (operas.label, operas.answer, operas.count) == ("negative", "positive", 60)
    for group in (negated, operas):
        assert group.proof.is_proven
        assert group.corrected == 1.0
        assert len(group.examples) > 0
    assert sum(group.count for group in others) == 0


def test_a_survey_with_sets_of_cues_is_saved_and_loaded(misled, tmp_path):
    misled.save(tmp_path / "report.json")
    assert type(misled).load(tmp_path / "report.json") == misled
    assert "and" in misled.overview[1] or "“" in misled.overview[1]
