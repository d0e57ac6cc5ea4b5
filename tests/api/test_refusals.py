"""What cannot be done is refused in a line that names the thing, the value and the way out."""

import pytest
import torch

from tiny_architectures import DECODERS
from tiny_models import FAMILIES, image_inputs, text_inputs
from whyformer import UnsupportedModel, WhyformerError, attribute, box_side, explain, explain_batch, load, similarity


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (similarity(), r"similarity\(\) is for dual encoders \(CLIP\): this model returns no embeddings"),
        (box_side(0, "x"), r"box_side\(\) is for detectors: this model's output has no boxes"),
    ],
    ids=["similarity", "box_side"],
)
def test_a_score_of_another_kind_of_model_is_refused(target, message):
    with pytest.raises(WhyformerError, match=message):
        attribute(FAMILIES["bert"](), text_inputs(), target, "rollout")


def test_a_side_that_no_box_has_is_refused():
    with pytest.raises(WhyformerError, match=r"box_side: side='depth'. Choose from: x, y, width, height"):
        box_side(0, "depth")


def test_a_model_without_weights_is_refused():
    with torch.device("meta"):
        model = type(FAMILIES["bert"]())(FAMILIES["bert"]().config).eval()
    with pytest.raises(UnsupportedModel, match=r"is on the meta device, without weights: load it on a real one"):
        attribute(model, text_inputs(), 1, "rollout")


@pytest.mark.parametrize("size", [1.5, 0, -3, "8", True])
def test_a_batch_size_is_a_whole_number(bert, size):
    with pytest.raises(WhyformerError, match=rf"batch_size={size!r}: a whole number, at least 1"):
        explain_batch(["the film was great"], load(bert), batch_size=size)


@pytest.mark.parametrize("method", ["integrated_gradients", "bi_token"])
def test_a_baseline_of_another_shape_is_refused(method):
    said = r"The baseline has shape \(3, 31, 32\), the pixels of an example \(3, 32, 32\)"
    with pytest.raises(WhyformerError, match=said):
        attribute(FAMILIES["vit"](), image_inputs(), 1, method, baseline=torch.zeros(3, 31, 32))


@pytest.mark.parametrize("processor", ["x", 5])
def test_a_processor_is_an_object_that_makes_inputs(bert, processor):
    model = load(bert).model
    with pytest.raises(WhyformerError, match=rf"processor={processor!r} is neither a tokenizer nor an image processor"):
        explain("the film was great", model, processor=processor)


@pytest.mark.parametrize("model", [5, None, ["mini-vit"]])
def test_a_model_is_a_name_a_folder_or_a_module(model):
    with pytest.raises(WhyformerError, match=r"A model is a name, a folder, a Hugging Face id, or a torch.nn.Module"):
        explain("the film was great", model)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor:UserWarning")
def test_a_dynamically_quantised_model_is_explained_by_its_maps_and_refused_by_gradients(bert):
    loaded = load(bert)
    expected = explain("the film was great", loaded, method="rollout").scores
    model = torch.ao.quantization.quantize_dynamic(loaded.model, {torch.nn.Linear}, dtype=torch.qint8)
    scores = explain("the film was great", model, method="rollout", processor=loaded.processor).scores
    assert abs(scores - expected).max() < 0.1 * abs(expected).max()
    with pytest.raises(UnsupportedModel, match=r"has quantised layers \(Linear\), which have no gradient"):
        explain("the film was great", model, method="generic_attention", processor=loaded.processor)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize("name", ["Llama", "GPT-NeoX"])
def test_a_quantised_model_that_writes_is_read_at_its_last_token(name):
    model = DECODERS[name]()
    quantised = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    for method in ("rollout", "raw_attention"):
        expected = attribute(model, text_inputs(), 1, method)["text"]  # read where the gradient says
        scores = attribute(quantised, text_inputs(), 1, method)["text"]
        assert (scores - expected).abs().max() < 0.1 * expected.abs().max()
        torch.testing.assert_close(scores, attribute(quantised, text_inputs(), 1, method, readout="last")["text"])
    default = attribute(quantised, text_inputs(), 1)
    torch.testing.assert_close(default["text"], attribute(quantised, text_inputs(), 1, "rollout")["text"])
    remark, worth = default.remarks
    assert "causal" in worth
    assert remark.startswith(f"evidence does not apply here ({type(model).__name__} has quantised layers (Linear)")
    assert remark.endswith("): rollout instead.")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor:UserWarning")
def test_a_quantised_model_without_a_row_is_to_be_told_where_it_is_read():
    model = FAMILIES["mpnet (by structure)"]()
    quantised = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    reason = "MPNetForSequenceClassification has layers without a gradient, so its read-out cannot be found: give it"
    with pytest.raises(UnsupportedModel, match=reason):
        attribute(quantised, text_inputs(), 1, "rollout")
    scores = attribute(quantised, text_inputs(), 1, readout="first")
    expected = attribute(model, text_inputs(), 1, "rollout")["text"]
    assert (scores["text"] - expected).abs().max() < 0.1 * expected.abs().max()
