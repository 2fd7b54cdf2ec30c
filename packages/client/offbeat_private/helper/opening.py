"""The opening of a batch: seeds, masks, their sum minus noise."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray
from offbeat_private.helper.helper_refusal import HelperRefusal
from offbeat_private.masks.envelope import Envelope
from offbeat_private.masks.keystream import keystream_chunks


def open_seeds(envelopes: Sequence[Envelope], key_of: Callable[[int], X25519PrivateKey]) -> list[bytes]:
    """Return the seeds of envelopes; ``key_of`` returns an epoch's key.

    Raises:
        HelperRefusal: An envelope cannot be opened; its client is named.
    """
    seeds: list[bytes] = []
    for envelope in envelopes:
        try:
            seeds.append(envelope.open(key_of(envelope.binding.epoch)))
        except ValueError:
            client = envelope.binding.client
            raise HelperRefusal(
                "sealed-wrongly",
                f"client {client.hex()[:16]}: its seed cannot be opened with the helper's key: drop its record",
                client,
            ) from None
    return seeds


def sum_of_masks(seeds: Iterable[bytes], length: int, noise: NDArray[np.int64] | None) -> NDArray[np.uint32]:
    """Return the sum of the seeds' masks minus the noise, modulo 2³².

    Masks are made a piece at a time, so the memory does not depend on how many there are.

    Args:
        seeds: The masks' seeds.
        length: d, the length of a mask.
        noise: Array ``(d,)``, in steps; None for no noise.

    Returns:
        Array ``(d,)`` of uint32.
    """
    total = np.zeros(length, np.uint32)
    if noise is not None:
        total -= noise.astype(np.uint32)
    for seed in seeds:
        for part, mask in keystream_chunks(seed, 0, length):
            total[part] += mask
    return total
