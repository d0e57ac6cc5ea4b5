"""What users get wrong, each answered in one line; and odd pictures that are not wrong at all."""

import io
import json
import re
import zipfile

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from typer.testing import CliRunner

from conftest import change_config, change_weights, save_noise
from tiny_models import FAMILIES
from whyformer import WhyformerError, attribute, estimate_memory, explain, explain_batch, explain_response, load
from whyformer.cli import app
from whyformer.inputs.collate import collate
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.read import image_of, text_of
from whyformer.modalities.image import Picture
from whyformer.models.loading import LoadedModel
from whyformer.scenes import example


def refusal(tmp_path, *arguments):
    """The one line that the command ends with; nothing else is printed, and no file written."""
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before
    line = result.stderr.removesuffix("\n")
    assert line.startswith("whyformer: ")
    assert "\n" not in line
    return line


def broken_picture(path, what):
    whole = io.BytesIO()
    Image.open(save_noise(path)).save(whole, "PNG")
    contents = {
        "corrupt": b"\x89PNG\r\n\x1a\n" + b"garbage" * 20,
        "truncated": whole.getvalue()[: len(whole.getvalue()) // 2],
        "no picture": b"just words",
        "zero-byte": b"",
    }
    path.write_bytes(contents[what])
    return path


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("corrupt", "cannot be read, save it again"),
        ("truncated", "cannot be read, save it again"),
        ("no picture", "not an image that can be read"),
        ("zero-byte", "is empty"),
    ],
)
def test_a_broken_picture_is_named(tmp_path, vit, what, reason):
    path = broken_picture(tmp_path / "photo.png", what)
    line = refusal(tmp_path, "explain", path, "--model", vit, "--out", tmp_path / "out.html")
    assert str(path) in line
    assert reason in line


def test_one_broken_picture_among_several_stops_them_all(tmp_path, vit, photo):
    broken = broken_picture(tmp_path / "broken.png", "truncated")
    assert str(broken) in refusal(tmp_path, "explain", photo, broken, "--model", vit, "--out", tmp_path / "all")


@pytest.mark.parametrize("limit", [1500, 1000], ids=["over the limit", "over twice the limit"])
def test_a_decompression_bomb_is_not_opened(tmp_path, vit, photo, monkeypatch, limit):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    line = refusal(tmp_path, "explain", photo, "--model", vit, "--out", tmp_path / "out.html")
    assert "is too large to be safe, shrink it first" in line


@pytest.mark.parametrize("given", ["nowhere.png", "no/such/photo", "my holiday.jpg", "words"])
def test_a_missing_picture_is_named(tmp_path, vit, given):
    assert f"No file '{given}'" in refusal(tmp_path, "explain", given, "--model", vit)


@pytest.mark.parametrize("given", ["nowhere.txt", "some/where", "photo.jpg"])
def test_a_missing_file_is_no_text(tmp_path, bert, given):
    assert refusal(tmp_path, "explain", given, "--model", bert) == f"whyformer: No file '{given}'."


def test_a_folder_without_pictures_is_named_with_what_was_looked_for(tmp_path, vit):
    line = refusal(tmp_path, "explain", tmp_path, "--model", vit)
    assert line.startswith(f"whyformer: The folder '{tmp_path}' has no pictures (.avif, .bmp")
    assert line.endswith(".webp), and tiny-vit takes pictures.")


def test_a_picture_is_not_read_as_text(tmp_path, bert, photo):
    line = refusal(tmp_path, "explain", photo, "--model", bert)
    assert "is a picture, but tiny-bert reads texts: choose another with --model" in line


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a.wav", "is a sound file, and this model takes a text: choose a model for audio."),
        ("a.png", "is an image file, and this model takes a text: choose a model for images, or give (picture,"),
        ("a.txt", "is a file: pass a Path to read its text."),
    ],
)
def test_a_file_in_the_place_of_a_text_is_called_what_it_is(tmp_path, name, reason):
    (tmp_path / name).write_bytes(b"0")
    with pytest.raises(WhyformerError, match=re.escape(f"{str(tmp_path / name)!r} {reason}")):
        explain_response(str(tmp_path / name))


def test_a_second_text_is_not_for_pictures(tmp_path, vit, photo):
    assert "--pair is a second text" in refusal(tmp_path, "explain", photo, "--pair", "a", "--model", vit)


def test_a_picture_is_no_file_of_regions(tmp_path, photo):
    asked = ["--model", "mini-lxmert", "--text", "what colour is the circle?"]
    line = refusal(tmp_path, "explain", photo, *asked)
    assert f"'{photo}' is not an .npz file: mini-lxmert reads regions of a picture" in line
    assert "Path(" not in line
    assert "whyformer.Regions" not in line
    example(3).regions.save(tmp_path / "scene.npz")
    twice = refusal(tmp_path, "explain", tmp_path / "scene.npz", *asked, "--text", "what size is it?")
    assert twice == "whyformer: mini-lxmert answers one question at a time: give --text once."


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "is empty"), (b"  \n ", "The text is empty"), (b"caf\xe9", "not UTF-8 text (byte 3): convert it first")],
)
def test_a_text_file_without_text_is_refused(tmp_path, bert, content, reason):
    path = tmp_path / "review.txt"
    path.write_bytes(content)
    assert reason in refusal(tmp_path, "explain", path, "--model", bert, "--out", tmp_path / "out.json")


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_text_is_refused(tmp_path, bert, text):
    assert "The text is empty: there is nothing to explain." in refusal(tmp_path, "explain", text, "--model", bert)


def test_a_text_that_is_not_unicode_is_refused(bert):
    with pytest.raises(WhyformerError, match=r"not Unicode \(character 4\)"):
        explain("the \udcff", load(bert))


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("bird5", "No label named 'bird5'. Did you mean 'bird'"),
        ("4", "No label with index 4: this model has 4, 0 to 3."),
        ("-1", "No label with index -1: this model has 4, 0 to 3."),
    ],
)
def test_an_unknown_target_is_named(tmp_path, vit, photo, target, reason):
    arguments = ["explain", photo, "--model", vit, f"--target={target}", "--out", tmp_path / "out.html"]
    assert reason in refusal(tmp_path, *arguments)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--method", "rolout"], "No method named 'rolout'. Did you mean 'rollout'?"),
        (["--method", "rollout", "--option", "steps=3"], "rollout has no option 'steps'. It takes: first_block=0"),
        (["--method", "bi_token", "--option", "steps=many"], "bi_token: steps='many' is not of type int."),
        (["--method", "bi_token", "--option", "steps=2.5"], "bi_token: steps=2.5 is not of type int."),
        (["--option", "steps"], "--option 'steps': write it as name=value."),
        (["--method", "bi_token", "--option", "alpha=beta"], "bi_token: alpha='beta'. Choose from: paper, values."),
        (["--method", "bi_token", "--option", "first_block=9"], "first_block=9: this model's blocks are 0 to 2."),
        (
            ["--method", "rollout", "--option", "normalise_rows=perhaps"],
            "normalise_rows='perhaps' is not of type bool.",
        ),
        (["--nonsense"], "No such option: --nonsense"),
    ],
)
def test_a_wrong_option_is_named_with_the_right_ones(tmp_path, vit, photo, arguments, reason):
    assert reason in refusal(tmp_path, "explain", photo, "--model", vit, *arguments)


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("out.pdf", "no format for '.pdf'. Known: .html, .png, .json, .npz, .audit.json."),
        ("out", "its suffix must name the format. Known: .html, .png, .json, .npz, .audit.json."),
        ("missing/out.html", "does not exist. Make it first."),
        ("taken.html", "is a folder: name a file in it."),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_first(tmp_path, photo, out, reason):
    (tmp_path / "taken.html").mkdir()
    line = refusal(tmp_path, "explain", photo, "--model", "no/model/is/looked/for", "--out", tmp_path / out)
    assert str(tmp_path / out) in line
    assert reason in line


def test_an_output_that_fails_while_written_leaves_nothing(tmp_path, vit, photo):
    line = refusal(tmp_path, "explain", photo, "--model", vit, "--out", "/proc/out.html")
    assert "--out '/proc/out.html'" in line
    assert "Choose another." in line


@pytest.mark.parametrize("out", ["all.png", "all.json"])
def test_several_inputs_do_not_fit_one_picture(tmp_path, vit, photo, out):
    line = refusal(tmp_path, "explain", photo, photo, "--model", vit, "--out", tmp_path / out)
    assert "several inputs go to a folder or an .html report" in line


@pytest.mark.parametrize("command", [("demo",), ("evaluate", "suite.toml")], ids=lambda command: command[0])
def test_a_folder_for_results_is_no_file(tmp_path, command):
    taken = tmp_path / "taken"
    taken.write_text("")
    assert refusal(tmp_path, *command, "--out", taken) == f"whyformer: --out {str(taken)!r} is a file: name a folder."


def test_what_was_given_is_named_with_its_article():
    with pytest.raises(WhyformerError, match=r"^A text is .*, or a pair of them, not an Image\.$"):
        text_of(Image.new("RGB", (2, 2)))
    with pytest.raises(WhyformerError, match=r"^An image is .*, not a dict\.$"):
        image_of({})


def test_a_folder_for_several_inputs_is_no_file(tmp_path, vit, photo):
    (tmp_path / "taken").write_text("")
    assert "is a file" in refusal(tmp_path, "explain", photo, photo, "--model", vit, "--out", tmp_path / "taken")


def test_an_unknown_model_is_named(tmp_path, photo):
    assert "No model 'no/such/model'" in refusal(tmp_path, "explain", photo, "--model", "no/such/model")


def test_weights_with_nan_are_noticed(tmp_path, vit, photo, copy_of):
    folder = copy_of(vit, "nan")
    change_weights(folder, lambda weights: weights | {"classifier.bias": torch.full((4,), torch.nan)})
    for command in (["explain", photo, "--out", tmp_path / "out.html", "--model"], ["doctor"]):
        assert "NaN or infinite logits: check its weights" in refusal(tmp_path, *command, folder)


def test_a_model_without_attention_is_named(tmp_path, resnet, photo):
    for command in (
        ["explain", photo, "--method", "rollout", "--model"],
        ["compare", photo, "--method", "rollout", "--out", tmp_path / "c.html", "--model"],
        ["doctor"],
    ):
        assert "ResNetForImageClassification ran no attention operation" in refusal(tmp_path, *command, resnet)


def test_a_spoilt_model_is_one_line_too(tmp_path, vit, copy_of):
    folder = copy_of(vit)
    change_config(folder, hidden_size=24)
    assert "do not fit its config.json" in refusal(tmp_path, "doctor", folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "vit"})[:-1])
    assert "not a valid JSON file" in refusal(tmp_path, "doctor", folder)


def scores(picture, vit):
    return explain(picture, load(vit)).scores


def noise(*shape, low=0, high=256):
    return np.random.default_rng(5).integers(low, high, shape, dtype=np.uint8)


def palette(tmp_path):
    image = Image.fromarray(noise(40, 60, 3)).quantize(16)
    return image, image.convert("RGB"), "png"


def grey(tmp_path):
    values = noise(40, 60)
    return Image.fromarray(values), Image.fromarray(np.stack([values] * 3, axis=2)), "png"


def grey_of_16_bits(tmp_path):
    values = noise(40, 60)
    return Image.fromarray(values.astype(np.uint16) * 257), Image.fromarray(values), "png"


def dark_grey_of_16_bits(tmp_path):
    values = noise(40, 60).astype(np.uint16)
    return Image.fromarray(values), Image.fromarray((values / 257).round().astype(np.uint8)), "png"


def transparent(tmp_path):
    pixels = noise(40, 60, 4)
    opacity = pixels[:, :, 3:] / 255
    on_white = pixels[:, :, :3] * opacity + 255 * (1 - opacity)
    return Image.fromarray(pixels), Image.fromarray(on_white.round().astype(np.uint8)), "png"


def transparent_palette(tmp_path):
    image = Image.fromarray(noise(40, 60, 3)).quantize(16)
    image.info["transparency"] = 0
    pixels = np.asarray(image.convert("RGB")).copy()
    pixels[np.asarray(image) == 0] = 255
    return image, Image.fromarray(pixels), "png"


def cmyk(tmp_path):
    image = Image.fromarray(noise(40, 60, 3)).convert("CMYK")
    return image, image.convert("RGB"), "tif"


def floats(tmp_path):
    values = noise(40, 60)
    return Image.fromarray(values.astype(np.float32) / 255), Image.fromarray(values), "tif"


FORMS = [palette, grey, grey_of_16_bits, dark_grey_of_16_bits, transparent, transparent_palette, cmyk, floats]


@pytest.mark.parametrize("form", FORMS)
def test_a_picture_of_another_form_is_explained_like_its_plain_twin(tmp_path, vit, form):
    odd, plain, suffix = form(tmp_path)
    odd.save(tmp_path / f"odd.{suffix}")
    plain.save(tmp_path / "plain.png")
    with Image.open(tmp_path / f"odd.{suffix}") as reopened:
        assert reopened.mode == odd.mode or odd.mode == "F"
    found, expected = scores(tmp_path / f"odd.{suffix}", vit), scores(tmp_path / "plain.png", vit)
    np.testing.assert_allclose(found, expected, rtol=0.02)
    assert np.corrcoef(found, expected)[0, 1] > 0.999


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_rotated_photo_is_explained_like_the_upright_one(tmp_path, vit, orientation):
    upright = Image.fromarray(noise(40, 60, 3))
    stored = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = upright.transpose(stored[orientation]) if orientation in stored else upright
    turned.save(tmp_path / "turned.png", exif=exif)
    upright.save(tmp_path / "upright.png")
    assert np.array_equal(scores(tmp_path / "turned.png", vit), scores(tmp_path / "upright.png", vit))


def test_pixels_that_are_no_numbers_are_refused(tmp_path, vit):
    Image.fromarray(np.full((4, 4), np.nan, dtype=np.float32)).save(tmp_path / "nan.tif")
    assert "Some pixels are not finite numbers" in refusal(tmp_path, "explain", tmp_path / "nan.tif", "--model", vit)


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (3, 5), (2000, 3)])
def test_tiny_and_long_pictures_are_explained_and_drawn(tmp_path, vit, size):
    path = save_noise(tmp_path / "odd.png", width=size[0], height=size[1])
    explanation = explain(path, load(vit))
    assert explanation.parts["image"].layout.box == (0, 0, *size)
    assert explanation.scores.max() > 0
    explanation.save(tmp_path / "odd.html")
    explanation.save(tmp_path / "drawn.png")


def seeing(processor) -> LoadedModel:
    return LoadedModel(FAMILIES["vit"](), processor, "vit")


@pytest.mark.parametrize("size", [(2, 120), (121, 2)])
def test_the_ends_of_a_long_picture_are_cut_before_they_are_enlarged(size):
    sizes = {"size": {"shortest_edge": 32}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32}}
    processor = transformers.CLIPImageProcessorPil(**sizes)
    image = Image.fromarray(noise(size[1], size[0], 3))
    whole = processor(images=[image], return_tensors="pt")["pixel_values"]
    assert torch.equal(
        collate(seeing(processor), [EncodedExample(0, {"image": Picture(image, (0, 0, *size))})])["pixel_values"], whole
    )


def test_a_picture_of_a_line_of_pixels_fits_in_memory():
    sizes = {"size": {"shortest_edge": 32}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32}}
    image = Image.new("RGB", (1, 1_000_000), "white")
    processor = transformers.CLIPImageProcessorPil(**sizes)
    pixels = collate(seeing(processor), [EncodedExample(0, {"image": Picture(image, (0, 0, 1, 1_000_000))})])
    assert pixels["pixel_values"].shape == (1, 3, 32, 32)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_an_array_of_pixels_may_have_its_channels_first_or_last(channels):
    pixels = noise(40, 60, channels)
    plain = image_of(Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels))
    assert plain.size == (60, 40)
    for array in (pixels, np.moveaxis(pixels, 2, 0)):
        assert np.array_equal(np.asarray(image_of(array)), np.asarray(plain))


def test_where_both_ends_could_be_channels_they_come_last():
    pixels = noise(3, 40, 3)
    assert np.array_equal(np.asarray(image_of(pixels)), pixels)


@pytest.mark.parametrize(
    "array",
    [noise(40, 60, 2), noise(5, 40, 60), noise(1, 3, 40, 60), noise(0, 60, 3), noise(7), noise(40, 60, 3) / 255],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
def test_an_array_that_is_no_picture_is_named_by_its_shape(array):
    with pytest.raises(WhyformerError) as refused:
        image_of(array)
    assert str(refused.value) == (
        "An image array is uint8 [height, width] or [height, width, channel] with 1, 3 or 4 channels, not "
        f"{array.dtype} of shape {array.shape}: convert it first."
    )


@pytest.mark.parametrize("model", [5, None, ["mini-vit"]])
def test_what_is_no_model_is_named_with_what_may_be_one(model):
    with pytest.raises(WhyformerError) as refused:
        explain("the film", model)
    assert str(refused.value).startswith(
        "A model is a name, a folder, a Hugging Face id, or a torch.nn.Module or pipeline you have loaded, not "
        f"{model!r}. Known: mini-bert, "
    )


def test_regions_that_inflate_to_gigabytes_are_not_read(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("image", "boxes", "features"):
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array_header_1_0(
                    member, {"descr": "|u1", "fortran_order": False, "shape": (400 << 20,)}
                )
                for _ in range(400):
                    member.write(bytes(1 << 20))
    assert path.stat().st_size < 2 << 20
    line = refusal(tmp_path, "explain", path, "--model", "mini-lxmert", "--text", "what colour is it?")
    assert f"'{path}' holds no regions" in line
    assert "its arrays unpack to 1,200 MiB" in line


@pytest.mark.parametrize("value", [0, -1, 2.0, "2", True])
def test_how_many_run_at_once_is_a_whole_number_from_one_on(bert, value):
    model = load(bert, device="cpu").model
    ids = torch.tensor([[2, 5, 3]])
    calls = {
        "inputs_at_once": lambda: attribute(model, {"input_ids": ids}, 1, "integrated_gradients", inputs_at_once=value),
        "batch": lambda: estimate_memory(model, 16, "rollout", batch=value),
        "batch_size": lambda: explain_batch(["the film"], load(bert), batch_size=value),
    }
    for name, call in calls.items():
        with pytest.raises(WhyformerError) as error:
            call()
        assert str(error.value) == f"{name}={value!r}: a whole number, at least 1."
