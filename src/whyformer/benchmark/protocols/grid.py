"""The grid pointing game: pictures of four classes in one, and the share of a map on the explained class."""

from __future__ import annotations

from torch.nn import functional as F

from whyformer.benchmark.ground_truth import pixel_truths
from whyformer.benchmark.method_maps import explanations
from whyformer.benchmark.protocols import Columns, Figure, protocol, require
from whyformer.benchmark.shard import Shard, explained_labels
from whyformer.metrics.perturbation_curves import Explained
from whyformer.metrics.sanity import mass_on_object, pointing_game


@protocol("grid_pointing", {"positive share on the class": Figure("share"), "pointing game": Figure("pointing")})
def grid_pointing(shard: Shard, *, explained: Explained = "target") -> Columns:
    """The share of a map's positive scores on the picture of the class, one of four in a grid (Böhle et al. 2021).

    With other data that has masks, the share on the object. Patches are not smoothed over their edges.
    """
    truths, labels = pixel_truths(shard.batch), explained_labels(shard, explained)
    require(truths is not None, shard, "grid_pointing", "pictures with masks, as the readers of grids give them")
    assert truths is not None
    columns: Columns = {}
    for method, scores in explanations(shard, labels, "image").items():
        maps = F.interpolate(scores[:, None], shard.batch.image_size, mode="nearest-exact")[:, 0]
        columns[method, "share"] = mass_on_object(maps, truths)
        columns[method, "pointing"] = pointing_game(maps, truths)
    return columns
