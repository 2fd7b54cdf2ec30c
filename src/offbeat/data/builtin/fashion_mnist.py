"""Fashion-MNIST: 70,000 pictures of clothes, 28 × 28 pixels, ten classes.

Xiao, Rasul and Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms", 2017,
arXiv:1708.07747.
"""

from pathlib import Path

from offbeat.data.builtin.idx_images import IdxFile, load_images
from offbeat.data.dataset import Dataset
from offbeat.data.source_files import Source

FILES = (
    IdxFile(
        "train-images-idx3-ubyte.gz",
        (60_000, 28, 28),
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    IdxFile(
        "train-labels-idx1-ubyte.gz",
        (60_000,),
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    IdxFile(
        "t10k-images-idx3-ubyte.gz",
        (10_000, 28, 28),
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    IdxFile(
        "t10k-labels-idx1-ubyte.gz",
        (10_000,),
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)

SOURCE = Source(
    name="fashion-mnist",
    title="Fashion-MNIST",
    base_url="https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
    files={file.name: file.published_sha256 for file in FILES},
    debian_folder=Path("/usr/share/datasets/fashion-mnist"),
)


def load() -> Dataset:
    """Return Fashion-MNIST: 60,000 examples to train on and 10,000 to test, inputs ``(n, 1, 28, 28)``.

    The inputs are scaled to [0, 1], then standardised with the mean and the deviation of the training pixels.

    Raises:
        OffbeatError: A file is broken or another data set's, or ``$OFFBEAT_DATA`` is no folder or holds only part.
        MissingDataError: The files are nowhere, nor can they be downloaded.
    """
    return load_images(SOURCE, FILES, mean=0.2860, deviation=0.3530)
