"""The sentence on top of a report, for each kind of comparison."""

import math

import pytest

from offbeat.report.finding import finding
from offbeat.report.summary import summarise
from tests.report.example_runs import a_run

ACCURACY = {"metrics": ["accuracy"], "better": "higher"}


def timed(**ends):
    return [
        a_run(label, seed, (0.1, 0.5), seconds=(0, end)) for label, own in ends.items() for seed, end in enumerate(own)
    ]


def ended(**values):
    return [
        a_run(label, seed, (0.1, value), evaluate=ACCURACY)
        for label, own in values.items()
        for seed, value in enumerate(own)
    ]


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        (
            timed(fedavg=(200, 400, 1600), b=(100, 200, 790)),
            "b reached 50 % 2.0 times as fast as fedavg (95 % interval 2.0 to 2.0, 3 paired seeds).",
        ),
        (
            timed(fedavg=(200, 400, 1600), b=(100, 200, 790), c=(300, 500, 1700)),
            "b, the best of 2, reached 50 % 2.0 times as fast as fedavg (95 % interval 2.0 to 2.0, 3 paired seeds).",
        ),
        (
            timed(fedavg=(200, 400), b=(100, 400)),
            "No clear difference in the time to 50 %: b was 1.4 times as fast as fedavg "
            "(95 % interval 0.02 to 115.6, 2 paired seeds).",
        ),
        (timed(fedavg=(200,), b=(100,)), "b reached 50 % 2.0 times as fast as fedavg in one seed; run several."),
        (
            [a_run("fedavg", 0, (0.1, 0.2)), a_run("b", 0), a_run("b", 1, (0.1, 0.2))],
            "b reached 50 % in 1 of 2 seeds; fedavg in 0 of 1.",
        ),
        (
            [a_run("fedavg", 0, (0.1, 0.2)), *timed(b=(100, 300)), *timed(c=(60, 90))],
            "c reached 50 % in 2 of 2 seeds, after 1 min 15 s on average; b in 2 of 2; fedavg in 0 of 1.",
        ),
        (
            [a_run("fedavg", 0, (0.1, 0.2)), a_run("b", 0, (0.1, 0.3)), a_run("c", 0, (0.1, math.nan))],
            "No run reached 50 %; b ended best, at 30.0 %.",
        ),
        ([a_run("fedavg", 0, (0.1, 0.2))], "No run reached 50 %; fedavg ended at 20.0 %."),
        (timed(fedbuff=(600, 600)), "fedbuff reached 50 % after 10 min in 2 seeds."),
        (
            ended(fedavg=(0.5, 0.6, 0.8), b=(0.52, 0.62, 0.82)),
            "b ended 2.0 points above fedavg (95 % interval 2.0 to 2.0, 3 paired seeds).",
        ),
        (
            ended(fedavg=(0.5, 0.6), b=(0.52, 0.58)),
            "No clear difference at the end: b is 0.0 points above fedavg "
            "(95 % interval -25.4 to 25.4, 2 paired seeds).",
        ),
        (ended(fedavg=(0.5,), b=(0.4,)), "b ended 10.0 points below fedavg in one seed; run several."),
        (ended(fedbuff=(0.5, 0.6)), "fedbuff ended at 55.0 %."),
    ],
)
def test_the_sentence(runs, sentence):
    assert finding(summarise(runs)) == sentence


@pytest.mark.parametrize("evaluate", [None, ACCURACY])
def test_unfinished_runs_are_named_instead(evaluate):
    half = [a_run("b", seed, (0.1, 0.2), evaluate=evaluate, finished=False) for seed in (1, 2)]
    runs = [a_run("fedavg", seed, evaluate=evaluate) for seed in (1, 2)]
    assert finding(summarise([*runs, *half])) == "No finding yet, unfinished: b (seeds 1, 2)."
    assert finding(summarise(half[:1])) == "No finding yet, unfinished: b (seed 1)."


def test_a_seed_that_only_the_baseline_ran_may_miss_the_target():
    runs = [*timed(fedavg=(200, 400), b=(100, 200)), a_run("fedavg", 2, (0.1, 0.2))]
    assert finding(summarise(runs)) == (
        "b reached 50 % 2.0 times as fast as fedavg (95 % interval 2.0 to 2.0, 2 paired seeds)."
    )


def test_an_unfinished_run_that_has_reached_the_target_counts():
    runs = [a_run("fedavg", 0, (0.1, 0.2, 0.5)), a_run("b", 0, finished=False)]
    assert finding(summarise(runs)) == "b reached 50 % 2.0 times as fast as fedavg in one seed; run several."


def test_a_lower_loss_is_better():
    evaluate = {"metrics": [], "better": "lower"}
    runs = [
        a_run(label, seed, (2.0, end), evaluate=evaluate)
        for label, ends in {"fedavg": (1.0, 2.0), "b": (0.5, 1.5), "c": (1.5, 2.5)}.items()
        for seed, end in enumerate(ends)
    ]
    assert finding(summarise(runs)) == (
        "b, the best of 2, ended 0.500 loss below fedavg (95 % interval -0.500 to -0.500, 2 paired seeds)."
    )
