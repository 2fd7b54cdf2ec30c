import math

import pytest

from papers.figures.verdicts import verdicts
from tests.papers.figures.claims import claim, loss_run


def word(made, *pairs):
    """Return the verdict over seeds, each with the values of a and of b."""
    runs = [
        run for seed, (a, b) in enumerate(pairs) for run in (loss_run("a", *a, seed=seed), loss_run("b", *b, seed=seed))
    ]
    (verdict,) = verdicts([made], runs)
    return verdict.word


def test_the_verdict_depends_on_all_seeds():
    better, worse = ((0.4,), (0.5,)), ((0.6,), (0.5,))
    assert word(claim(), better, better) == "holds"
    assert word(claim(), worse, worse) == "does not hold"
    assert word(claim(), better, worse) == "differs"


@pytest.mark.parametrize(
    ("changes", "a", "b", "expected"),
    [
        ({"tolerance": 0.1}, 0.6, 0.5, True),
        ({"tolerance": 0.05}, 0.6, 0.5, False),
        ({"factor": 2.0}, 0.9, 0.5, True),
        ({"factor": 0.5}, 0.3, 0.5, False),
        ({"relation": "at least"}, 0.6, 0.5, True),
        ({"relation": "at least", "factor": 2.0}, 0.6, 0.5, False),
        ({"relation": "at least", "factor": 2.0, "tolerance": 0.5}, 0.6, 0.5, True),
        ({"relation": "close to", "tolerance": 0.05}, 0.52, 0.5, True),
        ({"relation": "close to", "tolerance": 0.05}, 0.44, 0.5, False),
        ({"than": None, "value": 0.3, "factor": 2.0}, 0.6, 0.0, True),
        ({"than": None, "value": 0.2, "factor": 2.0}, 0.6, 0.0, False),
    ],
)
def test_relations(changes, a, b, expected):
    assert (word(claim(**changes), ((a,), (b,))) == "holds") is expected


def test_a_claim_about_a_diverged_run_does_not_hold():
    assert word(claim(), ((math.nan,), (0.5,))) == "does not hold"
    assert word(claim(relation="at least"), ((0.5,), (math.nan,))) == "does not hold"
    assert word(claim(), ((math.inf,), (math.inf,))) == "does not hold"
    assert word(claim(), ((0.5,), (math.inf,))) == "does not hold"
    infinite = [loss_run("a", 0.5), loss_run("a2", math.inf), loss_run("b", 0.5)]
    assert verdicts([claim(less="a2", than=None, value=0.5)], infinite)[0].word == "does not hold"
    swings = claim(quantity="swing", relation="at least", last_seconds=200.0)
    assert word(swings, ((0.5, math.inf, 0.5), (0.5, 0.4, 0.5))) == "does not hold"


def test_too_few_updates_leave_a_claim_undecided():
    early, late = claim(quantity="after_updates", updates=2), claim(quantity="after_updates", updates=20)
    better, worse = (0.9, 0.5, 0.1), (0.9, 0.8, 0.7)  # counted: 0, 1, 2
    assert word(early, (better, worse)) == "holds"
    assert word(late, (better, worse)) == "undecided"
    assert word(late, ((0.9, math.nan), worse)) == "does not hold"
    for relation in ("at least", "at most"):
        number = claim(quantity="after_updates", updates=20, relation=relation, than=None, value=0.5)
        assert word(number, (better, worse)) == "undecided"


SOON, LATE, NEVER = (0.9, 0.4, 0.4, 0.4, 0.4), (0.9, 0.9, 0.9, 0.9, 0.4), (0.9,) * 5  # after 100 s, 400 s; by 400 s not


@pytest.mark.parametrize(
    ("relation", "factor", "a", "b", "expected"),
    [
        ("at most", 1.0, SOON, NEVER, "holds"),
        ("at most", 1.0, NEVER, SOON, "does not hold"),
        ("at most", 1.0, NEVER, NEVER, "undecided"),
        ("at most", 0.45, SOON, NEVER, "holds"),  # 100 s, and at least 180 s
        ("at most", 0.45, LATE, NEVER, "undecided"),  # 400 s, and at least 180 s
        ("at most", 5.0, NEVER, SOON, "undecided"),  # more than 400 s, and 500 s
        ("at least", 1.0, NEVER, SOON, "holds"),
        ("at least", 1.0, SOON, NEVER, "does not hold"),
        ("at least", 3.0, NEVER, SOON, "holds"),  # more than 400 s, and 300 s
        ("at least", 5.0, NEVER, SOON, "undecided"),  # more than 400 s, and 500 s
        ("at least", 0.2, SOON, NEVER, "undecided"),  # 100 s, and at least 80 s
        ("close to", 1.0, SOON, NEVER, "does not hold"),
        ("close to", 1.0, LATE, NEVER, "undecided"),
    ],
)
def test_a_target_not_reached_costs_more_than_the_run(relation, factor, a, b, expected):
    assert word(claim(quantity="seconds_to_target", relation=relation, factor=factor), (a, b)) == expected


def test_a_diverged_run_never_reaches_the_target():
    diverged = (0.9, math.nan)
    faster, slower = (claim(quantity="seconds_to_target", relation=relation) for relation in ("at most", "at least"))
    assert word(faster, (LATE, diverged)) == "holds"
    assert word(faster, (diverged, LATE)) == "does not hold"
    assert word(slower, (diverged, LATE)) == "holds"
    assert word(faster, (diverged, diverged)) == "does not hold"


def test_a_target_not_reached_is_infinite_beside_a_number():
    never = claim(quantity="seconds_to_target", relation="at least", than=None, value=600.0)
    assert word(never, (NEVER, SOON)) == "holds"
    assert word(never, (SOON, SOON)) == "does not hold"


def test_an_open_seed_leaves_a_claim_undecided_if_the_others_agree():
    faster = claim(quantity="seconds_to_target", factor=0.45)
    yes, no, either = (SOON, NEVER), (LATE, SOON), (LATE, NEVER)
    assert word(faster, yes, either) == "undecided"
    assert word(faster, no, either) == "undecided"
    assert word(faster, yes, no, either) == "differs"


def test_a_verdict_has_one_number_per_seed():
    runs = [loss_run("a", 0.4), loss_run("a", 0.6, seed=1), loss_run("b", 1.0), loss_run("b", 2.0, seed=1)]
    (verdict,) = verdicts([claim(factor=0.5)], runs)
    assert (verdict.held, verdict.seeds, verdict.word) == (2, 2, "holds")
    assert (verdict.ours, verdict.other) == ([0.4, 0.6], [0.5, 1.0])


def test_a_claim_may_compare_with_another_panel():
    runs = [loss_run("a", 0.4), loss_run("b", 0.1)]
    beside = {"x": [loss_run("b", 0.5)], "y": [loss_run("b", 0.3)]}
    made = [claim(than_panel="x"), claim(than_panel="y"), claim()]
    assert [one.word for one in verdicts(made, runs, beside)] == ["holds", "does not hold", "does not hold"]


def test_a_claim_may_compare_differences():
    runs = [loss_run("a", 0.9), loss_run("a2", 0.5), loss_run("b", 0.7), loss_run("b2", 0.2), loss_run("nan", math.nan)]
    gap = {"less": "a2", "than_less": "b2"}  # 0.4 and 0.5
    made = [
        claim(**gap),
        claim(relation="at least", **gap),
        claim(relation="at least", factor=0.7, **gap),
        claim(less="a2", than=None, value=0.41),
        claim(less="a2", than=None, value=0.39),
        claim(less="nan", than_less="b2"),
    ]
    found = verdicts(made, runs)
    assert [one.word for one in found] == [
        "holds", "does not hold", "holds", "holds", "does not hold", "does not hold",
    ]  # fmt: skip
    assert (found[2].ours, found[2].other) == ([pytest.approx(0.4)], [pytest.approx(0.35)])
    # In another panel both are its own.
    beside = {"x": [loss_run("b", 0.7), loss_run("b2", 0.6), loss_run("a2", 9.0)]}
    assert verdicts([claim(than_panel="x", **gap)], runs, beside)[0].word == "does not hold"
