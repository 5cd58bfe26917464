"""What a hull costs, written plainly: the reference for the kernels."""

from __future__ import annotations

import numpy as np

from cfk_plugin.protection.axes import NOMINAL, TREE, AxisArrays, Codes, Floats


def hull_cost(axes: AxisArrays, codes: Codes, anchor: Codes, place: Floats) -> float:
    """Return the cost of the hull of an anchor and some cells."""
    total = 0.0
    for j in range(axes.kind.size):
        values = np.unique(np.append(codes[:, j], anchor[j]))
        weight, base = float(axes.weight[j]), int(axes.offset[j])
        if axes.kind[j] == NOMINAL:
            total += weight * values.size / int(axes.card[j]) if values.size > 1 else 0.0
        elif axes.kind[j] == TREE:
            nodes = slice(axes.node_offset[j], axes.node_offset[j + 1])
            first, last = axes.node_low[nodes], axes.node_high[nodes]
            covers = (first <= values.min()) & (last >= values.max())
            leaves = (last - first + 1)[covers].min()
            total += weight * leaves / int(axes.card[j]) if values.size > 1 else 0.0
        else:
            numbers = axes.position[base + values[(values >= 0) & (values != axes.missing[j])]]
            if anchor[j] < 0:
                numbers = np.append(numbers, place[j])
            whole = axes.missing[j] in values and numbers.size > 0 and axes.missing[j] >= 0
            width = float(np.ptp(numbers)) if numbers.size else 0.0
            total += weight if whole else min(weight, width)
    return total
