"""The sentence on top of a report, for each kind of comparison."""

import math

import pytest

from offbeat.report.finding import finding
from offbeat.report.summary import summarise
from tests.report.example_runs import a_run

ACCURACY = {"metrics": ["accuracy"], "better": "higher"}


def timed(**ends):
    return [
        a_run(label, seed, (0.1, 0.4, 0.5), seconds=(0, 0.999 * end, end))
        for label, own in ends.items()
        for seed, end in enumerate(own)
    ]


def ended(**values):
    return [
        a_run(label, seed, (0.1, value), evaluate=ACCURACY)
        for label, own in values.items()
        for seed, value in enumerate(own)
    ]


# The intervals are computed here by hand: mean ± t(1 − 0.05 / (2 · pairs), n − 1) · s / √n of the logarithms.
@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        (
            # Logarithms of the ratios: 0.6444, 0.7444, 0.7056; t(0.975, 2) = 4.303.
            timed(fedavg=(200, 400, 1600), b=(105, 190, 790)),
            "b reached 50 % 2.0 times as fast as fedavg (95 % interval 1.8 to 2.3, 3 seeds).",
        ),
        (
            # Three pairs: t(0.99167, 2) = 7.649.
            timed(fedavg=(1000, 1100, 1250), fedbuff=(300, 340, 390), fedfa=(310, 330, 430)),
            "fedbuff and fedfa reached 50 % faster than fedavg: fedbuff was 3.3 times as fast as fedavg (simultaneous "
            "95 % interval 3.0 to 3.6, 3 seeds). Between fedbuff and fedfa 3 seeds do not decide: fedbuff was 1.03 "
            "times as fast as fedfa (simultaneous 95 % interval 0.78 to 1.4, 3 seeds).",
        ),
        (
            timed(fedavg=(200, 400), b=(100, 400)),
            "Between b and fedavg 2 seeds do not decide: b was 1.4 times as fast as fedavg "
            "(95 % interval 0.02 to 116, 2 seeds); 16 more would, at a guess.",
        ),
        (
            timed(fedavg=(200, 200, 400), b=(100, 100, 400), c=(180, 210, 390)),
            # Logarithms of c / b: 0.5878, 0.7419, -0.0260.
            "Between b, c and fedavg 3 seeds do not decide: b was 1.5 times as fast as c (simultaneous 95 % interval "
            "0.26 to 9.3, 3 seeds); 9 more seeds would decide between b and c, at a guess.",
        ),
        (
            # b is separated from fedavg, c from neither. log(c / b): -0.2231, 0.5680, 0.3266.
            timed(fedavg=(1000, 1000, 1010), b=(500, 510, 505), c=(400, 900, 700)),
            "b reached 50 % faster than fedavg: b was 2.0 times as fast as fedavg (simultaneous 95 % interval 1.9 to "
            "2.1, 3 seeds). Between b and c 3 seeds do not decide: b was 1.3 times as fast as c (simultaneous 95 % "
            "interval 0.21 to 7.5, 3 seeds).",
        ),
        (timed(fedavg=(200,), b=(100,)), "b reached 50 % 2.0 times as fast as fedavg in one seed: run several."),
        (
            [*(a_run("fedavg", seed, (0.1, 0.2), seconds=(0, 1000)) for seed in range(3)), *timed(b=(100, 120, 110))],
            # log(1000 / 100), … are lower bounds: 2.303, 2.120, 2.207.
            "b reached 50 % at least 7.3 times as fast as fedavg (95 % bound, 3 seeds). "
            "50 % was missed by fedavg in 3 of 3 seeds.",
        ),
        (
            [a_run("fedavg", 0, (0.1, 0.2)), a_run("b", 0), a_run("b", 1, (0.1, 0.2))],
            "One seed does not decide: run several. 50 % was missed by fedavg in 1 of 1 seed and b in 1 of 2 seeds.",
        ),
        (
            [a_run("fedavg", 0, (0.1, 0.2)), a_run("b", 0, (0.1, 0.3)), a_run("c", 0, (0.1, math.nan))],
            "No run reached 50 %; b ended best, at 30.0 %.",
        ),
        ([a_run("fedavg", 0, (0.1, 0.2))], "No run reached 50 %; fedavg ended at 20.0 %."),
        (timed(fedbuff=(600, 600)), "fedbuff reached 50 % after 10 min in 2 seeds."),
        (
            # Points: 2.0, 2.5, 2.0.
            ended(fedavg=(0.5, 0.6, 0.8), b=(0.52, 0.625, 0.82)),
            "b ended 2.2 points above fedavg (95 % interval 1.4 to 2.9, 3 seeds).",
        ),
        (
            ended(fedavg=(0.5, 0.6), b=(0.52, 0.58)),
            "Between fedavg and b 2 seeds do not decide: fedavg was 0.0 points above b "
            "(95 % interval -25.4 to 25.4, 2 seeds).",
        ),
        (ended(fedavg=(0.5, 0.6), b=(0.4, math.nan)), "Between fedavg and b 2 seeds do not decide."),
        (ended(fedavg=(0.5,), b=(0.4,)), "fedavg ended 10.0 points above b in one seed: run several."),
        (ended(fedbuff=(0.5, 0.6)), "fedbuff ended at 55.0 %."),
    ],
)
def test_the_sentence(runs, sentence):
    assert finding(summarise(runs), None) == sentence


def test_updates_that_move_the_model_much_farther_are_named():
    runs = [
        a_run(label, seed, (0.1, 0.5), totals={"counted": 50, "displacement": way * 50}, seconds=(0, 100 + seed))
        for label, way in {"fedavg": 0.1, "fedbuff": 0.04, "fedfa": 0.2}.items()
        for seed in range(2)
    ]
    sentence = "Not tuned: fedfa's updates move the model 5.0 times as far as fedbuff's (0.2 against 0.04 an update)."
    assert finding(summarise(runs), None).endswith(sentence)
    alike = [run for run in runs if run.label != "fedbuff"]
    alike[0].history["displacement"][-1] *= 1.1
    assert "Not tuned" not in finding(summarise(alike), None)


@pytest.mark.parametrize("evaluate", [None, ACCURACY])
def test_unfinished_runs_are_named_instead(evaluate):
    half = [a_run("b", seed, (0.1, 0.2), evaluate=evaluate, finished=False) for seed in (1, 2)]
    runs = [a_run("fedavg", seed, evaluate=evaluate) for seed in (1, 2)]
    assert finding(summarise([*runs, *half]), None) == "No finding yet, unfinished: b (seeds 1, 2)."
    assert finding(summarise(half[:1]), None) == "No finding yet, unfinished: b (seed 1)."


def test_times_that_are_equal_by_rounding_separate_nothing():
    # Each run is evaluated every 100 s; three times 700 s beside three times 800 s may be 690 s and 710 s.
    runs = [
        a_run(label, seed, [*[0.1] * number, 0.5], seconds=range(0, 100 * number + 1, 100))
        for label, number in {"b": 7, "fedavg": 8}.items()
        for seed in range(3)
    ]
    # log(8 / 7) = 0.134; of rounding (1/6)² / 12, about: 4.303 · √(0.0445² + 0.0386²) / √3 = 0.146.
    assert "3 seeds do not decide: b was 1.1 times as fast as fedavg (95 % interval 0.99 to 1.3" in finding(
        summarise(runs), None
    )


def test_seeds_of_one_algorithm_alone_do_not_matter():
    runs = timed(fedavg=(200, 410), b=(100, 200))
    text = finding(summarise([*runs, a_run("fedavg", 2, (0.1, 0.2))]), None)
    assert "2 seeds" in text
    assert text.endswith("50 % was missed by fedavg in 1 of 3 seeds.")


def test_an_unfinished_run_that_has_reached_the_target_counts():
    runs = [a_run("fedavg", 0, (0.1, 0.2, 0.5)), a_run("b", 0, finished=False)]
    assert finding(summarise(runs), None) == "b reached 50 % 2.0 times as fast as fedavg in one seed: run several."


def test_names_of_many_that_are_all_alike_are_left_out():
    alike = {label: (100 + place, 110, 100) for place, label in enumerate("abcde")}
    assert finding(summarise(timed(**alike)), None).startswith("Between all 5 algorithms 3 seeds do not decide: a")
    del alike["e"]
    assert finding(summarise(timed(**alike)), None).startswith("Between a, b, c and d 3 seeds do not decide: a")


def test_a_lower_loss_is_better():
    evaluate = {"metrics": [], "better": "lower"}
    runs = [
        a_run(label, seed, (2.0, end), evaluate=evaluate)
        for label, ends in {"fedavg": (1.0, 2.0, 3.0), "b": (0.5, 1.51, 2.49)}.items()
        for seed, end in enumerate(ends)
    ]
    assert finding(summarise(runs), None) == (
        "b ended 0.500 loss below fedavg (95 % interval 0.475 to 0.525, 3 seeds)."
    )
