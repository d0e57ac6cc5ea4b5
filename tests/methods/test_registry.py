"""Methods of one's own: registered, checked, refused."""

import numpy as np
import pytest
import torch

import whyformer
from tiny_models import FAMILIES, text_inputs
from whyformer import METHODS, WhyformerError, attribute, explain, explain_response
from whyformer.extend import Attribution, Reads, head_mean, method
from whyformer.tracing.formulas import input_relevances, inputs_times_gradients


@pytest.fixture
def own(monkeypatch):
    """A registry that forgets what a test has registered."""
    for name in list(METHODS):
        monkeypatch.setitem(METHODS, name, METHODS[name])
    names = set(METHODS)
    yield
    for name in set(METHODS) - names:
        del METHODS[name]


@pytest.mark.usefixtures("own")
def test_an_option_without_an_annotation_takes_anything():
    @method("scaled_row", reads=Reads(maps="last"))
    def scaled_row(trace, *, factor=1):
        row = trace.readout.weights[:, None, :] @ head_mean(trace.last.map)
        return {"text": factor * row[:, 0]}

    model, inputs = FAMILIES["bert"](), text_inputs()
    once = attribute(model, inputs, 1, "scaled_row")["text"]
    torch.testing.assert_close(attribute(model, inputs, 1, "scaled_row", factor=2.5)["text"], 2.5 * once)


@pytest.mark.usefixtures("own")
def test_a_name_that_is_taken_is_refused_unless_it_is_to_be_replaced():
    with pytest.raises(WhyformerError, match=r"There is a method named 'rollout' already: .*replace=True"):
        method("rollout", reads=Reads(maps="all"))

    @method("rollout", reads=Reads(maps="last"), replace=True)
    def nothing(trace):
        return {"text": torch.zeros(trace.mask.shape)}

    assert not attribute(FAMILIES["bert"](), text_inputs(), 1, "rollout")["text"].any()


@pytest.mark.parametrize("reads", ["nope", "maps", None, {"maps": "all"}])
def test_what_a_method_reads_is_said_by_a_value_of_its_own(reads):
    with pytest.raises(WhyformerError, match=r"is not a Reads, such as whyformer.extend.Reads\(maps=\"all\"\)"):
        method("own", reads=reads)


def test_a_reading_that_does_not_exist_is_refused():
    with pytest.raises(WhyformerError, match=r"Reads: maps='first'. Choose from: none, last, all"):
        Reads(maps="first")
    with pytest.raises(WhyformerError, match=r"Reads: states='all'. Choose from: True, False, of others"):
        Reads(states="all")
    with pytest.raises(WhyformerError, match="not both"):
        Reads(gradients="all", inputs="gradients")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (
            {"txt": torch.ones(3, 9)},
            r"own returned scores of 'txt', which is not a stream of this model. Did you mean 'text'",
        ),
        ({"text": torch.ones(3, 8)}, r"own returned scores of shape \(3, 8\) for the stream 'text'.*\(3, 9\)"),
        ({"text": torch.ones(9)}, r"own returned scores of shape \(9,\)"),
        (None, "own returned nothing: return scores by stream, {trace.readout.stream: scores}."),
        (torch.ones(3, 9), "own returned a Tensor: return scores by stream"),
    ],
)
def test_scores_of_no_stream_or_of_another_shape_are_refused(scores, message):
    method("own", reads=Reads(maps="last"))(lambda trace: scores)
    with pytest.raises(WhyformerError, match=message):
        attribute(FAMILIES["bert"](), text_inputs(), 1, "own")


@pytest.mark.usefixtures("own")
def test_a_method_returns_what_it_measured():
    @method("noted", reads=Reads(maps="last"))
    def noted(trace):
        return Attribution({"text": torch.ones(3, 9)}, completeness=torch.tensor([0.0, 0.5, 1.0]), remarks=("So so.",))

    attribution = attribute(FAMILIES["bert"](), text_inputs(), 1, "noted")
    assert attribution.remarks == ("So so.",)
    assert attribution.completeness.tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("name", [5, None.__class__, ["rollout"]])
def test_a_method_is_given_by_its_name(name):
    with pytest.raises(WhyformerError, match=r"A method is given by name, not as .* Known: at2, attention_gradient"):
        attribute(FAMILIES["bert"](), text_inputs(), 1, name)


def test_the_words_for_what_methods_read():
    assert {name: str(each.reads) for name, each in METHODS.items()} == {
        "raw_attention": "last map",
        "rollout": "maps",
        "random": "last map",
        "bi_head": "gradients",
        "bi_token": "maps, states",
        "generic_attention": "gradients",
        "grad_cam": "last gradient",
        "attention_gradient": "gradients",
        "input_x_gradient": "inputs",
        "integrated_gradients": "inputs",
        "lrp": "input relevances",
        "partial_lrp": "last relevance",
        "transformer_attribution": "relevances",
        "flow_routes": "maps, states",
        "state_x_gradient": "state gradients",
        "full_grad": "state gradients",
        "evidence": "gradients, states",
        "grad_eclip": "last gradient, states",
        "gradient_shap": "inputs",
        "consensus": "gradients",
        "tam": "logits",
        "at2": "maps, states",
        **dict.fromkeys(["occlusion", "caap", "rise", "kernel_shap", "lime", "mask_regression"], "answers"),
        **dict.fromkeys(["attntrace", "context_ablation", "depass", "leave_one_out"], "answers"),
    }


def test_every_method_says_what_it_explains():
    others = {name: each.kinds for name, each in METHODS.items() if each.kinds != ("example", "response")}
    assert others == {
        "tam": ("image prompt",),
        "caap": ("example",),
        **dict.fromkeys(["at2", "attntrace", "context_ablation", "depass", "leave_one_out"], ("response",)),
        **dict.fromkeys(
            ["occlusion", "rise", "kernel_shap", "lime", "mask_regression"], ("example", "response", "function")
        ),
    }


@pytest.mark.usefixtures("own")
def test_a_method_of_ones_own_that_removes_units_explains_examples_responses_and_functions():
    @method("alone", reads=Reads(subsets=True))
    def alone(ablation):
        """The score of each unit by itself, less that of nothing."""
        masks = [np.concatenate([np.zeros((1, units.count)), np.eye(units.count)]) > 0 for units in ablation.examples]
        nothing, *each = ablation.scores(masks)
        return [np.stack(each)[: units.count, n] - nothing[n] for n, units in enumerate(ablation.examples)]

    lengths = explain("a bb ccc", predict=lambda texts: [[float(len(text))] for text in texts], method="alone")
    np.testing.assert_allclose(lengths.scores, [1, 2, 3])
    assert explain("A wonderful film.", "mini-bert", method="alone").method == "alone"
    assert explain_response("The film was", " great", method="alone").method == "alone"


@pytest.mark.parametrize(("former", "name"), [("ABLATION_METHODS", "rise"), ("SOURCE_METHODS", "leave_one_out")])
def test_former_names_work_and_say_what_to_use(former, name):
    with pytest.warns(
        DeprecationWarning, match=rf"whyformer.{former} will be removed in version 0.4: use whyformer.METHODS"
    ):
        assert name in getattr(whyformer, former)


def test_a_kind_that_does_not_exist_is_refused():
    with pytest.raises(WhyformerError, match=r"odd: kinds='video'\. Choose from: example, response, function, image"):
        method("odd", reads=Reads(maps="all"), kinds=("video",))


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (inputs_times_gradients, r'build it with reads=Reads\(inputs="gradients"\)'),
        (
            lambda trace: input_relevances(trace, "dtd", strict=True),
            r'build it with reads=Reads\(inputs="relevances"\)',
        ),
        (lambda trace: {"text": trace.last.gradient.sum(dim=(1, 2))}, r"This trace has no gradients"),
    ],
)
def test_a_method_that_reads_more_than_it_said_is_told_so(formula, message):
    method("greedy", reads=Reads(maps="last"))(formula)
    with pytest.raises(WhyformerError, match=message):
        attribute(FAMILIES["bert"](), text_inputs(), 1, "greedy")
