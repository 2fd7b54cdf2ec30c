import numpy as np
import pytest

from offbeat_studies.papers import unit_pixels


@pytest.mark.parametrize(
    ("name", "load", "mean"),
    [
        # The training pixels' means, as in the data sets' usual standardisation.
        ("mnist", unit_pixels.mnist, 0.1307),
        ("fashion-mnist", unit_pixels.fashion_mnist, 0.2860),
    ],
)
def test_pixels_are_from_0_to_1(real_data, name, load, mean):
    real_data(name, "train-images-idx3-ubyte.gz")
    images = load().train_inputs
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert images.mean(dtype=np.float64) == pytest.approx(mean, abs=1e-4)
