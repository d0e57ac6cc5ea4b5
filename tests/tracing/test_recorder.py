"""The recorder: every attention operation is seen, nothing else changes."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tiny_models import FAMILIES, IMAGE, TEXT, built, image_inputs, inputs_of, text_inputs
from whyformer import UnsupportedModel, WhyformerError, attribute
from whyformer.extend import FAMILIES as ROWS
from whyformer.tracing.build import trace
from whyformer.tracing.reads import Reads
from whyformer.watching.kernels import scaled_dot_product_attention
from whyformer.watching.watcher import Watcher


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


masks = st.sampled_from(["none", "bool", "additive", "bool with blind rows", "additive with blind rows"])


def mask_of(kind: str, queries: int, keys: int) -> Tensor | None:
    if kind == "none":
        return None
    kept = random(2, 1, queries, keys, seed=7) > -0.5
    kept[..., 0] = True
    if "blind" in kind:
        kept[0, :, 1] = False
    if "bool" in kind:
        return kept
    return random(2, 1, queries, keys, seed=8).masked_fill(~kept, -torch.inf)


@settings(max_examples=60, deadline=None)
@given(masks, st.booleans(), st.sampled_from([None, 0.3]), st.sampled_from([1, 2, 4]), st.integers(2, 6))
def test_the_written_out_attention_equals_the_fused_kernel(kind, is_causal, scale, key_heads, keys):
    query, key, value = random(2, 4, 5, 8), random(2, key_heads, keys, 8, seed=1), random(2, key_heads, keys, 8, seed=2)
    mask = mask_of(kind, 5, keys)
    if is_causal and mask is not None:
        return  # the fused kernel takes one or the other
    arguments = {"attn_mask": mask, "is_causal": is_causal, "scale": scale, "enable_gqa": key_heads != 4}
    weights, values = scaled_dot_product_attention(query, key, value, **arguments)
    expected = F.scaled_dot_product_attention(query, key, value, **arguments)
    torch.testing.assert_close(weights @ values, expected, rtol=1e-12, atol=1e-12)


def test_a_query_with_every_key_masked_attends_to_nothing_and_poisons_no_gradient():
    query, key, value = (random(2, 4, 5, 8, seed=s).requires_grad_() for s in range(3))
    weights, values = scaled_dot_product_attention(query, key, value, mask_of("bool with blind rows", 5, 5))
    assert (weights[0, :, 1] == 0).all()
    (weights @ values).sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in (query, key, value))


def test_dropout_of_the_kernel_is_honoured():
    query, key, value = (random(1, 2, 40, 8, seed=s) for s in range(3))
    torch.manual_seed(0)
    weights, _ = scaled_dot_product_attention(query, key, value, dropout_p=0.5)
    kept, _ = scaled_dot_product_attention(query, key, value)
    dropped = weights == 0
    assert 0.4 < dropped.double().mean() < 0.6
    torch.testing.assert_close(weights[~dropped], 2 * kept[~dropped])


def test_half_precision_softmax_runs_in_float32():
    query, key, value = (random(1, 2, 6, 8, seed=s).bfloat16() for s in range(3))
    weights, _ = scaled_dot_product_attention(query, key, value)
    scores = ((query * 8**-0.5) @ key.mT).float()
    assert torch.equal(weights, scores.softmax(dim=-1).bfloat16())


@settings(max_examples=60, deadline=None)
@given(
    batch_first=st.booleans(),
    batched=st.booleans(),
    separate=st.booleans(),
    need_weights=st.booleans(),
    average=st.booleans(),
    bias=st.booleans(),
    padding=st.sampled_from([None, "bool", "float"]),
    attn_mask=st.sampled_from([None, "2d bool", "2d float", "3d float", "causal"]),
)
def test_the_taken_apart_multi_head_attention_equals_pytorchs(
    batch_first, batched, separate, need_weights, average, bias, padding, attn_mask
):
    torch.manual_seed(0)
    sizes = {"kdim": 6, "vdim": 10} if separate else {}
    module = nn.MultiheadAttention(8, 2, batch_first=batch_first, bias=bias, dtype=torch.float64, **sizes).eval()
    shape = (lambda n, d: (3, n, d) if batch_first else (n, 3, d)) if batched else (lambda n, d: (n, d))
    query, key, value = (
        random(*shape(4, 8)),
        random(*shape(5, sizes.get("kdim", 8)), seed=1),
        random(*shape(5, sizes.get("vdim", 8)), seed=2),
    )
    arguments: dict = {"need_weights": need_weights, "average_attn_weights": average}
    if padding:
        left_out = torch.zeros((3, 5) if batched else (5,), dtype=torch.bool)
        left_out[..., 3:] = True
        arguments["key_padding_mask"] = left_out if padding == "bool" else left_out.double() * -3.0
    masks = {
        "2d bool": random(4, 5, seed=3) > 2.0,
        "2d float": random(4, 5, seed=3),
        "3d float": random(6 if batched else 2, 4, 5, seed=3),
        "causal": torch.ones(4, 5, dtype=torch.bool).triu(1),
    }
    if attn_mask:
        arguments["attn_mask"] = masks[attn_mask]
        arguments["is_causal"] = attn_mask == "causal"
    if (padding == "bool" and attn_mask in ("2d float", "3d float")) or (
        padding == "float" and attn_mask in ("2d bool", "causal")
    ):
        return  # PyTorch warns that mixed mask types are deprecated
    with torch.no_grad():
        expected, expected_weights = module(query, key, value, **arguments)
        recorder = Watcher(3 if batched else 1)
        got, weights = recorder.run(module, query, key, value, **arguments)
    assert recorder.seen == 1
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    assert (weights is None) == (expected_weights is None)
    if weights is not None:
        torch.testing.assert_close(weights, expected_weights, rtol=1e-12, atol=1e-12)


def test_multi_head_attention_with_added_keys_is_refused():
    module = nn.MultiheadAttention(8, 2, add_bias_kv=True).eval()
    with pytest.raises(UnsupportedModel, match="bias_k, bias_v adds keys that are not input tokens"):
        Watcher(1).run(module, *[torch.randn(4, 1, 8)] * 3)


class EncoderClassifier(nn.Module):
    """PyTorch's own encoder layers, read at the first token."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x)[:, 0])


def test_pytorchs_own_encoder_is_explained_by_structure():
    torch.manual_seed(0)
    model, x = EncoderClassifier().eval(), torch.randn(2, 7, 16)
    with torch.no_grad():
        plain = model(x)
    asked = trace(model, {"x": x}, 1, reads=Reads(maps="all", states=True))
    torch.testing.assert_close(asked.output, plain, rtol=1e-5, atol=1e-6)
    assert [record.path for record in asked.records] == [f"encoder.layers.{i}.self_attn.out_proj" for i in range(3)]
    assert asked.readout.weights.tolist() == [[1.0] + [0.0] * 6] * 2
    weight = model.encoder.layers[0].self_attn.in_proj_weight.detach()
    assert torch.equal(asked.records[0].value_weight, weight[32:])
    assert torch.equal(asked.records[0].key_state, x)


class SequenceFirst(nn.Module):
    """Blocks that hold their state as [token, example, channel], as nn.MultiheadAttention does by default."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.ModuleList(nn.MultiheadAttention(16, 2) for _ in range(2))
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = x.transpose(0, 1)
        for attention in self.attention:
            state = state + attention(state, state, state, need_weights=False)[0]
        return self.head(state[0])


@pytest.mark.parametrize("batch", [1, 3, 5])
def test_states_are_found_whichever_axis_comes_first(batch):
    torch.manual_seed(0)
    x = torch.randn(batch, 5, 16)  # five tokens: a batch of five cannot be told apart by its shape
    model = SequenceFirst().eval()
    first, second = trace(model, {"x": x}, 1, reads=Reads(maps="all", states=True)).records
    assert torch.equal(first.key_state, x)
    with torch.no_grad():
        state = x.transpose(0, 1)
        added = model.attention[0](state, state, state, need_weights=False)[0].transpose(0, 1)
    torch.testing.assert_close(second.key_state, x + added)


class Parallel(nn.Module):
    """Attention and MLP side by side on one normalised state, as in GPT-J."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down, self.head = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        query, key, value = self.qkv(normed).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return self.head((self.out(mixed) + self.down(self.up(normed).relu()) + x)[:, 0])


def test_a_parallel_mlp_is_not_taken_for_the_residual_state():
    torch.manual_seed(0)
    model, x = Parallel().eval(), torch.randn(3, 5, 16)
    (record,) = trace(model, {"x": x}, 1, reads=Reads(maps="all", states=True)).records
    assert torch.equal(record.key_state, x)
    assert torch.equal(record.value_weight, model.qkv.weight.detach()[32:])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_map_is_seen_in_order_with_its_path_weights_and_state(family):
    model, inputs = FAMILIES[family](), inputs_of(family)
    with torch.no_grad():
        output = model(**inputs)
    asked = trace(model, inputs, 1, reads=Reads(maps="all", states=True))
    logits = getattr(asked.output, "logits", asked.output)
    torch.testing.assert_close(logits, getattr(output, "logits", output), rtol=1e-5, atol=1e-6)
    assert [record.block for record in asked.records] == [0, 1, 2]
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for record in asked.records:
        assert f"{record.path}.weight" in parameters
        assert None not in (record.value, record.value_weight, record.output_weight, record.key_state)
        torch.testing.assert_close(record.map.sum(dim=-1), torch.ones_like(record.map.sum(dim=-1)))


@pytest.mark.parametrize(
    ("name", "config", "value_weight"),
    [
        ("GPT2ForSequenceClassification", {"n_embd": 48, "n_layer": 2, "n_head": 3, "n_positions": 40}, "fused"),
        ("LlamaForSequenceClassification", TEXT | {"num_key_value_heads": 1, "num_hidden_layers": 2}, "shared"),
    ],
)
def test_conv1d_and_grouped_values_are_traced_to_their_weights(name, config, value_weight):
    config = config | {"vocab_size": 60, "num_labels": 4, "pad_token_id": 0, "use_cache": False}
    model = built(name, name.replace("ForSequenceClassification", "Config"), **config)
    asked = trace(model, text_inputs(), 1, reads=Reads(maps="all", states=True), readout="last")
    record = asked.records[1]
    if value_weight == "fused":
        expected = model.transformer.h[1].attn.c_attn.weight.detach()[:, 96:].T
    else:
        expected = model.model.layers[1].self_attn.v_proj.weight.detach().repeat(3, 1)
    torch.testing.assert_close(record.value_weight, expected)
    normed = (model.transformer.h[1].ln_1 if value_weight == "fused" else model.model.layers[1].input_layernorm)(
        record.key_state
    )
    bias = model.transformer.h[1].attn.c_attn.bias[96:] if value_weight == "fused" else 0
    value = (normed @ expected.T + bias).unflatten(-1, (3, 16)).transpose(1, 2)
    torch.testing.assert_close(record.value, value.detach(), rtol=1e-4, atol=1e-5)


class Adapted(nn.Module):
    """A linear layer with a low-rank adapter beside it, as LoRA has it."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.linear, self.down, self.up = linear, nn.Linear(48, 2, bias=False), nn.Linear(2, 48, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.up(self.down(x)) * 0.5


@pytest.mark.parametrize("projection", ["o_proj", "v_proj"])
def test_bi_token_reads_an_adapter_into_the_weight_it_adapts(projection):
    model, merged = FAMILIES["vit"](), FAMILIES["vit"]()
    attention = model.vit.layers[1].attention
    adapted = Adapted(getattr(attention, projection))
    setattr(attention, projection, adapted)
    with torch.no_grad():
        weight = getattr(merged.vit.layers[1].attention, projection).weight
        weight += adapted.up.weight @ adapted.down.weight * 0.5
    scores = (attribute(one.eval(), image_inputs(), 0, "bi_token")["image"] for one in (model, merged))
    torch.testing.assert_close(*scores, rtol=1e-4, atol=1e-6)


def test_a_model_in_training_mode_is_refused():
    with pytest.raises(WhyformerError, match=r"training mode.*model\.eval\(\)"):
        attribute(FAMILIES["vit"]().train(), image_inputs(), 0, "rollout")


def test_a_model_without_attention_is_refused():
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x).softmax(dim=-1)

    with pytest.raises(UnsupportedModel, match="Plain ran no attention operation"):
        attribute(Plain().eval(), {"x": torch.randn(2, 8)}, 0, "rollout")


def test_kernels_that_hide_their_maps_are_refused():
    model = FAMILIES["vit"]()
    model.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(UnsupportedModel, match=r"flash_attention_2 attention cannot be recorded.*'sdpa'"):
        attribute(model, image_inputs(), 0, "rollout")


def test_a_partial_capture_is_refused():
    model = FAMILIES["vit"]()
    model.vit.layers[1].attention.forward = lambda x, *args, **kwargs: (x, None)
    with pytest.raises(UnsupportedModel, match="3 layers but only 2 attention operations"):
        attribute(model, image_inputs(), 0, "rollout")


def test_recorders_do_not_nest():
    model = FAMILIES["vit"]()

    class Nested(nn.Module):
        def forward(self, pixel_values: Tensor) -> Tensor:
            return attribute(model, {"pixel_values": pixel_values}, 0, "rollout")["image"]

    with pytest.raises(WhyformerError, match="explanations do not nest"):
        attribute(Nested().eval(), image_inputs(), 0, "rollout")


@pytest.mark.parametrize("method", ["rollout", "bi_token", "bi_head"])
def test_an_exception_inside_the_model_leaves_it_as_it_was(method):
    model, inputs = FAMILIES["bert"](), text_inputs()
    with torch.no_grad():
        before = model(**inputs).logits
    calls = 0
    head = model.classifier.forward

    def fail_at_the_end(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == (1 if method == "rollout" else 2):
            raise RuntimeError("the head broke")
        return head(x)

    model.classifier.forward = fail_at_the_end
    with pytest.raises(RuntimeError, match="the head broke"):
        attribute(model, inputs, 0, method)
    del model.classifier.forward
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.is_grad_enabled()
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, before)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("method", ["generic_attention", "bi_token", "grad_cam"])
def test_the_callers_gradient_mode_does_not_matter(method, mode):
    model, inputs = FAMILIES["bert"](), text_inputs()
    (expected,) = attribute(model, inputs, 1, method).values()
    with mode():
        made_inside = {name: value.clone() for name, value in inputs.items()}
        (got,) = attribute(model, made_inside, 1, method).values()
    assert torch.equal(got, expected)


class Checkpointed(nn.Module):
    def __init__(self, model: nn.Module, use_reentrant: bool):
        super().__init__()
        self.model, self.use_reentrant = model, use_reentrant

    def forward(self, pixel_values: Tensor) -> Tensor:
        state = self.model.vit.embeddings(pixel_values)
        for layer in self.model.vit.layers:
            state = checkpoint(layer, state, use_reentrant=self.use_reentrant)
        return self.model.classifier(self.model.vit.layernorm(state)[:, 0])


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(
    ("method", "use_reentrant"), [("generic_attention", True), ("generic_attention", False), ("grad_cam", True)]
)
def test_a_graph_hidden_by_checkpointing_is_refused_never_zero(method, use_reentrant):
    model = Checkpointed(FAMILIES["vit"](), use_reentrant).eval()
    with pytest.raises(WhyformerError, match="Turn gradient checkpointing off"):
        attribute(model, image_inputs(), 0, method, readout="first")


@pytest.mark.parametrize("method", ["rollout", "grad_cam", "bi_token"])
def test_checkpointing_that_hides_nothing_changes_nothing(method):
    model = FAMILIES["vit"]()
    expected = attribute(model, image_inputs(), 0, method)["image"]
    got = attribute(Checkpointed(model, False).eval(), image_inputs(), 0, method, readout="first")["image"]
    assert torch.equal(got, expected)


def test_a_score_that_no_attention_reaches_is_refused():
    with pytest.raises(WhyformerError, match="the target does not depend on it"):
        attribute(FAMILIES["vit"](), image_inputs(), lambda output: torch.ones(2), "generic_attention")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile's own imports
def test_a_compiled_model_is_unwrapped():
    model = FAMILIES["vit"]()
    expected = attribute(model, image_inputs(), 0, "generic_attention")["image"]
    assert torch.equal(attribute(torch.compile(model), image_inputs(), 0, "generic_attention")["image"], expected)


@pytest.mark.parametrize("method", ["generic_attention", "bi_token"])
def test_two_threads_explaining_one_model_give_the_single_thread_result(method):
    model = FAMILIES["bert"]()
    generator = torch.Generator().manual_seed(5)
    work = [{"input_ids": torch.randint(5, 60, (2, 9), generator=generator)} for _ in range(8)]
    expected = [attribute(model, inputs, 1, method)["text"] for inputs in work]
    got: dict[int, Tensor] = {}

    def explain(numbers: range) -> None:
        for number in numbers:
            got[number] = attribute(model, work[number], 1, method)["text"]

    threads = [threading.Thread(target=explain, args=(range(start, 8, 2),)) for start in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(8):  # threads may split the sums otherwise, so that the last bits differ
        largest = float(expected[number].abs().max())
        torch.testing.assert_close(got[number], expected[number], rtol=1e-5, atol=1e-6 * largest)


def test_a_shared_layer_is_recorded_once_per_use():
    asked = trace(FAMILIES["albert"](), text_inputs(), 0)
    assert len(asked.records) == 3
    assert len({record.path for record in asked.records}) == 1
    assert not torch.equal(asked.records[0].map, asked.records[1].map)


def swin() -> nn.Module:
    sizes = {
        "embed_dim": 12,
        "depths": [2, 2],
        "num_heads": [2, 3],
        "window_size": 4,
        "image_size": 32,
        "patch_size": 4,
    }
    return built("SwinForImageClassification", "SwinConfig", num_labels=4, **sizes)


@pytest.mark.parametrize("method", ["rollout", "generic_attention", "bi_head", "bi_token"])
def test_tokens_that_do_not_keep_their_places_need_a_row(monkeypatch, method):
    monkeypatch.delitem(ROWS, "swin")
    with pytest.raises(UnsupportedModel, match=r"SwinForImageClassification.*grad_cam or raw_attention"):
        attribute(swin(), image_inputs(), 0, method)


@pytest.mark.parametrize("has_row", [True, False])
def test_swin_is_explained_by_its_last_map(monkeypatch, has_row):
    if not has_row:
        monkeypatch.delitem(ROWS, "swin")

    def by_patch(scores: Tensor) -> Tensor:
        """Each of 4×4 tokens shares its score out among the four patches that it was merged of."""
        square = scores.reshape(2, 4, 4)
        return square.repeat_interleave(2, 1).repeat_interleave(2, 2).flatten(1) / 4 if has_row else scores

    model, inputs = swin(), image_inputs()
    last = trace(model, inputs, 2, reads=Reads(maps="last", gradients="last")).last
    assert last.map.shape == (2, 3, 16, 16)
    attention = last.map.mean(dim=(1, 2))  # every token is read alike
    torch.testing.assert_close(attribute(model, inputs, 2, "raw_attention")["image"], by_patch(attention))
    others = 1 - torch.eye(16)
    weights = (last.gradient * others).sum(dim=3, keepdim=True) / 15
    heat = (weights * last.map).mean(dim=(1, 2)).clamp(min=0)
    assert heat.any()
    torch.testing.assert_close(attribute(model, inputs, 2, "grad_cam")["image"], by_patch(heat))


def test_eager_models_give_the_maps_of_sdpa_models():
    model = built("ViTForImageClassification", "ViTConfig", **IMAGE)
    expected = trace(model, image_inputs(), 0)
    model.set_attn_implementation("eager")
    for eager, fused in zip(trace(model, image_inputs(), 0).records, expected.records, strict=True):
        torch.testing.assert_close(eager.map, fused.map)
        torch.testing.assert_close(eager.gradient, fused.gradient, rtol=1e-4, atol=1e-6)
