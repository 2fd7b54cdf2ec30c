"""Fashion-MNIST: 70,000 pictures of clothes, 28 × 28 pixels, ten classes.

Xiao, Rasul and Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms", 2017,
arXiv:1708.07747.

The files are looked for in ``$OFFBEAT_DATA/fashion-mnist``, in ``$OFFBEAT_DATA``, in the cache (``fashion-mnist`` in
``$OFFBEAT_CACHE`` or in the user's folder for caches) and where Debian's package has them. If they are nowhere, they
are downloaded into the cache.
"""

import os
from pathlib import Path

import numpy as np
import pooch
from numpy.typing import NDArray

from offbeat.errors import OffbeatError
from offbeat.population.dataset import Dataset, MissingDataError
from offbeat.population.download import DownloadError, download
from offbeat.population.idx import read_idx

BASE_URL = "https://fashion-mnist.s3.eu-central-1.amazonaws.com/"
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")

# Per file: the dimensions, the SHA-256 of the compressed file as its authors publish it, and of its content.
FILES: dict[str, tuple[tuple[int, ...], str, str]] = {
    "train-images-idx3-ubyte.gz": (
        (60_000, 28, 28),
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    "train-labels-idx1-ubyte.gz": (
        (60_000,),
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    "t10k-images-idx3-ubyte.gz": (
        (10_000, 28, 28),
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    "t10k-labels-idx1-ubyte.gz": (
        (10_000,),
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
}

_MEAN = 0.2860
_STD = 0.3530


def load() -> Dataset:
    """Return Fashion-MNIST: 60,000 examples to train on and 10,000 to test, inputs ``(n, 1, 28, 28)``.

    The inputs are scaled to [0, 1], then standardised with the mean and the deviation of the training pixels.

    Raises:
        OffbeatError: A file is broken or another data set's, or ``$OFFBEAT_DATA`` is no folder.
        MissingDataError: The files are nowhere, nor can they be downloaded.
    """
    folder = _find()
    train_images, train_labels, test_images, test_labels = (
        read_idx(folder / name, shape, content_sha256) for name, (shape, _, content_sha256) in FILES.items()
    )
    return Dataset(
        name="fashion-mnist",
        train_inputs=_standardise(train_images),
        train_labels=train_labels.astype(np.int64),
        test_inputs=_standardise(test_images),
        test_labels=test_labels.astype(np.int64),
        classes=10,
    )


def _standardise(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return images ``(n, 28, 28)`` of bytes as inputs ``(n, 1, 28, 28)``."""
    # In place, because the training images take 188 MB as float32.
    inputs = images.astype(np.float32)[:, np.newaxis]
    inputs /= 255.0
    inputs -= _MEAN
    inputs /= _STD
    return inputs


def _find() -> Path:
    """Return a folder that holds the four files; they are downloaded if there is none."""
    own = os.environ.get("OFFBEAT_DATA")
    if own:
        root = Path(own).expanduser()
        if not root.is_dir():
            raise OffbeatError(f"OFFBEAT_DATA is {own!r}, which is not a folder: set it to one, or unset it")
        for folder in (root / "fashion-mnist", root):
            missing = _missing(folder)
            if not missing:
                return folder
            # Somebody who put some of the files there wants to know why they are not taken.
            if len(missing) < len(FILES):
                raise OffbeatError(f"{folder} holds only part of Fashion-MNIST: add {', '.join(missing)}")

    cache = Path(os.environ.get("OFFBEAT_CACHE") or pooch.os_cache("offbeat")).expanduser() / "fashion-mnist"
    for folder in (cache, DEBIAN_FOLDER):
        if not _missing(folder):
            return folder
    try:
        download(BASE_URL, {name: compressed for name, (_, compressed, _) in FILES.items()}, cache)
    except DownloadError as error:
        raise MissingDataError(
            f"Fashion-MNIST is not here{f', nor in OFFBEAT_DATA={own}' if own else ''}, and could not be downloaded "
            f"({error}): set OFFBEAT_DATA to a folder with its four files, or apt install dataset-fashion-mnist, or "
            "get online"
        ) from error
    return cache


def _missing(folder: Path) -> list[str]:
    """Return the names of the files that the folder lacks."""
    return [name for name in FILES if not (folder / name).is_file()]
