import math

import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.training.batch_metrics import Accuracy, Iou, MacroF1, Perplexity, accuracy
from offbeat.training.cross_entropy_calls import CrossEntropyCalls
from offbeat.training.evaluation import Evaluator
from offbeat.training.flat_model import FlatModel
from tests.training.conftest import made

MASK = torch.tensor([[1, 0], [1, 1]])
LOGITS = torch.tensor([[2.0, 3.0], [1.0, -1.0]])  # predicted: 1 1, 1 0


def one_hot(classes, number, dim):
    """Return logits that predict these classes."""
    return nn.functional.one_hot(torch.tensor(classes), number).float().movedim(-1, dim)


def calls_of(loss, *arguments):
    with CrossEntropyCalls() as calls:
        loss(*arguments)
    return calls.shown


class TestAccuracy:
    def test_ignored_targets_are_left_out(self):
        labels = torch.tensor([[0, 2, -100], [1, -100, -100]])
        outputs = one_hot([[0, 1, 1], [1, 1, 1]], 4, dim=1)  # right, wrong, –; right
        assert accuracy(outputs, labels) == 2 / 3
        assert accuracy(outputs.movedim(1, -1), labels) == 2 / 3  # classes last, as in language models

    def test_as_many_classes_as_tokens(self):
        """The shapes do not tell which dimension is that of the classes, but the loss does."""
        labels, outputs = torch.tensor([[0, 1, 1]]), one_hot([[0, 1, 2]], 3, dim=-1)
        outputs[0, 0, 1] = 0.5
        calls = calls_of(lambda: cross_entropy(outputs.movedim(-1, 1), labels))
        assert accuracy.value(accuracy.count(outputs, labels, calls)) == 2 / 3

    def test_another_ignored_number_is_that_of_the_loss(self):
        outputs, labels = one_hot([0, 1, 1, 2], 3, dim=1), torch.tensor([0, 2, 1, 1])
        assert accuracy(outputs, labels) == 0.5
        calls = calls_of(nn.CrossEntropyLoss(ignore_index=2), outputs, labels)
        assert accuracy.value(accuracy.count(outputs, labels, calls)) == 2 / 3

    def test_a_language_model_is_measured_on_the_tokens_that_its_loss_predicts(self):
        tokens = torch.tensor([[3, 1, 4, 1, 5]])
        logits = one_hot([[1, 4, 0, 5, 0]], 6, dim=-1)  # the next token is right, right, wrong, right
        calls = calls_of(lambda: cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()))
        assert accuracy.value(accuracy.count(logits, tokens, calls)) == 0.75

    @pytest.mark.parametrize("reduction", ["sum", "none"])
    def test_sums_of_cross_entropies_tell_the_tokens_too(self, reduction):
        tokens = torch.tensor([[3, 1, 4, -100, 5]])
        logits = one_hot([[1, 4, 0, 5, 0]], 6, dim=-1)
        shifted = logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
        calls = calls_of(lambda: cross_entropy(*shifted, reduction=reduction))
        assert accuracy.value(accuracy.count(logits, tokens, calls)) == 1.0
        perplexity = Perplexity()
        expected = cross_entropy(*shifted).exp().item()
        assert perplexity.value(perplexity.count(logits, tokens, calls)) == pytest.approx(expected)

    def test_smoothed_labels_are_decisions(self):
        assert accuracy(LOGITS, MASK * 0.9 + 0.05) == 0.5
        assert accuracy(LOGITS[:, :1], MASK[:, :1] * 0.9 + 0.05) == 1.0
        assert accuracy(LOGITS[:, 0], MASK[:, 0] * 0.9 + 0.05) == 1.0

    @pytest.mark.parametrize("metric", [accuracy, Iou(), MacroF1()])
    def test_a_label_beyond_the_classes_is_refused(self, metric):
        with pytest.raises(OffbeatError, match=rf"^{metric.name} needs labels below the model's number of classes"):
            metric(one_hot([0, 1, 1], 2, dim=1), torch.tensor([0, 1, 255]))

    def test_of_several_labels_each_decision_counts(self):
        assert accuracy(LOGITS, MASK.float()) == 0.5
        assert accuracy(LOGITS, MASK) == 0.5
        assert accuracy(LOGITS, MASK.bool()) == 0.5

    def test_of_probabilities_the_most_probable_class_counts(self):
        probabilities = torch.tensor([[0.1, 0.9], [0.4, 0.6]])
        calls = calls_of(cross_entropy, LOGITS, probabilities)
        assert accuracy.value(accuracy.count(LOGITS, probabilities, calls)) == 0.5  # 1 0 for 1 1

    def test_without_a_target_it_is_undefined(self):
        with pytest.raises(OffbeatError, match=r"^accuracy is undefined: no target counts"):
            accuracy(LOGITS, torch.tensor([-100, -100]))

    @pytest.mark.parametrize(
        ("outputs", "labels"), [((3, 2), (3, 4)), ((3, 2), (3, 1)), ((3, 2), (2,)), ((3,), (3, 3)), ((3, 1), (1,))]
    )
    def test_a_misfit_says_what_to_set(self, outputs, labels):
        with pytest.raises(OffbeatError) as caught:
            accuracy(torch.zeros(outputs), torch.zeros(labels))
        assert str(caught.value).startswith("accuracy needs labels of shape (3,) for outputs of shape (3")
        assert str(caught.value).endswith(f"have shape {labels}: name other metrics, or none: metrics = []")


class TestPerplexity:
    def test_equally_likely_tokens(self):
        tokens = torch.tensor([[3, 1, 4], [-100, -100, 2]])
        assert Perplexity()(torch.zeros(2, 7, 3), tokens) == pytest.approx(7, rel=1e-6)
        assert Perplexity()(torch.zeros(2, 3, 7), tokens) == pytest.approx(7, rel=1e-6)

    def test_weights_and_smoothing_of_the_loss_do_not_count(self):
        logits, tokens = torch.tensor([[0.0, 0.0, 9.0], [0.0, 1.0, 0.0]]), torch.tensor([0, 1])
        weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 9.0, 1.0]), label_smoothing=0.3)
        mean = -(math.log(1 / (2 + math.exp(9))) + math.log(math.e / (2 + math.e))) / 2
        counts = Perplexity().count(logits, tokens, calls_of(weighted, logits, tokens))
        assert Perplexity().value(counts) == pytest.approx(math.exp(mean), rel=1e-5)

    def test_a_hopeless_model_has_a_finite_one(self):
        assert math.isfinite(Perplexity()(torch.tensor([[0.0, 1e30]]), torch.tensor([0])))

    def test_floats_have_none(self):
        with pytest.raises(OffbeatError, match=r"^perplexity needs labels"):
            Perplexity()(LOGITS, LOGITS)


class TestMacroF1:
    def test_by_hand(self):
        # The first label: 2 right of 2 and 2. The second: none right, one predicted, one true.
        assert MacroF1()(LOGITS, MASK) == (1 + 0) / 2

    def test_a_label_that_does_not_occur_is_left_out(self):
        assert MacroF1()(torch.tensor([[2.0, -3.0]]), torch.tensor([[1, 0]])) == 1
        with pytest.raises(OffbeatError, match=r"^macro_f1 is undefined: .* no label occurs"):
            MacroF1()(-LOGITS.abs(), torch.zeros(2, 2))

    def test_of_classes(self):
        outputs = one_hot([0, 0, 1, 2], 4, dim=1)
        # 0: one right, two predicted, one true; 1: one, one, two; 2: one, one, one; 3 does not occur.
        assert MacroF1()(outputs, torch.tensor([0, 1, 1, 2])) == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)


class TestIou:
    def test_of_classes(self):
        outputs = one_hot([[[0, 0], [1, 1]]], 3, dim=1)
        labels = torch.tensor([[[0, 1], [1, -100]]])
        assert Iou()(outputs, labels) == (1 / 2 + 1 / 2) / 2

    @pytest.mark.parametrize("channel", [True, False])
    def test_of_one_mask(self, channel):
        outputs, labels = (LOGITS[None, None], MASK[None, None]) if channel else (LOGITS[None, None], MASK[None])
        assert Iou()(outputs, labels.float()) == 2 / 4

    def test_of_several_masks_each_channel_counts_as_much(self):
        outputs = torch.stack([LOGITS, torch.ones(2, 2)])[None]
        masks = torch.stack([MASK, torch.ones(2, 2, dtype=torch.int64)])[None]
        assert Iou()(outputs, masks) == (2 / 4 + 1) / 2


@pytest.mark.parametrize("metric", [Accuracy(), Perplexity(), MacroF1(), Iou()])
def test_batches_add_up_to_the_whole(metric):
    """700 examples are three batches; no outputs are kept."""
    draw = torch.Generator().manual_seed(1)
    inputs, labels = torch.randn(700, 6, generator=draw), torch.randint(-1, 3, (700,), generator=draw)
    labels[labels < 0] = -100
    model = made(lambda: FlatModel(nn.Linear(6, 4)))
    evaluate = Evaluator(model, loss=cross_entropy, metrics={"it": metric}, inputs=inputs, labels=labels, seed=1)
    _, values = evaluate(model.vector.clone())
    with torch.no_grad():
        assert values == {"it": pytest.approx(metric(model.module(inputs), labels), rel=1e-6)}
