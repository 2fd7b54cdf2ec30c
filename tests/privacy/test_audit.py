import math
from collections.abc import Callable

import numpy as np
import pytest

from offbeat.privacy.noise_rows import NoiseSource
from tests.privacy.audit import Vectors, audit

LENGTH = 4096
CLIP_NORM = 2.0
EXPECTED = math.sqrt(10) / 5
BANDS = pytest.mark.parametrize("bands", [1, 20], ids=["independent", "banded"])


def clipped(updates: Vectors) -> Vectors:
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    return updates * np.minimum(1.0, CLIP_NORM / np.maximum(norms, 1e-12))


def plain(updates: Vectors) -> Vectors:
    return updates


def private_sums(bands: int, *, clip: Callable[[Vectors], Vectors] = clipped, noise_share: float = 1.0) -> float:
    """Return the audit's result for plain sums with noise of σ = 5, k = 10, b = 20."""
    source = NoiseSource(
        bytes(range(32)), LENGTH, noise_multiplier=5, clip_norm=CLIP_NORM, participations=10, separation=20, bands=bands
    )
    return audit(
        lambda number, updates: clip(updates).sum(axis=0) + noise_share * source.noise(number),
        length=LENGTH,
        canary_norm=10 * CLIP_NORM,
        bands=bands,
    )


@BANDS
def test_distance_is_the_accountants(bands: int) -> None:
    assert private_sums(bands) == pytest.approx(EXPECTED, abs=0.2)


@BANDS
def test_halved_noise_is_caught(bands: int) -> None:
    assert private_sums(bands, noise_share=0.5) > EXPECTED + 0.2


@BANDS
def test_doubled_noise_is_caught(bands: int) -> None:
    assert private_sums(bands, noise_share=2.0) < EXPECTED - 0.2


@BANDS
def test_updates_without_a_clip_are_caught(bands: int) -> None:
    assert private_sums(bands, clip=plain) > EXPECTED + 0.2
