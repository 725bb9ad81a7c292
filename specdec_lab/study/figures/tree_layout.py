"""Where the nodes of a tree stand in a picture."""

from __future__ import annotations

from collections.abc import Sequence


def tree_layout(parents: Sequence[int]) -> tuple[list[int], list[float], int]:
    """Depth and height of every node, and the number of leaves; siblings keep their order.

    ``parents`` name earlier nodes, -1 the root, whose children have depth 0. A leaf has a line of
    its own, and a parent stands in the middle of its children.
    """
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    level, height, leaves = [0] * len(parents), [0.0] * len(parents), 0

    def place(node: int, at: int) -> None:
        nonlocal leaves
        level[node] = at
        below = children.get(node, [])
        for child in below:
            place(child, at + 1)
        if below:
            height[node] = sum(height[child] for child in below) / len(below)
        else:
            height[node], leaves = float(leaves), leaves + 1

    for node in children.get(-1, []):
        place(node, 0)
    return level, height, leaves
