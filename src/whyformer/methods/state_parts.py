"""Residual states as sums of parts, one for each source."""

from __future__ import annotations

from whyformer.axes import SourceScores
from whyformer.errors import WhyformerError
from whyformer.methods.registry import method
from whyformer.removal.units import Ablation
from whyformer.tracing.reads import Reads


@method("depass", reads=Reads(subsets=True), kinds=("response",))
def depass(ablation: Ablation) -> SourceScores:
    """Part of the response's logits that comes from each source, by carrying parts of states forward (DePass, 2025).

    The residual state of each token is a sum of parts, one per source. Attention maps and the scales of norms are kept,
    and each neuron of an MLP is shared among the parts by the softmax of what they give its gate.
    """
    if ablation.split is None:
        raise WhyformerError("depass reads states, which a model that is only served does not show.")
    return ablation.split()
