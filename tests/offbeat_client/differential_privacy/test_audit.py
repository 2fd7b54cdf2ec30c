"""Audits of noisy sums; ``OFFBEAT_AUDITS`` says how many of each mechanism, ``make audit`` does 50."""

import hashlib
import math
import os
from collections.abc import Callable

import numpy as np
import pytest

from offbeat_client.differential_privacy.noise_rows import NoiseSource
from offbeat_client.helper.opening import sum_of_masks
from offbeat_client.privacy.fixed_point import clip_factor, norm, quantise
from offbeat_client.privacy.share import mask
from tests.offbeat_client.differential_privacy.audit import Vectors, audit

AUDITS = int(os.environ.get("OFFBEAT_AUDITS", "1"))
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


def masked_sums(bands: int, seed: int) -> float:
    """Return the audit's result for masked sums that a helper opens, whose noise is bound to the batches."""
    largest = 2**19 - 1
    step = CLIP_NORM / largest
    source = NoiseSource(
        hashlib.sha256(b"secret %d" % seed).digest(), LENGTH, noise_multiplier=5, clip_norm=CLIP_NORM,
        participations=10, separation=20, bands=bands, step=step,
    )  # fmt: skip
    batches: list[bytes] = []

    def release(number: int, updates: Vectors) -> Vectors:
        seeds = [os.urandom(32) for _ in updates]
        masked = np.zeros(LENGTH, np.uint32)
        for update, key in zip(updates.astype(np.float32), seeds, strict=True):
            factor = clip_factor(norm(update), CLIP_NORM)
            masked += mask(quantise(update, step, os.urandom(32), largest, factor), key)
        batches.append(hashlib.sha256(b"".join(seeds)).digest())
        masked -= sum_of_masks(seeds, LENGTH, source.noise(number, batches), step)
        return masked.view(np.int32) * step

    return audit(release, length=LENGTH, canary_norm=10 * CLIP_NORM, bands=bands, seed=seed)


@BANDS
def test_distance_is_the_accountants(bands: int) -> None:
    assert private_sums(bands) == pytest.approx(EXPECTED, abs=0.2)


@BANDS
def test_distance_of_masked_sums_is_the_accountants(bands: int, capsys: pytest.CaptureFixture[str]) -> None:
    distances = [masked_sums(bands, seed) for seed in range(AUDITS)]
    with capsys.disabled():
        print(f"\n  {bands} bands: {np.mean(distances):.3f} ({min(distances):.3f} … {max(distances):.3f})")
    assert np.mean(distances) == pytest.approx(EXPECTED, abs=0.2 / math.sqrt(AUDITS))


@BANDS
def test_halved_noise_is_caught(bands: int) -> None:
    assert private_sums(bands, noise_share=0.5) > EXPECTED + 0.2


@BANDS
def test_doubled_noise_is_caught(bands: int) -> None:
    assert private_sums(bands, noise_share=2.0) < EXPECTED - 0.2


@BANDS
def test_updates_without_a_clip_are_caught(bands: int) -> None:
    assert private_sums(bands, clip=plain) > EXPECTED + 0.2
