import pytest

from offbeat.report.cost_axes import cost_axis, measure_title
from offbeat.report.metrics import Measure
from tests.report.example_runs import a_run


def test_an_axis_has_a_unit_for_all_runs():
    runs = [a_run("a"), a_run("b", seconds=(0.0, 7200.0))]
    axis = cost_axis("seconds", runs)
    assert (axis.title, axis.unit, axis.end) == ("virtual time (minutes)", 60, 120)
    axis = cost_axis("bytes", [a_run(totals={"bytes_down": 3000, "bytes_up": 500})])
    assert (axis.title, axis.unit, axis.end) == ("sent to and by all clients (kB)", 1000, 3.5)
    assert cost_axis("updates", runs).end == 3  # counted, unused and lost


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("accuracy", "test accuracy"),
        ("my_metric", "test my metric"),
        ("loss", "test loss"),
        ("training_loss", "training loss"),
        ("client_accuracy", "accuracy on clients, by examples"),
        ("client_accuracy_worst", "accuracy on clients, worst tenth"),
        ("client_my_metric_p10", "my metric on clients, 10th percentile"),
    ],
)
def test_the_title_of_a_measure_says_on_which_examples(name, title):
    assert measure_title(Measure(name, higher_is_better=True, is_share=False)) == title
