"""Handwritten digits of scikit-learn, which need no download.

1,797 images of 8 × 8 pixels: the test part of "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak,
UCI Machine Learning Repository, 1998).
"""

import numpy as np

from offbeat.data.dataset import Dataset

_BRIGHTEST = 16.0
_TEST_EVERY = 5


def load() -> Dataset:
    """Return 1,433 training and 364 test digits ``(n, 1, 8, 8)``, scaled to [0, 1]."""
    # Imported late, because scikit-learn takes a second to import.
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    inputs = (np.asarray(images) / _BRIGHTEST).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = np.asarray(labels).astype(np.int64)
    # Every fifth of each class: the writers wrote 0, 1, …, 9 in turn, so every fifth of all is too often a 0 or a 5.
    test = np.zeros(len(labels), np.bool_)
    for label in range(10):
        test[np.flatnonzero(labels == label)[::_TEST_EVERY]] = True
    return Dataset("digits", inputs[~test], labels[~test], inputs[test], labels[test], classes=10)
