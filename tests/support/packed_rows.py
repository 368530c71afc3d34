"""Rows that hold several pairs."""

import numpy as np


def pack(rows, width, spacing=0):
    """Return the features of rows of (source ids, target ids) pairs."""
    features = {}
    for side, name in enumerate(("inputs", "targets")):
        ids, numbers, positions = np.zeros((3, len(rows), width), "int32")
        for row, pairs in enumerate(rows):
            start = 0
            for number, pair in enumerate(pairs, start=1):
                span = slice(start, start + len(pair[side]))
                ids[row, span] = pair[side]
                numbers[row, span] = number
                positions[row, span] = np.arange(len(pair[side]))
                start = span.stop + spacing
        features[name] = ids
        features[f"{name}_segmentation"] = numbers
        features[f"{name}_position"] = positions
    return features
