"""Checkpoints in timm's layout, converted: the logits are those of timm's forward, written out here."""

from __future__ import annotations

import argparse
import json

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import convert
from conftest import save_noise
from whyformer import explain, load

WIDTH, HEADS, BLOCKS, PATCH, SIDE, LABELS = 16, 2, 3, 8, 32, 5


def vit_weights(head: int | None = WIDTH, last_norm: str = "norm"):
    """A random ViT under timm's names."""
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "cls_token": (1, 1, WIDTH),
        "pos_embed": (1, (SIDE // PATCH) ** 2 + 1, WIDTH),
        "patch_embed.proj.weight": (WIDTH, 3, PATCH, PATCH),
        "patch_embed.proj.bias": (WIDTH,),
    }
    for n in range(BLOCKS):
        for name, out, into in (("attn.qkv", 3, 1), ("attn.proj", 1, 1), ("mlp.fc1", 4, 1), ("mlp.fc2", 1, 4)):
            shapes[f"blocks.{n}.{name}.weight"] = (out * WIDTH, into * WIDTH)
            shapes[f"blocks.{n}.{name}.bias"] = (out * WIDTH,)
        for part in ("weight", "bias"):
            shapes |= {f"blocks.{n}.norm1.{part}": (WIDTH,), f"blocks.{n}.norm2.{part}": (WIDTH,)}
    shapes |= {f"{last_norm}.weight": (WIDTH,), f"{last_norm}.bias": (WIDTH,)}
    if head:
        shapes |= {"head.weight": (LABELS, head), "head.bias": (LABELS,)}
    return {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes.items()}


def tokens(w, pixels):
    """What timm's VisionTransformer makes of pictures before its last norm."""
    patches = F.conv2d(pixels, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], stride=PATCH)
    x = torch.cat([w["cls_token"].expand(len(pixels), -1, -1), patches.flatten(2).transpose(1, 2)], dim=1)
    x = x + w["pos_embed"]
    for n in range(BLOCKS):
        at = {name.removeprefix(f"blocks.{n}."): value for name, value in w.items()}
        qkv = F.linear(normed(x, at, "norm1"), at["attn.qkv.weight"], at["attn.qkv.bias"])
        q, k, v = qkv.unflatten(2, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        attention = (q @ k.transpose(2, 3) / (WIDTH // HEADS) ** 0.5).softmax(dim=3)
        mixed = (attention @ v).transpose(1, 2).flatten(2)
        x = x + F.linear(mixed, at["attn.proj.weight"], at["attn.proj.bias"])
        inner = F.gelu(F.linear(normed(x, at, "norm2"), at["mlp.fc1.weight"], at["mlp.fc1.bias"]))
        x = x + F.linear(inner, at["mlp.fc2.weight"], at["mlp.fc2.bias"])
    return x


def normed(x, w, name):
    return F.layer_norm(x, (WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-6)


def answer(w, read):
    return F.linear(read, w["head.weight"], w["head.bias"])


def mae(w, pixels):
    return answer(w, normed(tokens(w, pixels)[:, 1:].mean(dim=1), w, "fc_norm"))


def moco(w, pixels):
    return answer(w, normed(tokens(w, pixels), w, "norm")[:, 0])


def dino(w, pixels):
    found = normed(tokens(w, pixels), w, "norm")
    return answer(w, torch.cat([found[:, 0], found[:, 1:].mean(dim=1)], dim=1))


def saved(kind, w, folder):
    """The checkpoint as its authors save it, and what the command is told."""
    if kind == "mae":
        torch.save({"model": w, "args": argparse.Namespace(blr=1e-3)}, folder / "c.pth")
        return [str(folder / "c.pth")]
    if kind == "moco":
        torch.save({"epoch": 90, "state_dict": {f"module.{name}": x for name, x in w.items()}}, folder / "c.pth")
        return [str(folder / "c.pth")]
    head = {f"module.linear.{name.removeprefix('head.')}": x for name, x in w.items() if name.startswith("head.")}
    torch.save({name: x for name, x in w.items() if not name.startswith("head.")}, folder / "c.pth")
    torch.save({"state_dict": head, "best_acc": 78.2}, folder / "h.pth")
    return [str(folder / "c.pth"), "--head", str(folder / "h.pth")]


KINDS = {
    "mae": (mae, vit_weights(last_norm="fc_norm")),
    "moco": (moco, vit_weights()),
    "dino": (dino, vit_weights(head=2 * WIDTH)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_converted_checkpoint_answers_as_the_original(kind, tmp_path):
    forward, weights = KINDS[kind]
    out = tmp_path / "out"
    assert convert.main([kind, *saved(kind, weights, tmp_path), "--heads", str(HEADS), "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} >= {"model.safetensors", "config.json", "preprocessor_config.json"}
    loaded_model = load(out)
    pixels = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = loaded_model.model(pixel_values=pixels).logits
    torch.testing.assert_close(found, forward(weights, pixels), atol=1e-6, rtol=1e-6)
    explanation = explain(save_noise(tmp_path / "photo.png"), out, method="bi_token")
    assert explanation.scores.shape == ((SIDE // PATCH) ** 2,)


def test_pictures_are_resized_without_a_crop_and_normalised_as_asked(tmp_path):
    arguments = saved("moco", KINDS["moco"][1], tmp_path)
    for colours, mean in (("half", 0.5), ("imagenet", 0.485)):
        out = tmp_path / colours
        convert.main(["moco", *arguments, "--heads", "2", "--colours", colours, "--out", str(out)])
        settings = json.loads((out / "preprocessor_config.json").read_text())
        assert (settings["size"], settings["image_mean"][0]) == ({"height": SIDE, "width": SIDE}, mean)
        assert not settings.get("do_center_crop")


class Code:
    def __reduce__(self):
        return print, ("run",)


def test_code_in_a_checkpoint_is_not_run(tmp_path, capsys):
    torch.save({"model": KINDS["mae"][1], "more": Code()}, tmp_path / "c.pth")
    assert convert.main(["mae", str(tmp_path / "c.pth"), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert "its code is not run" in said.err
    assert said.out == ""


def test_what_does_not_fit_is_named(tmp_path, capsys):
    weights = KINDS["moco"][1]
    for changed, message in (
        ({**weights, "dist_token": torch.zeros(1)}, "'dist_token'"),
        ({name: x for name, x in weights.items() if name != "norm.bias"}, "vit.layernorm.bias"),
        ({"fc.weight": torch.zeros(1)}, "'head.weight' is missing"),
    ):
        torch.save({"state_dict": changed}, tmp_path / "c.pth")
        assert convert.main(["moco", str(tmp_path / "c.pth"), "--heads", "2", "--out", str(tmp_path / "out")]) == 1
        assert message in capsys.readouterr().err


def test_a_model_of_the_hub_gets_the_names_of_its_answers(bert, tmp_path):
    (tmp_path / "answers.json").write_text(json.dumps(["yes", "no", "2", "red"]))
    out = tmp_path / "out"
    convert.main(["hub", str(bert), "--answers", str(tmp_path / "answers.json"), "--out", str(out)])
    loaded_model = load(out)
    assert list(loaded_model.model.config.id2label.values()) == ["yes", "no", "2", "red"]
    assert loaded_model.tokenizer is not None


def test_a_model_of_the_hub_in_a_pickle_is_read_as_tensors_and_whole(bert, copy_of, tmp_path, capsys):
    pickled = copy_of(bert)
    weights = load_file(pickled / "model.safetensors")
    (pickled / "model.safetensors").unlink()
    torch.save(weights, pickled / "pytorch_model.bin")
    assert convert.main(["hub", str(pickled), "--out", str(tmp_path / "out")]) == 0
    ids = {"input_ids": torch.tensor([[1, 5, 6, 2]])}
    torch.testing.assert_close(load(tmp_path / "out").model(**ids).logits, load(bert).model(**ids).logits)
    torch.save({k: v for k, v in weights.items() if k != "classifier.bias"}, pickled / "pytorch_model.bin")
    assert convert.main(["hub", str(pickled), "--out", str(tmp_path / "half")]) == 1
    assert "no weights for classifier.bias" in capsys.readouterr().err


def test_prompts_are_made_of_the_names_of_classes(vit, tmp_path):
    for option, expected in (([], "a photo of a dog"), (["--tuples"], "a photo of a ('dog',)")):
        convert.main(["prompts", str(vit), *option, "--out", str(tmp_path / "prompts.json")])
        assert json.loads((tmp_path / "prompts.json").read_text())["1"] == expected


def test_a_checkpoint_that_is_not_there_is_named_in_a_line(tmp_path, capsys):
    assert convert.main(["mae", str(tmp_path / "none.pth"), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert said == f"[Errno 2] No such file or directory: '{tmp_path / 'none.pth'}'\n"
