"""Going back block by block gives what the whole graph gives, and leaves the model as it was."""

import copy
import re
from functools import cache, wraps
from typing import get_args

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pairs import pairs
from tiny_architectures import DECODERS, OTHERS
from tiny_models import FAMILIES, STREAM_FAMILIES, built, inputs_of, noise, text_inputs
from tiny_sounds import WAVE_FAMILIES
from whyformer import UnsupportedModel, WhyformerError, attribute, contrast
from whyformer.api.memory_estimate import peak_bytes
from whyformer.backward import attention_rules as attention
from whyformer.backward.blocks import find_blocks
from whyformer.backward.kinds import OPERATION_KINDS
from whyformer.backward.rule_graph import NoRule
from whyformer.backward.rules import RULES, MapRules
from whyformer.extend import Reads
from whyformer.methods.registry import trace_methods
from whyformer.tracing import build, plan
from whyformer.tracing.formulas import map_relevances
from whyformer.watching import attention_calls, kernels, mixing

STACKS = [name for name in FAMILIES if find_blocks(FAMILIES[name]())]
WAYS = [
    ("generic_attention", {}),
    ("generic_attention", {"backward": "libra"}),
    ("generic_attention", {"clamp": "after"}),
    ("attention_gradient", {}),
    ("bi_head", {"steps": 2}),
    ("input_x_gradient", {}),
    ("input_x_gradient", {"backward": "libra"}),
    ("integrated_gradients", {"steps": 3}),
    ("integrated_gradients", {"steps": 3, "backward": "libra"}),
    ("generic_attention", {"backward": "attn_lrp"}),
    ("input_x_gradient", {"backward": "attn_lrp"}),
    ("lrp", {"rules": "attn_lrp"}),
    ("lrp", {"rules": "attn_lrp", "precision": "fast"}),
    ("lrp", {"rules": "z_plus"}),
    ("lrp", {"rules": "dtd"}),
    ("lrp", {"rules": "lrp"}),
    ("transformer_attribution", {}),
    ("transformer_attribution", {"backward": "libra", "rules": "z_plus"}),
    ("transformer_attribution", {"rules": "attn_lrp", "precision": "fast"}),
    ("generic_attention", {"maps": "relevance"}),
    ("state_x_gradient", {}),
    ("state_x_gradient", {"blocks": "weighted", "backward": "attn_lrp"}),
    ("evidence", {}),
]


# How a block runs again does not depend on the method, nor what is read of it on the family: each is tried on some.
SOME_WAYS = [
    ("generic_attention", {}),
    ("input_x_gradient", {"backward": "libra"}),
    ("lrp", {"rules": "attn_lrp"}),
    ("transformer_attribution", {}),
    ("evidence", {}),
]
CASES = [
    (method, options, family)
    for (method, options), family in pairs(WAYS, STACKS, with_all=["bert", ("evidence", {})], every=6)
]


def named(part):
    return part if isinstance(part, str) else " ".join(map(str, part))


@cache
def double_model(family):
    return (STREAM_FAMILIES[family][0] if family in STREAM_FAMILIES else FAMILIES[family])().double()


def double(inputs):
    return {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}


def test_most_families_are_stacks_of_blocks():
    assert {"bert", "vit", "dinov2"} <= set(STACKS)


@pytest.mark.parametrize(("method", "options", "family"), CASES, ids=named)
def test_going_block_by_block_gives_what_the_whole_graph_gives(method, options, family):
    model, inputs = double_model(family), double(inputs_of(family))
    expected = attribute(model, inputs, 1, method, checkpoint=False, **options)
    forwards = [vars(block).get("forward") for block in find_blocks(model)]
    scores = attribute(model, inputs, 1, method, checkpoint=True, **options)
    assert [vars(block).get("forward") for block in find_blocks(model)] == forwards == [None] * len(forwards)
    for stream, values in expected.items():
        torch.testing.assert_close(scores[stream], values, rtol=1e-7, atol=1e-8 * float(values.abs().max()) + 1e-15)


@cache
def half_decoder():
    config = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    model = built("LlamaForCausalLM", "LlamaConfig", vocab_size=60, num_key_value_heads=2, **config).bfloat16()
    return model, copy.deepcopy(model).float()


@pytest.mark.parametrize(("method", "options"), WAYS, ids=named)
def test_a_decoder_of_half_precision_goes_block_by_block(method, options):
    model, single = half_decoder()
    inputs = {"input_ids": torch.arange(3, 21)[None], "logits_to_keep": 1}
    (expected,) = attribute(single, inputs, 1, method, checkpoint=False, **options).values()
    (scores,) = attribute(model, inputs, 1, method, checkpoint=True, **options).values()
    assert scores.dtype == torch.float32
    assert float((scores - expected).norm() / expected.norm()) < 0.08


def small_llama(blocks):
    config = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": blocks, "num_attention_heads": 2}
    return built("LlamaForCausalLM", "LlamaConfig", vocab_size=60, num_key_value_heads=2, **config)


@pytest.mark.parametrize("method", ["generic_attention", "state_x_gradient", "evidence", "transformer_attribution"])
def test_block_by_block_a_block_more_of_words_keeps_one_state_more(method):
    inputs = {"input_ids": torch.arange(256)[None] % 50 + 3, "logits_to_keep": 1}
    peaks = [
        peak_bytes(lambda model=model: attribute(model, inputs, 1, method, checkpoint=True), model)
        for model in map(small_llama, (2, 8))
    ]
    state = 256 * 64 * 4
    assert peaks[1] - peaks[0] < 6 * 1.1 * state


def test_states_of_words_are_noted_block_by_block_for_a_method_that_reads_them():
    model, inputs = FAMILIES["bert"](), inputs_of("bert")
    kept, left_out = (
        build.trace(
            model, inputs, 1, reads=Reads(gradients="all", states=states, state_gradients=True), checkpoint=True
        )
        for states in (True, "of others")
    )
    assert kept.last.key_state is not None
    assert left_out.last.key_state is None


def test_blocks_are_as_they_were_after_an_error():
    model = FAMILIES["bert"]()
    with pytest.raises(WhyformerError, match="IndexError: index out of range"):
        attribute(
            model, inputs_of("bert") | {"input_ids": torch.full((3, 9), 1000)}, 1, "generic_attention", checkpoint=True
        )
    assert all("forward" not in vars(block) for block in find_blocks(model))


@pytest.mark.parametrize("method", trace_methods())
def test_whatever_reads_nothing_of_blocks_takes_the_switch_too(method):
    model, inputs = FAMILIES["bert"]().double(), inputs_of("bert")
    expected = attribute(model, inputs, 1, method)
    scores = attribute(model, inputs, 1, method, checkpoint=True)
    torch.testing.assert_close(dict(scores), dict(expected), rtol=1e-7, atol=1e-9)


@cache
def model_of(name):
    return {**DECODERS, **OTHERS}[name]()


@pytest.mark.parametrize(
    ("name", "method", "options"),
    [
        (name, method, options)
        for name in ("BLOOM", "MPT", "DeBERTa", "Gemma 2", "GPT-OSS")
        for method, options in (WAYS if name in ("DeBERTa", "GPT-OSS") else SOME_WAYS)
    ],
    ids=named,
)
def test_models_that_make_their_maps_themselves_go_block_by_block_too(name, method, options):
    model = model_of(name)
    inputs = {key: value[:1] for key, value in text_inputs().items()}
    expected = attribute(model, inputs, 1, method, checkpoint=False, **options)["text"]
    scores = attribute(model, inputs, 1, method, checkpoint=True, **options)["text"]
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["Longformer", "Mamba"])
def test_models_without_maps_go_block_by_block_for_what_reads_inputs(name):
    model = OTHERS[name]().double()
    for method, options in (("input_x_gradient", {"backward": "libra"}), ("lrp", {"rules": "attn_lrp"})):
        expected = attribute(model, text_inputs(), 1, method, checkpoint=False, **options)["text"]
        scores = attribute(model, text_inputs(), 1, method, checkpoint=True, **options)["text"]
        torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["XLM", "T5"])
@pytest.mark.parametrize("method", ["generic_attention", None])
def test_a_model_that_is_no_stack_of_blocks_does_not_pass_over_the_switch(name, method):
    make, inputs = {
        "XLM": (OTHERS["XLM"], text_inputs()),
        "T5": (STREAM_FAMILIES["t5"][0], STREAM_FAMILIES["t5"][1]()),
    }[name]
    model = make()
    reason = f"{type(model).__name__} is not a single stack of blocks, so that checkpoint=True cannot run block by"
    with pytest.raises(UnsupportedModel, match=reason):
        attribute(model, inputs, 1, method, checkpoint=True)


def test_a_method_that_goes_back_as_a_whole_says_so():
    remark = "checkpoint=True has no effect: {} has no backward pass by blocks."
    for method in ("rollout", "partial_lrp", "bi_token"):
        attribution = attribute(FAMILIES["bert"](), inputs_of("bert"), 1, method, checkpoint=True)
        assert attribution.remarks == (remark.format(method),)
    noisy = {"noise": 0.1, "noise_samples": 2}
    assert not attribute(
        FAMILIES["bert"](), inputs_of("bert"), 1, "generic_attention", checkpoint=True, **noisy
    ).remarks


OF_INPUTS = [("lrp", {"rules": rules}) for rules in RULES]
OF_MAPS = [("transformer_attribution", {"rules": rules}) for rules in get_args(MapRules)]
OTHERWISE = [
    ("transformer_attribution", {"weight": "attention", "normalise_rows": True, "first_block": 1}),
    ("generic_attention", {"maps": "relevance", "clamp": "after"}),
]


def set_tiles(monkeypatch, entries):
    monkeypatch.setattr(attention, "TILE_ENTRIES", entries)
    monkeypatch.setattr(mixing, "TILE", entries)


ASKED = {
    "bert label": ("bert", 1),
    "bert contrast": ("bert", contrast(1, 2)),
    "vit label": ("vit", 1),
    "gpt2 contrast": ("gpt2", contrast(1, 2)),
    "llama label": ("llama", 1),
}


@pytest.mark.parametrize(
    ("way", "asked"), pairs([*OF_INPUTS, *OF_MAPS, *OTHERWISE], [*ASKED], with_all=["bert contrast"]), ids=named
)
def test_relevance_goes_through_attention_tile_by_tile(way, asked, monkeypatch):
    (method, options), (family, target) = way, ASKED[asked]
    inputs = double(STREAM_FAMILIES[family][1]() if family in STREAM_FAMILIES else inputs_of(family))
    model = double_model(family)
    expected = attribute(model, inputs, target, method, checkpoint=False, **options)
    set_tiles(monkeypatch, 100)
    scores = attribute(model, inputs, target, method, checkpoint=True, **options)
    for stream, values in expected.items():
        torch.testing.assert_close(scores[stream], values, rtol=1e-9, atol=1e-9 * float(values.abs().max()))


class Largest(TorchDispatchMode):
    """The entries of the largest tensor that is made while inside."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [x.numel() for x in tree_leaves(result) if isinstance(x, torch.Tensor) and not x.is_meta]
        self.entries = max([self.entries, *made])
        return result


@pytest.mark.parametrize(("method", "options"), [*OF_INPUTS, *OF_MAPS, *OTHERWISE])
def test_no_map_is_whole_where_relevance_goes_by_tiles(method, options, monkeypatch):
    model, tokens = small_llama(2), 128
    set_tiles(monkeypatch, 2 * tokens * 16)
    inputs = {"input_ids": torch.arange(tokens)[None] % 50 + 3, "logits_to_keep": 1}
    largest = {}
    for checkpoint in (False, True):
        with Largest() as seen:
            attribute(model, inputs, 1, method, checkpoint=checkpoint, **options)
        largest[checkpoint] = seen.entries
    assert largest[False] == 2 * tokens**2
    assert largest[True] < tokens**2


def test_gradient_and_relevance_go_back_together_so_that_a_block_runs_again_once():
    model, inputs, runs = FAMILIES["bert"](), inputs_of("bert"), []
    for number, block in enumerate(find_blocks(model)):
        block.register_forward_pre_hook(lambda block, args, number=number: runs.append(number))
    attribute(model, inputs, contrast(1, 2), "transformer_attribution", checkpoint=True)
    assert runs == [0, 1, 2, 2, 1, 0]


@pytest.mark.parametrize("rules", get_args(MapRules))
def test_a_trace_gives_relevances_by_one_rule_set_after_another(rules):
    model, inputs, reads = (
        FAMILIES["bert"]().double(),
        inputs_of("bert"),
        trace_methods()["transformer_attribution"].reads,
    )
    whole, by_blocks = (
        build.trace(model, inputs, 1, reads=reads, checkpoint=checkpoint) for checkpoint in (False, True)
    )
    map_relevances(by_blocks, "dtd" if rules == "z_plus" else "z_plus", strict=True)[by_blocks.last]
    expected, relevances = (map_relevances(trace, rules, strict=True) for trace in (whole, by_blocks))
    for each in whole.records:
        torch.testing.assert_close(relevances[each], expected[each], rtol=1e-9, atol=1e-12)
    assert relevances.remarks == expected.remarks == ()


def test_a_rule_set_without_a_rule_for_attention_as_a_whole_keeps_the_maps_of_a_block(monkeypatch):
    model, inputs = FAMILIES["bert"]().double(), inputs_of("bert")
    own = {kind: rule for kind, rule in RULES["dtd"].items() if kind != "attention"}
    expected = attribute(model, inputs, 1, "transformer_attribution", checkpoint=True)
    monkeypatch.setitem(RULES, "dtd", own)
    scores = attribute(model, inputs, 1, "transformer_attribution", checkpoint=True)
    torch.testing.assert_close(scores["text"], expected["text"], rtol=1e-9, atol=1e-12)


def test_what_passed_without_a_rule_is_said_once_the_blocks_have_been_gone_through(monkeypatch):
    monkeypatch.delitem(OPERATION_KINDS, "gelu")
    model, inputs = FAMILIES["bert"](), inputs_of("bert")
    whole, by_blocks = (
        attribute(model, inputs, 1, "transformer_attribution", strict=False, checkpoint=checkpoint)
        for checkpoint in (False, True)
    )
    assert whole.remarks == by_blocks.remarks
    assert by_blocks.remarks[0].startswith("Backpropagated by gradient, without a rule: gelu in bert.encoder.layer.0")
    with pytest.raises(NoRule, match=r"Relevance reached gelu in bert\.encoder\.layer"):
        attribute(model, inputs, 1, "transformer_attribution", checkpoint=True)


def test_hooks_of_a_block_are_part_of_it_and_run_once_on_the_way_back():
    model, inputs = FAMILIES["bert"]().double(), inputs_of("bert")
    find_blocks(model)[1].register_forward_pre_hook(lambda block, args: (args[0] * 1.5, *args[1:]))
    find_blocks(model)[1].register_forward_hook(lambda block, args, output: output * 0.7)
    expected = attribute(model, inputs, 1, "generic_attention", checkpoint=False)["text"]
    torch.testing.assert_close(attribute(model, inputs, 1, "generic_attention", checkpoint=True)["text"], expected)


def test_blocks_with_something_between_them_go_back_as_a_whole(monkeypatch):
    model, inputs = FAMILIES["bert"]().double(), inputs_of("bert")
    attend = type(model.bert.encoder.layer[1]).__call__

    class ScaledLayer(type(model.bert.encoder.layer[1])):
        def __call__(self, state, *args, **kwargs):
            return attend(self, state * 1.5, *args, **kwargs)

    model.bert.encoder.layer[1].__class__ = ScaledLayer
    expected = attribute(model, inputs, 1, "generic_attention", checkpoint=False)["text"]
    monkeypatch.setattr(plan, "KEPT", 0)  # from now on every map is too large
    torch.testing.assert_close(attribute(model, inputs, 1, "generic_attention")["text"], expected)
    with pytest.raises(UnsupportedModel, match="pass more than one state: it cannot be explained block by block"):
        attribute(model, inputs, 1, "generic_attention", checkpoint=True)


@pytest.mark.parametrize("method", ["generic_attention", "lrp", "transformer_attribution"])
def test_a_model_whose_attention_is_not_in_what_looks_like_its_blocks_goes_back_as_a_whole(method, monkeypatch):
    model, inputs = WAVE_FAMILIES["wav2vec2"](), {"input_values": noise(1, 4000)}  # as many convolutions as blocks
    expected = attribute(model, inputs, 1, method, checkpoint=False)
    monkeypatch.setattr(plan, "KEPT", -1)  # from now on every map is too large
    torch.testing.assert_close(dict(attribute(model, inputs, 1, method)), dict(expected))
    with pytest.raises(
        UnsupportedModel, match="has attention outside its blocks: it cannot be explained block by block"
    ):
        attribute(model, inputs, 1, method, checkpoint=True)


@pytest.mark.parametrize(("free", "by_blocks"), [(None, False), (2 * 2 * 3 * 4 * 9**2 * 4, False), (10_000, True)])
def test_a_graph_whose_maps_are_more_than_is_free_is_gone_through_block_by_block(free, by_blocks, monkeypatch):
    model, inputs = OTHERS["DeBERTa"](), text_inputs()
    monkeypatch.setattr(plan, "free_bytes", lambda device: free)
    assert build.trace(model, inputs, 1).question.by_blocks is by_blocks
    assert not build.trace(model, inputs, 1, checkpoint=False).question.by_blocks
    assert not build.trace(model.bfloat16(), inputs, 1).question.by_blocks


@pytest.mark.parametrize("value", ["yes", 1, 0.0, "False"])
def test_a_switch_that_is_neither_on_nor_off_is_refused(value):
    reason = f"checkpoint={value!r}: use True, False, or None to decide by the size of the maps."
    with pytest.raises(WhyformerError, match=re.escape(reason)):
        attribute(FAMILIES["bert"](), inputs_of("bert"), 1, "generic_attention", checkpoint=value)


@pytest.mark.parametrize("backward", ["gradient", "attn_lrp", "libra"])
def test_a_long_prompt_takes_the_output_of_its_attention_from_the_first_pass(backward, monkeypatch):
    model, inputs = small_llama(2).double(), {"input_ids": torch.arange(40)[None] % 50 + 3, "logits_to_keep": 1}
    method = {"method": "generic_attention", "backward": backward, "checkpoint": True}
    (expected,) = attribute(model, inputs, 1, **method).values()
    rerun, kept = attention_calls.rerun_attention, []

    @wraps(rerun)
    def counted(*args, **how):
        kept.append(how)
        return rerun(*args, **how)

    monkeypatch.setattr(attention_calls, "KEPT_OUTPUT", 8)
    monkeypatch.setattr(attention_calls, "rerun_attention", counted)
    (scores,) = attribute(model, inputs, 1, **method).values()
    assert len(kept) == 2
    torch.testing.assert_close(scores, expected, rtol=1e-12, atol=1e-12)


def test_an_output_that_the_model_changes_in_place_is_computed_again():
    call = kernels.Attention(*(torch.randn(1, 2, 1_024, 8) for _ in range(3)), is_causal=True)
    kept = attention_calls.KeptOutput.of(call)
    assert kept is not None
    assert kept.fits(call)
    kept.values.add_(1)
    assert not kept.fits(call)
