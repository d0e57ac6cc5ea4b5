"""Actions after long prompts: few forward passes, of the messages that rank first, and the reader is told."""

import numpy as np
import pytest

import whyformer
from made_actions import ASKED, EVIL, GOOD, QWEN, explained
from tiny_agents import TOOLS, called, result
from whyformer.api.action_removal import LONG_LIMITS
from whyformer.api.explain_action import LONG_BUDGET
from whyformer.api.loaded_scorer import LoadedScorer

CONTENTS = [GOOD, EVIL, *(f"Mail {number} is about the weather." for number in range(6))]
READ = [one for n, text in enumerate(CONTENTS) for one in (called("read_mail", n), result(text, n))]
MESSAGES = [ASKED, *READ, called("send_money", 9, recipient="Ann")]


@pytest.fixture
def long(monkeypatch):
    """Every prompt is a long one."""
    monkeypatch.setattr("whyformer.api.explain_action.LONG_PROMPT", 1)
    monkeypatch.setattr("whyformer.api.action_targets.LONG_PROMPT", 1)
    monkeypatch.setattr("whyformer.api.loaded_scorer.LONG_ON_CPU", 1)


def test_a_long_prompt_has_a_budget_and_a_cheap_ranking_which_the_reader_is_told(long):
    action = whyformer.explain_action(MESSAGES, TOOLS, QWEN, instead=False)
    assert (action.method, action.forwards <= LONG_BUDGET) == ("flow_routes", True)
    assert f"at most {LONG_BUDGET} forward passes were made" in action.notes[0]
    measured = {n for n in range(len(action.sources)) if np.isfinite(action.effects[0, n])}
    whole = [n for n in measured if action.sources[n].parent is None]
    assert len(whole) == LONG_LIMITS.whole
    spoken = [n for n, one in enumerate(action.sources) if one.kind in ("system", "user", "tool result")]
    scores = [action.token_scores[0, list(action.sources[n].tokens)].clip(0).sum() for n in spoken]
    best = sorted(spoken, key=lambda n: -scores[spoken.index(n)])
    assert len(set(best[:4]) & set(whole)) >= 2  # the first token of a prompt is left out of the sums
    assert (action.token_scores[1] == action.token_scores[0]).all()


def test_a_budget_of_the_caller_or_a_method_stays(long):
    action = whyformer.explain_action(MESSAGES, TOOLS, QWEN, budget=40, method="generic_attention", instead=False)
    assert action.method == "generic_attention"
    assert not any("at most" in note for note in action.notes)
    whole = [n for n, one in enumerate(action.sources) if one.parent is None and np.isfinite(action.effects[0, n])]
    assert len(whole) > LONG_LIMITS.whole


def test_a_served_model_has_no_budget_by_default(long):
    action = explained({"send_money": EVIL})
    assert [action.sources[number].text for number in action.driver] == [EVIL]
    assert action.notes == ()


def test_prompts_that_run_alone_have_the_figures_of_a_batch(long):
    alone = whyformer.explain_action(MESSAGES, TOOLS, QWEN, instead=False)
    batch = whyformer.explain_action(MESSAGES, TOOLS, QWEN, instead=False, batch_size=4)
    np.testing.assert_allclose(alone.effects, batch.effects, atol=1e-3)
    assert LoadedScorer(QWEN)._alone([(1, 2, 3)]) == 1
