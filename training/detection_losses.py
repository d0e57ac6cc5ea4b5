"""The losses of a detector: optimal assignment of queries to objects, labels, distance and overlap of boxes."""

import torch
from torch import Tensor
from torch.nn import functional as F

from detection_batches import NOTHING

NOTHING_WEIGHT = 0.4
WEIGHTS = (2.0, 5.0, 2.0)  # of the losses of label, distance and overlap


def detection_losses(
    logits: Tensor, target: Tensor, predicted: Tensor, boxes: Tensor, is_real: Tensor
) -> tuple[Tensor, ...]:
    """Of the labels, and of the boxes where there is an object: distance and overlap."""
    weight = torch.ones(NOTHING + 1, device=logits.device)
    weight[NOTHING] = NOTHING_WEIGHT
    share = is_real / is_real.sum()
    distance = (predicted - boxes).abs().sum(dim=-1)
    overlap = 1 - generalized_iou(predicted, boxes)
    return (
        F.cross_entropy(logits.flatten(0, 1), target.flatten(), weight),
        (distance * share).sum(),
        (overlap * share).sum(),
    )


def costs(logits: Tensor, predicted: Tensor, labels: Tensor, boxes: Tensor) -> Tensor:
    """Of giving each query (row) each object (column); an object that is not there costs nothing."""
    probability = logits.softmax(dim=2).gather(2, labels[:, None].expand(-1, logits.shape[1], -1))
    predicted, boxes = predicted[:, :, None], boxes[:, None]
    distance = (predicted - boxes).abs().sum(dim=3)
    cost = WEIGHTS[1] * distance - WEIGHTS[0] * probability - WEIGHTS[2] * generalized_iou(predicted, boxes)
    return cost * (labels < NOTHING)[:, None]


def assignment(cost: Tensor) -> Tensor:
    """The query of each object so that the total cost (scene, query, object) is least, exactly.

    Dynamic programming: query by query, the least cost is kept for every set of objects assigned so far.
    """
    scenes, queries, objects = cost.shape
    bits = 2 ** torch.arange(objects, device=cost.device)
    sets = torch.arange(2**objects, device=cost.device)
    within = (sets[:, None] & bits) > 0
    before = (sets[:, None] - bits).clamp(min=0)
    least = torch.where(sets == 0, 0.0, torch.inf).expand(scenes, -1)
    choices = []
    for query in range(queries):
        with_object = torch.where(within, least[:, before] + cost[:, query, None], torch.inf)
        least, choice = torch.cat([with_object, least[:, :, None]], dim=2).min(dim=2)
        choices.append(choice)  # the object assigned to this query, or `objects` for none
    left = torch.full((scenes, 1), 2**objects - 1, device=cost.device)
    query_of = torch.zeros(scenes, objects, dtype=torch.long, device=cost.device)
    for query in reversed(range(queries)):
        is_assigned = choices[query].gather(1, left) == torch.arange(objects, device=cost.device)
        query_of = torch.where(is_assigned, query, query_of)
        left = left - (is_assigned * bits).sum(dim=1, keepdim=True)
    return query_of


def corners(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Left and top, right and bottom, of boxes given as centre and size."""
    centre, size = boxes.split(2, dim=-1)
    return centre - size / 2, centre + size / 2


def generalized_iou(ours: Tensor, theirs: Tensor) -> Tensor:
    """Of boxes given as centre and size (Rezatofighi et al. 2019)."""
    (start, end), (other_start, other_end) = corners(ours), corners(theirs)
    shared = (torch.minimum(end, other_end) - torch.maximum(start, other_start)).clamp(min=0).prod(dim=-1)
    hull = (torch.maximum(end, other_end) - torch.minimum(start, other_start)).prod(dim=-1)
    union = (end - start).prod(dim=-1) + (other_end - other_start).prod(dim=-1) - shared
    return shared / union - (hull - union) / hull
