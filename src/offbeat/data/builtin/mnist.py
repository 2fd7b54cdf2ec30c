"""MNIST: 70,000 handwritten digits, 28 × 28 pixels, ten classes.

LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to document recognition", Proceedings of the IEEE
86(11), 1998.
"""

from offbeat.data.builtin.idx_images import IdxFile, load_images
from offbeat.data.dataset import Dataset
from offbeat.data.source_files import Source

# The SHA-256 of the published files as TensorFlow Datasets has them.
FILES = (
    IdxFile(
        "train-images-idx3-ubyte.gz",
        (60_000, 28, 28),
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    IdxFile(
        "train-labels-idx1-ubyte.gz",
        (60_000,),
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    IdxFile(
        "t10k-images-idx3-ubyte.gz",
        (10_000, 28, 28),
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    IdxFile(
        "t10k-labels-idx1-ubyte.gz",
        (10_000,),
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)

# The authors' own site no longer serves the files; this mirror is the one that torchvision uses.
SOURCE = Source(
    name="mnist",
    title="MNIST",
    base_url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    files={file.name: file.published_sha256 for file in FILES},
)


def load() -> Dataset:
    """Return MNIST: 60,000 examples to train on and 10,000 to test, inputs ``(n, 1, 28, 28)``.

    The inputs are scaled to [0, 1], then standardised with the mean and the deviation of the training pixels.

    Raises:
        OffbeatError: A file is broken or another data set's, or ``$OFFBEAT_DATA`` is no folder or holds only part.
        MissingDataError: The files are nowhere, nor can they be downloaded.
    """
    return load_images(SOURCE, FILES, mean=0.1307, deviation=0.3081)
