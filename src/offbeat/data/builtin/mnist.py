"""MNIST and Fashion-MNIST: 70,000 grey images each, 28 × 28 pixels, ten classes.

MNIST shows handwritten digits: LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to document
recognition", Proceedings of the IEEE 86(11), 1998. Fashion-MNIST shows clothes: Xiao, Rasul and Vollgraf,
"Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms", 2017, arXiv:1708.07747.
"""

from pathlib import Path

from offbeat.data.builtin.idx import IdxDataset
from offbeat.data.source_files import Source

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
