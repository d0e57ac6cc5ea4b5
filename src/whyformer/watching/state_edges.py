"""The edge of the graph at which the gradient of a residual state is taken: the tensor that both branches read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

# Copies in the graph: the model's own, and those that PyTorch makes for the backward hooks of a module.
COPIES = ("CloneBackward0", "ToCopyBackward0", "AliasBackward0", "BackwardHookFunctionBackward")


def shared_edge(state: Tensor, output: Tensor) -> GradientEdge:
    """The edge of a state that an output is computed from and added to, or of the tensor the state is a copy of.

    The gradient of a copy that only the sum reads lacks the part through the attention. A state computed only for the
    sum, as where patches are merged, has its own edge.
    """
    own = get_gradient_edge(state)
    return next((edge for edge in _originals(own) if _depends(output, edge)), own)


def _originals(edge: GradientEdge) -> Iterator[GradientEdge]:
    """An edge of the graph, the edge it is a copy of, and so on."""
    yield edge
    while edge.node.name() in COPIES:
        node, number = edge.node.next_functions[edge.output_nr]
        if node is None:
            return
        edge = GradientEdge(node, number)
        yield edge


def _depends(output: Tensor, edge: GradientEdge) -> bool:
    """Whether a tensor is computed from an edge of its graph, searched breadth first."""
    queue: deque[Node] = deque([get_gradient_edge(output).node] if output.requires_grad else [])
    known = set(queue)
    while queue:
        for node, number in queue.popleft().next_functions:
            if node is edge.node and number == edge.output_nr:
                return True
            if node is not None and node not in known:
                known.add(node)
                queue.append(node)
    return False
