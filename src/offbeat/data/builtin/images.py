"""Images of digits and clothes: scikit-learn's digits, and MNIST's format.

An idx file (http://yann.lecun.com/exdb/mnist/, "File formats") starts with two zero bytes, a byte for the type of the
elements (8: unsigned bytes, the only one supported), a byte for the number of dimensions, and each dimension as four
bytes, big-endian; the elements follow.
"""

import gzip
import hashlib
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from offbeat_core.errors import OffbeatError

from offbeat.data.dataset import Dataset
from offbeat.data.source_files import Source


def standardise(images: NDArray[np.uint8], mean: ArrayLike, deviation: ArrayLike) -> NDArray[np.float32]:
    """Return images scaled to [0, 1], then standardised channel by channel.

    The images are ``(n, channels, height, width)``; ``mean`` and ``deviation`` of the scaled pixels ``(channels,)``.
    """
    # In place, to save memory: CIFAR-10's training images take 614 MB.
    inputs = images.astype(np.float32)
    inputs /= np.float32(255)
    inputs -= np.asarray(mean, np.float32)[:, np.newaxis, np.newaxis]
    inputs /= np.asarray(deviation, np.float32)[:, np.newaxis, np.newaxis]
    return inputs


_UNSIGNED_BYTE = 8


@dataclass(frozen=True)
class IdxDataset:
    """Grey images of ten classes in four idx files.

    The source's files are training images, training labels, test images and test labels. ``shapes`` and
    ``content_sha256`` are the dimensions and the hexadecimal SHA-256 of each decompressed file, by its name; ``mean``
    and ``deviation`` are those of the training pixels, scaled to [0, 1].
    """

    source: Source
    shapes: Mapping[str, tuple[int, ...]]
    content_sha256: Mapping[str, str]
    mean: float
    deviation: float

    def load(self) -> Dataset:
        """Return the data set, with standardised inputs ``(n, 1, height, width)``."""
        train_images, train_labels, test_images, test_labels = (
            read_idx(path, self.shapes[name], self.content_sha256[name])
            for name, path in zip(self.source.files, self.source.get(), strict=True)
        )
        return Dataset(
            name=self.source.name,
            train_inputs=standardise(train_images[:, np.newaxis], [self.mean], [self.deviation]),
            train_labels=train_labels.astype(np.int64),
            test_inputs=standardise(test_images[:, np.newaxis], [self.mean], [self.deviation]),
            test_labels=test_labels.astype(np.int64),
            classes=10,
        )


def read_idx(path: Path, shape: tuple[int, ...], sha256: str) -> NDArray[np.uint8]:
    """Return the elements of a gzipped idx file of unsigned bytes, read-only.

    The file is not trusted: at most one byte more than the expected length is decompressed. ``sha256`` is that of the
    decompressed file, since distributors compress the files again.
    """
    header = struct.pack(f">HBB{len(shape)}I", 0, _UNSIGNED_BYTE, len(shape), *shape)
    length = len(header) + math.prod(shape)
    try:
        with gzip.open(path) as file:
            # The extra byte reveals a file that is too long, and makes gzip read up to its checksum at the end.
            content = file.read(length + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OffbeatError(f"cannot read {path}: {reason}; remove or replace it") from error
    problem = _find_problem(content, header, length, shape, sha256)
    if problem:
        raise OffbeatError(f"{path} is not the expected file: {problem}; remove or replace it")
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)


def _find_problem(content: bytes, header: bytes, length: int, shape: tuple[int, ...], sha256: str) -> str | None:
    """Return how the content differs from the expected file; None if it does not."""
    if len(content) < len(header):
        return f"it holds only {len(content)} bytes"
    if content[:4] != header[:4]:
        return f"it starts with {content[:4].hex()}, not with {header[:4].hex()}"
    if content[: len(header)] != header:
        return f"its dimensions are {struct.unpack_from(f'>{len(shape)}I', content, 4)}, not {shape}"
    if len(content) != length:
        return f"it holds {'more' if len(content) > length else 'fewer'} than {length} bytes"
    if hashlib.sha256(content).hexdigest() != sha256:
        return "the SHA-256 of its content differs (is it from another data set?)"
    return None


# LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to document recognition", Proceedings of the IEEE
# 86(11), 1998; Xiao, Rasul and Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking machine learning
# algorithms", 2017, arXiv:1708.07747. Each has 70,000 images of 28 × 28 pixels.
_SHAPES = {
    "train-images-idx3-ubyte.gz": (60_000, 28, 28),
    "train-labels-idx1-ubyte.gz": (60_000,),
    "t10k-images-idx3-ubyte.gz": (10_000, 28, 28),
    "t10k-labels-idx1-ubyte.gz": (10_000,),
}

MNIST = IdxDataset(
    source=Source(
        name="mnist",
        title="MNIST",
        # The authors' own site no longer serves the files; torchvision uses this mirror.
        base_url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        # The published files' hashes, as in TensorFlow Datasets.
        files={
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
    shapes=_SHAPES,
    content_sha256={
        "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    mean=0.1307,
    deviation=0.3081,
)

FASHION_MNIST = IdxDataset(
    source=Source(
        name="fashion-mnist",
        title="Fashion-MNIST",
        base_url="https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
        files={
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
        debian_folder=Path("/usr/share/datasets/fashion-mnist"),
    ),
    shapes=_SHAPES,
    content_sha256={
        "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    mean=0.2860,
    deviation=0.3530,
)


_BRIGHTEST = 16.0
_TEST_EVERY = 5


def digits() -> Dataset:
    """Return 1,433 training and 364 test digits ``(n, 1, 8, 8)``, scaled to [0, 1].

    They come with scikit-learn: the test part of "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak, UCI
    Machine Learning Repository, 1998).
    """
    # As sklearn.datasets.load_digits does, but its import takes two seconds, in every process of every run.
    package = find_spec("sklearn")
    assert package is not None
    assert package.submodule_search_locations is not None
    table = np.loadtxt(Path(package.submodule_search_locations[0]) / "datasets/data/digits.csv.gz", delimiter=",")
    inputs = (table[:, :-1] / _BRIGHTEST).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = table[:, -1].astype(np.int64)
    # Every fifth of each class: the writers wrote 0, 1, …, 9 in turn, so every fifth of all is too often a 0 or a 5.
    test = np.zeros(len(labels), np.bool_)
    for label in range(10):
        test[np.flatnonzero(labels == label)[::_TEST_EVERY]] = True
    return Dataset("digits", inputs[~test], labels[~test], inputs[test], labels[test], classes=10)
