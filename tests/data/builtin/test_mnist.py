import numpy as np

from offbeat.data.builtin import mnist


def test_the_source_has_the_published_hashes():
    assert mnist.SOURCE.name == "mnist"
    assert mnist.SOURCE.files == {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    }


def test_the_real_files(real_data):
    real_data("mnist", *mnist.SOURCE.files)
    dataset = mnist.load()
    assert dataset.name == "mnist"
    assert dataset.train_inputs.shape == (60_000, 1, 28, 28)
    assert dataset.test_inputs.shape == (10_000, 1, 28, 28)
    # The digits of the first pictures, which every tutorial shows, and how many there are of each.
    assert dataset.train_labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert np.bincount(dataset.train_labels).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949
    ]  # fmt: skip
    assert np.bincount(dataset.test_labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert abs(dataset.train_inputs.mean(dtype=np.float64)) < 1e-3
    assert abs(dataset.train_inputs.std(dtype=np.float64) - 1) < 1e-3
