"""Draw scenes: pixels, the thing that each pixel belongs to, and a box around each thing."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn import functional as F

from whyformer.scenes.world import BARS, RADII, SHAPES, SIDE, THINGS, Scenes

REACH = max(RADII)  # pixels from a thing's centre to the border of its stencil
PAINTS = (
    (214, 40, 40),
    (246, 130, 190),
    (236, 216, 52),
    (46, 160, 62),
    (58, 206, 214),
    (48, 82, 222),
    (142, 62, 184),
    (244, 244, 244),
    (150, 150, 150),  # clutter
)
SUBPIXELS = 4  # per pixel and axis, for smooth edges

ScenePixels = UInt8[Tensor, "scene 3 64 64"]
Owner = Int[Tensor, "scene 64 64"]  # the thing visible at each pixel, -1 for the background
ThingBoxes = Float[Tensor, "scene thing 4"]  # left, top, right, bottom, in pixels


@dataclass(frozen=True)
class Pictures:
    """Drawn scenes.

    Attributes:
        pixels: [scene, 3, 64, 64], RGB, 0 to 255.
        owner: [scene, 64, 64]: the thing visible at each pixel, -1 for the background.
        boxes: [scene, thing, 4]: left, top, right, bottom, in pixels, around the visible part of each thing.
    """

    pixels: ScenePixels
    owner: Owner
    boxes: ThingBoxes

    def mask(self, things: Bool[Tensor, "scene thing"]) -> Bool[Tensor, "scene 64 64"]:
        """The pixels of some things.

        Args:
            things: Which things of each scene.

        Returns:
            True where one of them is seen.

        Example:
            >>> from whyformer.scenes import pictures, sample
            >>> scenes = sample(2, "test")
            >>> drawing = pictures(scenes)
            >>> drawing.mask(scenes.is_object).equal(drawing.mask(~scenes.is_object))
            False
        """
        padded = F.pad(things, (0, 1))  # index -1, the background, is never selected
        return padded.gather(1, self.owner.long().flatten(1) % (THINGS + 1)).view_as(self.owner)


def pictures(scenes: Scenes) -> Pictures:
    """Draw scenes thing by thing; later things occlude earlier ones.

    Args:
        scenes: Scenes from `sample`.

    Returns:
        Pixels, the thing that each pixel belongs to, and a box around each thing.

    Example:
        >>> from whyformer.scenes import pictures, sample
        >>> drawing = pictures(sample(2, "test"))
        >>> drawing.pixels.shape, drawing.owner.shape, drawing.boxes.shape
        (torch.Size([2, 3, 64, 64]), torch.Size([2, 64, 64]), torch.Size([2, 8, 4]))
    """
    device = scenes.x.device
    stencils, paints = _stencils(device), torch.tensor(PAINTS, device=device)[scenes.colour] + scenes.tint
    canvas = _background(scenes).view(-1, 3)  # a row per pixel of all scenes
    owner = torch.full((len(canvas),), -1, dtype=torch.int8, device=device)
    window = torch.arange(-REACH, REACH, device=device)
    stencil = (window[:, None] * SIDE + window).flatten()
    centre = (torch.arange(len(scenes), device=device)[:, None] * SIDE + scenes.y) * SIDE + scenes.x
    for thing in range(THINGS):
        place = centre[:, thing, None] + stencil
        cover = stencils[scenes.shape[:, thing], scenes.radius[:, thing]].flatten(1)
        beneath = canvas[place]
        canvas[place] = beneath + cover[:, :, None] * (paints[:, thing, None] - beneath)
        owner[place] = torch.where(cover > 0.5, thing, owner[place])
    owner = owner.view(-1, SIDE, SIDE)
    pixels = (canvas.view(-1, SIDE, SIDE, 3) + scenes.grain).clamp_(0, 255).to(torch.uint8)
    return Pictures(pixels.permute(0, 3, 1, 2).contiguous(), owner, _boxes(scenes, owner))


def _background(scenes: Scenes) -> Float[Tensor, "scene 64 64 3"]:
    """Coarse colours, smoothed, with stripes over them."""
    coarse = scenes.ground.shape[1]
    place = torch.arange(SIDE, device=scenes.ground.device)
    near = nearness(place / (SIDE - 1), coarse)
    rows = (near @ scenes.ground.flatten(2)).unflatten(2, (coarse, 3))  # scene, row, knot, 3
    across, down, phase, strength = (part[:, None, None] for part in scenes.stripes.unbind(dim=1))
    wave = strength * torch.sin(across * place + down * place[:, None] + phase)
    smooth: Tensor = near @ rows
    return smooth + wave[..., None]


def nearness(share: Float[Tensor, "*any"], knots: int) -> Float[Tensor, "*any knot"]:
    """Linear interpolation weights of numbers in [0, 1] on evenly spaced knots."""
    return (1 - (share[..., None] * (knots - 1) - torch.arange(knots, device=share.device)).abs()).clamp(min=0)


def _boxes(scenes: Scenes, owner: Owner) -> ThingBoxes:
    """Boxes around visible pixels; a fully occluded thing keeps its unoccluded box."""
    thing = torch.arange(THINGS, device=owner.device, dtype=owner.dtype)[:, None, None]
    on_rows, on_columns = ((part[:, None] == thing).any(dim=3) for part in (owner, owner.mT.contiguous()))
    (top, bottom), (left, right) = _ends(on_rows), _ends(on_columns)
    visible = torch.stack([left, top, right, bottom], dim=2).float()
    reach = torch.tensor(RADII, device=owner.device)[scenes.radius]
    whole = torch.stack([scenes.x - reach, scenes.y - reach, scenes.x + reach, scenes.y + reach], dim=2)
    return torch.where(on_rows.any(dim=2)[:, :, None], visible, whole.float())


def _ends(line: Bool[Tensor, "scene thing 64"]) -> tuple[Tensor, Tensor]:
    """The first index where the line is true, and the one after the last."""
    marks = line.to(torch.uint8)
    return marks.argmax(dim=2), SIDE - marks.flip(2).argmax(dim=2)


@functools.cache
def _stencils(device: torch.device) -> Float[Tensor, "shape radius 20 20"]:
    """Coverage of each pixel around the centre, for each kind of thing."""
    step = 1 / SUBPIXELS
    line = torch.arange(-REACH + step / 2, REACH, step)
    down, across = torch.meshgrid(line, line, indexing="ij")
    shapes = [[_inside(shape, across / radius, down / radius) for radius in RADII] for shape in range(BARS[1] + 1)]
    fine = torch.stack([torch.stack(row) for row in shapes]).float()
    return F.avg_pool2d(fine, SUBPIXELS).to(device)


def _inside(shape: int, u: Tensor, v: Tensor) -> Tensor:
    """Whether points are inside the shape of radius one; u points right, v down."""
    if shape in BARS:
        along, beside = (u, v) if shape == BARS[0] else (v, u)
        return (along.abs() <= 0.8) & (beside.abs() <= 0.22)
    r = (u.square() + v.square()).sqrt()
    match SHAPES[shape]:
        case "circle":
            return r <= 1
        case "square":
            return torch.maximum(u.abs(), v.abs()) <= 0.88
        case "triangle":
            return (v <= 0.8) & (u.abs() <= (v + 0.98) / 1.78)
        case "star":
            return r <= _star_edge(torch.atan2(u, -v))
        case "cross":
            return (torch.minimum(u.abs(), v.abs()) <= 0.33) & (torch.maximum(u.abs(), v.abs()) <= 0.95)
        case _:  # ring
            return (r <= 1) & (r >= 0.5)


def _star_edge(angle: Tensor) -> Tensor:
    """Radius of a five-pointed star at an angle from its upper tip."""
    fifth = 2 * math.pi / 5
    off_tip = ((angle + fifth / 2) % fifth - fifth / 2).abs()
    hollow_x, hollow_y = 0.42 * math.cos(fifth / 2), 0.42 * math.sin(fifth / 2)
    return hollow_y / (off_tip.cos() * hollow_y - off_tip.sin() * (hollow_x - 1))
