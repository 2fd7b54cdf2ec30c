from functools import partial

import numpy as np
import pytest
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from offbeat.training.default_metrics import default_metrics
from offbeat.training.objectives import bce, model_loss, mse

CLASSES, TOKENS, MASKS = (np.zeros(shape, np.int64) for shape in ((3,), (3, 7), (3, 4, 4)))
SOFT = np.full((3, 4), 0.25, np.float32)


@pytest.mark.parametrize(
    ("loss", "labels", "metrics"),
    [
        ("cross_entropy", CLASSES, ["accuracy"]),
        (cross_entropy, CLASSES - 100, ["accuracy"]),
        ("model", CLASSES, ["accuracy"]),
        (nn.NLLLoss(), CLASSES, ["accuracy"]),
        (partial(cross_entropy, ignore_index=3), TOKENS, ["accuracy", "perplexity"]),
        (model_loss, TOKENS, ["accuracy", "perplexity"]),
        (nn.CrossEntropyLoss(ignore_index=255), MASKS, ["iou"]),
        (cross_entropy, SOFT, ["accuracy"]),
        ("bce", CLASSES.astype(np.float32), ["accuracy"]),
        (bce, SOFT[:, :1], ["accuracy"]),
        (nn.BCEWithLogitsLoss(), TOKENS.astype(np.float32), ["accuracy", "macro_f1"]),
        (bce, TOKENS > 0, ["accuracy", "macro_f1"]),
        (bce, MASKS, ["iou"]),
        ("mse", SOFT, []),
        (mse, CLASSES, []),
        (mse_loss, SOFT, []),
        (lambda outputs, labels: outputs.mean(), SOFT, []),
    ],
)
def test_metrics_are_those_of_the_labels(loss, labels, metrics, caplog):
    assert default_metrics(loss, labels) == metrics
    assert not caplog.messages


@pytest.mark.parametrize(
    ("loss", "labels"), [(lambda outputs, labels: outputs.mean(), CLASSES), ("bce", SOFT), ("model", SOFT)]
)
def test_without_a_default_a_line_says_so(loss, labels, caplog):
    assert default_metrics(loss, labels) == []
    (line,) = caplog.messages
    assert line.startswith(f"no metric is measured but the loss, since for labels that are {labels.dtype} of shape")
    assert line.endswith("name some in metrics")
