import tracemalloc

import numpy as np
from offbeat_private.helper.helper import sum_of_masks
from offbeat_private.masks.keystream import keystream


def test_noise_is_subtracted_and_sums_wrap_around():
    seeds = [bytes([1] * 32), bytes([2] * 32)]
    masks = [keystream(seed, 0, 5).tolist() for seed in seeds]
    steps = [0, 1, -1, 2_000_000, -(2**31) - 5]
    noise = np.array(steps)
    total = sum_of_masks(seeds, 5, noise)
    assert total.tolist() == [(a + b - n) % 2**32 for a, b, n in zip(*masks, steps, strict=True)]
    assert noise.tolist() == steps
    assert sum_of_masks(seeds, 5, None).tolist() == [(a + b) % 2**32 for a, b in zip(*masks, strict=True)]


def test_memory_does_not_depend_on_the_number_of_masks():
    def peak(count):
        tracemalloc.start()
        sum_of_masks([bytes([client] * 32) for client in range(count)], 500_000, None)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(1)
    assert peak(20) < peak(2) + 100_000 < 4 * 500_000 + 2_000_000
