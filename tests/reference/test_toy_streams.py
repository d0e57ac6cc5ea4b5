"""BI on several streams where it is known exactly: linear networks of one channel, with maps that never change.

Such a network is a product of dense matrices over the tokens of all streams. So are its states, its gradients and P.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whyformer import METHODS, UnsupportedModel, attribute
from whyformer.extend import FAMILIES, Family, Stream
from whyformer.tracing.build import trace

SIZES = {"text": 3, "image": 4}
GAIN, HEAD = 0.7, 1.3
Step = list[tuple[str, str]]  # who reads whom; those of one step read the same state
TEXT, IMAGE, TO_IMAGE, TO_TEXT = ("text", "text"), ("image", "image"), ("text", "image"), ("image", "text")
NETWORKS: dict[str, list[Step]] = {
    # The text is read for the last time by the image, whose tokens the answer reads later.
    "co-attention": [[TEXT], [IMAGE], [TO_IMAGE, TO_TEXT], [IMAGE], [TO_IMAGE]],
    "co-attention, text last": [[TO_IMAGE, TO_TEXT], [TEXT], [IMAGE], [TO_IMAGE, TO_TEXT], [TEXT]],
    "encoder and decoder": [[IMAGE], [IMAGE], [TEXT], [TO_IMAGE], [TEXT], [TO_IMAGE]],
}


class FixedAttention(nn.Module):
    """Attention whose map is given; its values are the keys times GAIN."""

    def __init__(self, weights: Tensor):
        super().__init__()
        self.register_buffer("weights", weights)
        self.value, self.out = (nn.Linear(1, 1, bias=False, dtype=torch.float64) for _ in range(2))
        nn.init.constant_(self.value.weight, GAIN)
        nn.init.ones_(self.out.weight)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        alike = (torch.zeros_like(x)[:, None] for x in (queries, keys))
        mixed = F.scaled_dot_product_attention(*alike, self.value(keys)[:, None], self.weights.log())
        return self.out(mixed[:, 0])


class Linear(nn.Module):
    """Two streams of one channel, each read at its first token."""

    def __init__(self, steps: list[Step]):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.config = SimpleNamespace(model_type="toy")
        self.program = steps
        self.text, self.image = nn.Identity(), nn.Identity()
        self.steps = nn.ModuleList(nn.ModuleDict() for _ in steps)
        for modules, step in zip(self.steps, steps, strict=True):
            for query, key in step:
                shape = SIZES[query], SIZES[key]
                weights = torch.rand(shape, generator=generator, dtype=torch.float64).softmax(dim=1)
                kind = "between" if len(step) > 1 else "alone"
                modules[f"{kind}_{query}_{key}"] = FixedAttention(weights)

    def forward(self, x: Tensor, regions: Tensor) -> Tensor:
        state = {"text": self.text(x), "image": self.image(regions)}
        for modules, step in zip(self.steps, self.program, strict=True):
            reads = zip(step, modules.values(), strict=True)
            added = [(query, attention(state[query], state[key])) for (query, key), attention in reads]
            for stream, change in added:
                state[stream] = state[stream] + change
        return HEAD * torch.cat([state["text"][:, 0], state["image"][:, 0]], dim=1)


ROW = Family(
    "text",
    readout="first",
    scaled="text",
    others=(Stream("image", scaled="image"),),
    attention=(
        ("between", "text", "image"),
        ("between", "image", "text"),
        ("text_text", "text", "text"),
        ("image_image", "image", "image"),
        ("text_image", "text", "image"),
    ),
)


@pytest.fixture(autouse=True)
def _with_a_row_for_the_toy() -> Iterator[None]:
    FAMILIES["toy"] = ROW
    yield
    del FAMILIES["toy"]


def tokens(stream: str) -> slice:
    return slice(0, 3) if stream == "text" else slice(3, 7)


def dense(model: Linear, number: int, only: tuple[str, str] | None = None) -> Tensor:
    """The maps of one step as one matrix over the tokens of both streams."""
    matrix = torch.zeros(7, 7, dtype=torch.float64)
    for (query, key), attention in zip(model.program[number], model.steps[number].values(), strict=True):
        if only in (None, (query, key)):
            matrix[tokens(query), tokens(key)] = attention.weights
    return matrix


def product(matrices: list[Tensor]) -> Tensor:
    """Later matrices on the left."""
    return reduce(lambda done, matrix: matrix @ done, matrices, torch.eye(7, dtype=torch.float64))


def closed_form(model: Linear, x: Tensor, stream: str, carried: float, share: float | None) -> Tensor:
    """Σ_j w_j P_jk F_jk at the last attention that reads a stream; `carried` is α, `share` what F keeps of G."""
    identity, count = torch.eye(7, dtype=torch.float64), len(model.program)
    network = [identity + GAIN * dense(model, number) for number in range(count)]
    perceived = [identity + carried * dense(model, number) for number in range(count)]
    for number in reversed(range(count)):
        for query, key in model.program[number]:
            weights = product(perceived[number + 1 :])[0, tokens(query)]
            if key == stream and weights.any():
                state = product(network[:number]) @ x
                asked = HEAD * product(network[number + 1 :])[0, tokens(query)]
                gradient = asked[:, None] * GAIN * state[None, tokens(stream)]
                last = identity + carried * dense(model, number, only=(query, key))
                rows = (last @ product(perceived[:number]))[tokens(query), tokens(stream)]
                feedback = 1.0 if share is None else (share * gradient).clamp(min=0)
                return (weights[:, None] * rows * feedback).sum(dim=0)
    raise AssertionError(f"nothing reads {stream}")


def examples() -> Tensor:
    return torch.randn(4, 7, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def inputs_of(x: Tensor) -> dict[str, Tensor]:
    return {"x": x[:, tokens("text"), None], "regions": x[:, tokens("image"), None]}


# Along the path from zero a linear network's gradient grows from 0 to G: its mean is half of it.
@pytest.mark.parametrize(("feedback", "share"), [("integrated", 0.5), ("gradient", 1.0), ("none", None)])
@pytest.mark.parametrize(("method", "carried"), [("bi_head", 1.0), ("bi_token", GAIN)])
@pytest.mark.parametrize("network", NETWORKS)
def test_bi_is_perception_times_feedback_where_each_stream_is_last_read(network, method, carried, feedback, share):
    model, x = Linear(NETWORKS[network]).eval(), examples()
    scores = attribute(model, inputs_of(x), 0, method, feedback=feedback)
    assert scores.keys() == SIZES.keys()
    for stream, found in scores.items():
        expected = torch.stack([closed_form(model, example, stream, carried, share) for example in x])
        assert expected.any()
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def read_in_both() -> Family:
    return replace(ROW, others=(Stream("image", readout="first", scaled="image", is_read=True),))


@pytest.mark.parametrize("method", ["raw_attention", "rollout", "generic_attention", "grad_cam"])
def test_what_two_read_outs_attend_to_is_added(method):
    FAMILIES["toy"] = read_in_both()
    model = Linear(NETWORKS["co-attention, text last"]).eval()
    asked = trace(model, inputs_of(examples()), lambda output: output.sum(dim=1), reads=METHODS[method].reads)
    both, text, image = (
        METHODS[method](replace(asked, readouts=readouts))
        for readouts in (asked.readouts, asked.readouts[:1], asked.readouts[1:])
    )
    for stream, scores in both.items():
        torch.testing.assert_close(scores, text[stream] + image[stream])
    assert all(any(part.any() for part in alone.values()) for alone in (text, image))


@pytest.mark.parametrize("method", ["bi_head", "bi_token"])
def test_bi_refuses_two_read_outs_of_streams_that_attend_to_each_other(method):
    FAMILIES["toy"] = read_in_both()
    model = Linear(NETWORKS["co-attention, text last"]).eval()
    with pytest.raises(UnsupportedModel, match="read in text and image, which attend to each other"):
        attribute(model, inputs_of(examples()), lambda output: output.sum(dim=1), method)
