"""Models of timm and open_clip by name, with small ones in their place: the libraries are never required."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import whyformer
from whyformer import WhyformerError, attribute
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import encode
from whyformer.inputs.layouts import covered_box
from whyformer.models import third_party


class TinyBlock(nn.Module):
    """Attention as timm's ViT writes it."""

    def __init__(self, *, is_causal=False):
        super().__init__()
        self.norm, self.qkv, self.proj = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.is_causal = is_causal

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).reshape(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return x + self.proj(mixed.transpose(1, 2).flatten(2))


class TinyViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.pretrained_cfg = {"label_names": ["cat", "dog", "owl"], "hf_hub_id": "timm/vit_tiny"}
        self.patch_embed = nn.Conv2d(3, 16, kernel_size=8, stride=8)
        self.cls_token = nn.Parameter(torch.randn(1, 1, 16))
        self.blocks, self.head = nn.Sequential(TinyBlock(), TinyBlock()), nn.Linear(16, 3)

    def forward(self, x):
        patches = self.patch_embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(len(x), -1, -1), patches], dim=1)
        return self.head(self.blocks(tokens)[:, 0])


@pytest.fixture
def timm(monkeypatch):
    """A stand-in for the library, with one architecture and no checkpoint."""
    module, asked = ModuleType("timm"), []

    def create_model(name, pretrained):
        asked.append((name, pretrained))
        torch.manual_seed(0)
        return TinyViT()

    def no_line(place, file):
        raise OSError("no line to the hub\nand more")

    monkeypatch.setattr(third_party.huggingface_hub, "hf_hub_download", no_line)

    colours = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.2)}
    settings = {"input_size": (3, 32, 32), "crop_pct": 0.8, "interpolation": "bicubic", **colours}
    module.create_model, module.asked = create_model, asked
    module.is_model, module.list_models = lambda name: name == "vit_tiny", lambda: ["vit_tiny"]
    module.data = SimpleNamespace(
        resolve_model_data_config=lambda model: settings, infer_imagenet_subset=lambda _: None
    )
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


def test_a_model_of_timm_is_loaded_with_its_labels_and_its_crop(timm):
    loaded_model = whyformer.load("timm:vit_tiny?random", device="cpu")
    assert timm.asked == [("vit_tiny", False)]
    assert loaded_model.model.config.id2label == {0: "cat", 1: "dog", 2: "owl"}
    # The shortest side becomes 40, of which the middle 32 are seen: 8 tenths.
    assert covered_box(loaded_model.image_processor, (100, 50)) == pytest.approx((30.0, 5.0, 70.0, 45.0))
    assert loaded_model.task.answer == "label"


def test_weights_of_timm_are_read_from_safetensors_alone(timm, monkeypatch, tmp_path):
    torch.manual_seed(7)
    trained = TinyViT()
    save_file(trained.state_dict(), tmp_path / "weights")

    def download(place, file):
        assert (place, file) == ("timm/vit_tiny", "model.safetensors")
        return str(tmp_path / "weights")

    monkeypatch.setattr(third_party.huggingface_hub, "hf_hub_download", download)
    loaded_model = whyformer.load("timm:vit_tiny", device="cpu")
    assert timm.asked == [("vit_tiny", False)]
    torch.testing.assert_close(loaded_model.model.model.head.weight, trained.head.weight)


def test_a_model_of_timm_without_a_repository_is_refused(timm, monkeypatch):
    bare = TinyViT()
    bare.pretrained_cfg = {}
    timm.create_model = lambda name, pretrained: bare
    with pytest.raises(WhyformerError, match="timm has no weights for 'vit_tiny'"):
        whyformer.load("timm:vit_tiny")


@pytest.mark.parametrize("method", ["rollout", "bi_token", "generic_attention", "grad_cam", "input_x_gradient", "lrp"])
def test_it_is_explained_like_any_other(timm, photo, method):
    loaded_model = whyformer.load("timm:vit_tiny?random", device="cpu")
    explanation = whyformer.explain(photo, loaded_model, "dog", method)
    inputs = model_inputs(loaded_model, encode(loaded_model, [photo]))
    raw = attribute(loaded_model.model.model, {"x": inputs["pixel_values"]}, lambda output: output[:, 1], method)
    (scores,) = raw.values()
    expected = scores[0, -explanation.scores.size :].numpy()
    assert np.abs(explanation.scores - expected).max() <= 1e-5 * np.abs(expected).max()
    assert explanation.target == "dog"


def test_what_timm_cannot_give_is_said(timm, monkeypatch):
    with pytest.raises(WhyformerError, match=r"timm has no model 'vit_tinny'. Did you mean 'vit_tiny'\?"):
        whyformer.load("timm:vit_tinny")
    reason = r"timm cannot load 'vit_tiny' \(no line to the hub\): timm:vit_tiny\?random has random weights"
    with pytest.raises(WhyformerError, match=reason):
        whyformer.load("timm:vit_tiny")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(WhyformerError, match=r"This needs timm: in the checkout, pip install -e '.\[timm\]'"):
        whyformer.load("timm:vit_tiny")


class TinyClip(nn.Module):
    """A dual encoder as open_clip builds it: a picture's tower, and the parts of the text's beside it."""

    context_length, logit_bias = 12, None

    def __init__(self):
        super().__init__()
        self.visual = TinyViT()
        self.visual.head = nn.Linear(16, 8)
        self.token_embedding = nn.Embedding(520, 16)
        self.positional_embedding = nn.Parameter(torch.randn(self.context_length, 16))
        self.transformer = nn.Sequential(TinyBlock(is_causal=True), TinyBlock(is_causal=True))
        self.text_projection = nn.Parameter(torch.randn(16, 8))
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def encode_image(self, image, normalize):
        assert normalize
        return nn.functional.normalize(self.visual(image), dim=-1)

    def encode_text(self, text, normalize):
        assert normalize
        states = self.transformer(self.token_embedding(text) + self.positional_embedding)
        ends = states[torch.arange(len(text)), text.argmax(dim=-1)]
        return nn.functional.normalize(ends @ self.text_projection, dim=-1)


class TinyTokenizer:
    """Letters by their bytes, and one merge: a word's last letter is another piece than the same letter inside it."""

    def __init__(self):
        letters = [chr(byte) for byte in range(33, 127)] + [f"Ā{n}" for n in range(162)]
        pieces = [*letters, *(f"{letter}</w>" for letter in letters), "ca", "cat</w>", "<start>", "<end>"]
        self.encoder = {piece: index for index, piece in enumerate(pieces)}
        self.decoder = dict(enumerate(pieces))
        self.bpe_ranks = {("c", "a"): 0, ("ca", "t</w>"): 1}
        self.all_special_ids = [self.encoder["<start>"], self.encoder["<end>"]]

    def __call__(self, texts):
        rows = [[self.all_special_ids[0], *self._pieces(text), self.all_special_ids[1]] for text in texts]
        return torch.tensor([row + [0] * (self.length - len(row)) for row in rows])

    length = 12

    def _pieces(self, text):
        for word in re.findall(r"'s|'t|'re|'ve|'m|'ll|'d|[a-z]+|[0-9]|[^\sa-z0-9]+", text.lower()):
            pieces = [*word[:-1], f"{word[-1]}</w>"]
            for pair in self.bpe_ranks:
                while pair in pairwise(pieces):
                    at = list(pairwise(pieces)).index(pair)
                    pieces[at : at + 2] = ["".join(pair)]
            yield from (self.encoder[piece] for piece in pieces)


@pytest.fixture
def open_clip(monkeypatch):
    """A stand-in for the library, with one architecture and two checkpoints, of which one is a pickle."""
    module = ModuleType("open_clip")
    files = {"first": "weights.safetensors", "old": "weights.bin"}

    def create_model(name, pretrained, pretrained_text):
        module.asked = (name, pretrained, pretrained_text)
        torch.manual_seed(0)
        return TinyClip()

    settings = {"size": 32, "mean": (0.5,) * 3, "std": (0.2,) * 3, "interpolation": "bicubic"}
    module.create_model, module.get_tokenizer = create_model, lambda name: module.tokenizer
    module.list_models, module.get_model_preprocess_cfg = lambda: ["ViT-T", "ViT-U"], lambda model: module.settings
    module.settings, module.tokenizer = settings | {"resize_mode": "shortest"}, TinyTokenizer()
    module.list_pretrained_tags_by_model = lambda name: list(files) if name == "ViT-T" else []
    module.get_pretrained_cfg, module.download_pretrained = lambda name, tag: tag, lambda tag: files[tag]
    monkeypatch.setattr(third_party, "PROBE", "a cat's!")
    monkeypatch.setitem(sys.modules, "open_clip", module)
    return module


def test_a_model_of_open_clip_is_loaded_with_its_tokenizer_and_its_crop(open_clip):
    loaded_model = whyformer.load("open_clip:ViT-T", device="cpu")
    assert open_clip.asked == ("ViT-T", "first", True)
    assert loaded_model.task.answer == "similarity"
    assert covered_box(loaded_model.image_processor, (100, 50)) == pytest.approx((25.0, 0.0, 75.0, 50.0))
    assert loaded_model.tokenizer.convert_ids_to_tokens(loaded_model.tokenizer("Cats!")["input_ids"]) == [
        *("<start>", "ca", "t", "s</w>", "!</w>", "<end>")
    ]
    whyformer.load("open_clip:ViT-T?random", device="cpu")
    assert open_clip.asked == ("ViT-T", None, False)


@pytest.mark.parametrize("method", ["rollout", "bi_token", "generic_attention", "grad_cam", "input_x_gradient", "lrp"])
def test_its_pictures_and_texts_are_explained_like_any_others(open_clip, photo, method):
    loaded_model = whyformer.load("open_clip:ViT-T?random", device="cpu", dtype="float64")
    explanation, _ = whyformer.explain_batch([(photo, "a cat"), (photo, "cats, too")], loaded_model, method=method)
    inputs = model_inputs(loaded_model, encode(loaded_model, [(photo, "a cat")]))
    assert inputs["input_ids"].tolist() == open_clip.tokenizer(["a cat"]).tolist()
    assert inputs["attention_mask"].sum() == 4
    raw = attribute(loaded_model.model, inputs, method=method)
    assert explanation.parts["text"].scores == pytest.approx(raw["text"][0, 1:3].numpy(), rel=1e-6)
    (picture,) = (scores for stream, scores in raw.items() if stream != "text")
    expected = picture[0, -explanation.parts["image"].scores.size :].numpy()
    assert np.abs(explanation.parts["image"].scores - expected).max() <= 1e-6 * np.abs(expected).max()
    if method == "lrp":  # a product's relevance is shared between the picture and the text
        return
    # The tower by itself, asked about the same number, says the same of the picture.
    with torch.no_grad():
        text = loaded_model.model(**inputs).text_embeds[0] * loaded_model.model.logit_scale.exp()
    tower, pixels = loaded_model.model.model.visual, {"x": inputs["pixel_values"]}
    (alone,) = attribute(tower, pixels, lambda out: nn.functional.normalize(out, dim=-1) @ text, method).values()
    assert np.abs(alone[0].numpy() - picture[0].numpy()).max() <= 1e-6 * np.abs(alone[0].numpy()).max()


def test_a_text_that_open_clip_cleans_is_cleaned_before_it_is_cut_up(open_clip):
    simple, plain = open_clip.tokenizer, whyformer.load("open_clip:ViT-T?random", device="cpu").tokenizer

    class Cleaner:
        tokenizer = plain

        def clean_fn(self, text):
            return " ".join(text.replace("_", " ").translate(str.maketrans("", "", ",.!'")).lower().split())

        def __call__(self, texts):
            return simple([self.clean_fn(text) for text in texts])

    open_clip.tokenizer = Cleaner()
    tokenizer = whyformer.load("open_clip:ViT-T?random", device="cpu").tokenizer
    assert tokenizer("  A cat's,\n_cat!")["input_ids"] == tokenizer("a cats cat")["input_ids"]
    assert tokenizer("a cats cat")["input_ids"][1:-1] == list(simple._pieces("a cats cat"))


def test_what_open_clip_cannot_give_is_said(open_clip, monkeypatch):
    with pytest.raises(WhyformerError, match=r"open_clip has no model 'ViT-TT'. Did you mean 'ViT-T'"):
        whyformer.load("open_clip:ViT-TT")
    with pytest.raises(WhyformerError, match="no checkpoint 'new' of 'ViT-T': it has first, old"):
        whyformer.load("open_clip:ViT-T/new")
    with pytest.raises(
        WhyformerError, match=r"no checkpoint '' of 'ViT-U': open_clip:ViT-U\?random has random weights"
    ):
        whyformer.load("open_clip:ViT-U")
    with pytest.raises(WhyformerError, match="'old' of 'ViT-T' is a pickle: choose another of its checkpoints: first"):
        whyformer.load("open_clip:ViT-T/old")
    open_clip.settings = open_clip.settings | {"resize_mode": "longest"}
    with pytest.raises(WhyformerError, match="pads its pictures to a frame"):
        whyformer.load("open_clip:ViT-T")
    open_clip.settings = open_clip.settings | {"resize_mode": "squash"}
    assert covered_box(whyformer.load("open_clip:ViT-T").image_processor, (100, 50)) == (0.0, 0.0, 100.0, 50.0)
    monkeypatch.setattr(open_clip.tokenizer, "_pieces", lambda text: [1, 2])
    with pytest.raises(WhyformerError, match="does more than look up its vocabulary"):
        whyformer.load("open_clip:ViT-T")
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(WhyformerError, match=r"This needs open_clip: in the checkout, pip install -e '.\[open_clip\]'"):
        whyformer.load("open_clip:ViT-T")
