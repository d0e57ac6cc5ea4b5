"""PA-LRP, the relevance of positions kept, against AttnLRP as a gradient written out by hand in float64."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from test_reference import double
from torch import Tensor, nn
from torch.nn import functional as F

from tiny_models import STREAM_FAMILIES, built
from whyformer import UnsupportedModel, attribute

SIZES = {"vocab_size": 60, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "pad_token_id": 0}
SIZES |= {"num_key_value_heads": 1, "intermediate_size": 32, "bos_token_id": 1, "eos_token_id": 2}
TOKENS = torch.tensor([[7, 20, 33, 8, 41], [9, 30, 11, 0, 0]])
INPUTS = {"input_ids": TOKENS, "attention_mask": (TOKENS > 0).long()}
KEEP = {"rules": "attn_lrp", "positions": "keep"}


@pytest.fixture(scope="module")
def llama() -> nn.Module:
    return built("LlamaForCausalLM", "LlamaConfig", max_position_embeddings=20, **SIZES).double()


@pytest.fixture(scope="module")
def gpt2() -> nn.Module:
    sizes = {"vocab_size": 60, "n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 20, "pad_token_id": 0}
    return built("GPT2LMHeadModel", "GPT2Config", bos_token_id=1, eos_token_id=2, **sizes).double()


def halves(product, a: Tensor, b: Tensor) -> Tensor:
    """A product of which each factor gets half of its gradient."""
    return (product(a, b.detach()) + product(a.detach(), b)) / 2


def times(a: Tensor, b: Tensor) -> Tensor:
    return halves(torch.mul, a, b)


def normed(norm: nn.Module, x: Tensor) -> Tensor:
    """RMSNorm with a constant denominator."""
    return norm.weight.detach() * x * (x.detach().square().mean(dim=-1, keepdim=True) + norm.variance_epsilon).rsqrt()


def llama_by_hand(model: nn.Module, ids: Tensor, *, keeps_positions: bool = True) -> SimpleNamespace:
    """A Llama whose gradient is AttnLRP's; embeddings, and the cosines and sines of positions, are leaves.

    Its `maps` are each with what the softmax was given; positions that are not kept are constants of a rotation.
    """
    x = model.model.embed_tokens(ids).detach().requires_grad_()
    cos, sin = (
        part.detach().requires_grad_() for part in model.model.rotary_emb(x.detach(), torch.arange(ids.shape[1])[None])
    )
    leaves = SimpleNamespace(words=x, positions=[cos, sin], maps=[])
    turn = times if keeps_positions else torch.mul
    mask = torch.full((ids.shape[1],) * 2, -torch.inf, dtype=torch.float64).triu(1)

    def turned(y: Tensor) -> Tensor:
        first, second = y.chunk(2, dim=-1)
        return turn(y, cos[:, None]) + turn(torch.cat([-second, first], dim=-1), sin[:, None])

    for block in model.model.layers:
        attention, y = block.self_attn, normed(block.input_layernorm, x)
        layers = (attention.q_proj, attention.k_proj, attention.v_proj)
        q, k, v = (F.linear(y, one.weight.detach()).unflatten(-1, (-1, 12)).transpose(1, 2) for one in layers)
        q, k = turned(q), turned(k)
        k, v = (part.expand(-1, q.shape[1], -1, -1) for part in (k, v))
        alike = halves(torch.matmul, q, k.mT) / 12**0.5
        weights = (alike + mask).softmax(dim=-1)
        leaves.maps.append((weights, alike.detach()))
        mixed = halves(torch.matmul, weights, v).transpose(1, 2).flatten(2)
        x = x + F.linear(mixed, attention.o_proj.weight.detach())
        y, mlp = normed(block.post_attention_layernorm, x), block.mlp
        gate, up = (F.linear(y, one.weight.detach()) for one in (mlp.gate_proj, mlp.up_proj))
        x = x + F.linear(times(gate * gate.sigmoid().detach(), up), mlp.down_proj.weight.detach())
    leaves.logits = F.linear(normed(model.model.norm, x), model.lm_head.weight.detach())[0, -1]
    return leaves


def test_kept_rotations_equal_their_twin_by_hand(llama):
    leaves = llama_by_hand(llama, TOKENS[:1])
    torch.testing.assert_close(leaves.logits, llama(TOKENS[:1]).logits[0, -1].detach(), rtol=1e-5, atol=1e-7)
    inputs = [leaves.words, *leaves.positions]
    parts = [x * g for x, g in zip(inputs, torch.autograd.grad(leaves.logits[5], inputs), strict=True)]
    expected = sum(part.sum(dim=-1) for part in parts).detach()
    own = {"input_ids": TOKENS[:1]}
    fast = attribute(llama, own, 5, "lrp", precision="fast", **KEEP)["text"]
    torch.testing.assert_close(fast, expected, rtol=1e-5, atol=1e-7)  # Llama normalises in float32
    strict = attribute(llama, own, 5, "lrp", **KEEP)["text"]
    torch.testing.assert_close(strict, expected, rtol=1e-2, atol=1e-5)  # ε is in every denominator


def held_by_softmax(leaves: SimpleNamespace, score: Tensor) -> Tensor:
    """The relevance that stays with the softmax's constant: A = J x + (A − J x), J its derivative at x."""
    maps = [weights for weights, _ in leaves.maps]
    total = torch.zeros((), dtype=torch.float64)
    for (weights, alike), gradient in zip(
        leaves.maps, torch.autograd.grad(score, maps, retain_graph=True), strict=True
    ):
        linear = weights * (alike - (weights * alike).sum(dim=-1, keepdim=True))
        total = total + ((weights - linear) * gradient).sum()
    return total.detach()


def test_by_attn_lrp_the_first_states_of_a_model_without_biases_add_up_to_the_score_less_what_constants_hold(llama):
    leaves, own = llama_by_hand(llama, TOKENS[:1], keeps_positions=False), {"input_ids": TOKENS[:1]}
    score = leaves.logits[5]
    held = held_by_softmax(leaves, score)
    state = attribute(llama, own, 5, "state_x_gradient", blocks="first", backward="attn_lrp")["text"]
    torch.testing.assert_close(state.sum(), score.detach() - held, rtol=1e-5, atol=1e-7)  # it normalises in float32
    assert held.abs() > 1e-3 * score.abs()


def test_with_positions_kept_relevance_adds_up_to_the_score_less_what_constants_hold(llama):
    leaves, own = llama_by_hand(llama, TOKENS[:1]), {"input_ids": TOKENS[:1]}
    kept = attribute(llama, own, 5, "lrp", precision="fast", **KEEP)["text"]
    held = held_by_softmax(leaves, leaves.logits[5])
    torch.testing.assert_close(kept.sum(), leaves.logits[5].detach() - held, rtol=1e-5, atol=1e-7)


def test_a_rotation_hands_on_all_that_arrives(llama):
    """In one block a query is of its token alone, which has both halves of what arrived, or the whole as before."""
    sizes = SIZES | {"num_hidden_layers": 1, "max_position_embeddings": 20}
    block = built("LlamaForCausalLM", "LlamaConfig", **sizes).double()
    for model, is_same in ((block, True), (llama, False)):
        dropped, kept = (
            attribute(model, INPUTS, 5, "lrp", **KEEP | {"positions": how})["text"] for how in ("drop", "keep")
        )
        assert torch.allclose(dropped, kept, rtol=1e-4, atol=1e-9) == is_same


def test_kept_tables_of_positions_make_the_relevance_of_the_first_state(gpt2):
    """GPT-2 adds positions to words, and the sum is what enters the first block."""
    state = attribute(gpt2, INPUTS, 5, "state_x_gradient", blocks="first", backward="attn_lrp")["text"]
    kept = attribute(gpt2, INPUTS, 5, "lrp", precision="fast", **KEEP)["text"]
    torch.testing.assert_close(kept, state, rtol=1e-8, atol=1e-12)
    dropped = attribute(gpt2, INPUTS, 5, "lrp", precision="fast", rules="attn_lrp")["text"]
    assert not torch.allclose(dropped, state, rtol=1e-3)


def test_with_positions_kept_relevance_of_a_table_adds_up(gpt2):
    for rules in ("z_plus", "dtd"):
        dropped, kept = (attribute(gpt2, INPUTS, 5, "lrp", rules=rules, positions=how) for how in ("drop", "keep"))
        assert float(kept.completeness.max()) < 1e-6 < float(dropped.completeness.min())


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_with_positions_kept_a_batch_is_explained_like_its_examples_one_by_one(name, request):
    model = request.getfixturevalue(name)
    together = attribute(model, INPUTS, 5, "lrp", precision="fast", **KEEP)["text"]
    alone = attribute(model, {"input_ids": TOKENS[1:, :3]}, 5, "lrp", precision="fast", **KEEP)["text"]
    torch.testing.assert_close(together[1:, :3], alone, rtol=1e-8, atol=1e-12)
    assert not together[1, 3:].any()


def test_an_encoder_and_a_decoder_have_positions_of_their_own():
    build, make = STREAM_FAMILIES["bart"]
    model, inputs = build().double(), make()
    kept = attribute(model, inputs, 5, "lrp", precision="fast", **KEEP)
    dropped = attribute(model, inputs, 5, "lrp", precision="fast", rules="attn_lrp")
    for stream in ("source", "target"):
        assert not torch.allclose(kept[stream], dropped[stream]), stream


def test_embeddings_that_hold_their_positions_are_scored_as_they_were():
    model, inputs = double("bert")
    dropped, kept = (
        attribute(model, inputs, 1, "lrp", rules="attn_lrp", positions=how)["text"] for how in ("drop", "keep")
    )
    torch.testing.assert_close(kept, dropped, rtol=1e-12, atol=0)


def test_hooks_are_gone_also_where_the_model_fails(llama):
    with pytest.raises(ZeroDivisionError):
        attribute(llama, INPUTS, lambda _: 1 / 0, "lrp", **KEEP)
    assert not any(module._forward_hooks for module in llama.modules())


@pytest.mark.parametrize(
    ("family", "target", "reason"),
    [
        ("t5", 1, "words with an embedding table of positions .* T5ForConditionalGeneration has neither"),
        ("detr", 1, "words: a picture is scored by pixel, but positions belong to patches"),
        ("clip", "predicted", "words: a picture is scored by pixel, but positions belong to patches"),
    ],
)
def test_positions_that_are_of_no_token_are_refused(family, target, reason):
    build, make = STREAM_FAMILIES[family]
    with pytest.raises(UnsupportedModel, match=f"positions='keep' is for {reason}.* positions='drop' leaves them out"):
        attribute(build(), make(), target, "lrp", **KEEP)
