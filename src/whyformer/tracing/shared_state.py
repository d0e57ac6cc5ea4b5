"""Where in the graph the gradient of a residual state is taken: at the tensor that both its branches read."""

from __future__ import annotations

from collections import deque

from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

# Copies in the graph: their own, and those that PyTorch makes for the backward hooks of a module.
COPIES = ("CloneBackward0", "ToCopyBackward0", "AliasBackward0", "BackwardHookFunctionBackward")


def shared_edge(state: Tensor, output: Tensor) -> GradientEdge | None:
    """The place in the graph of a state that an output is computed from and added to, or of what it is a copy of.

    The gradient of a copy that only the sum reads lacks what goes through the attention. None where the output depends
    on neither.
    """
    edge = get_gradient_edge(state)
    while not _depends(output, edge):
        if edge.node.name() not in COPIES:
            return None
        node, number = edge.node.next_functions[edge.output_nr]
        if node is None:
            return None
        edge = GradientEdge(node, number)
    return edge


def _depends(output: Tensor, edge: GradientEdge) -> bool:
    """Whether a tensor is computed from what lies at an edge of its graph; the nearest is looked at first."""
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
