"""The rule that turns tests into verdicts."""

from dataclasses import replace

import pytest

from offbeat_studies.papers.figures.figure_result import FigureRecord
from offbeat_studies.papers.figures.finding import Effect, Finding
from offbeat_studies.papers.figures.verdicts import of_all, with_verdicts


def finding(p, *, is_for=True, **changes):
    return Finding("c", "p", "o", "r", n=10, p=p, is_for=is_for, **changes)


def record(name, *findings, paper=None):
    paper = paper or f"Paper {name[0]}"
    return FigureRecord(name, "quick", "f", "f.toml", paper, "F", "q", "w", 1.0, findings, (), None, (), ())


def words(*records, outdated=()):
    return [[one.verdict for one in record.findings] for record in with_verdicts(records, outdated)]


def test_the_sign_and_the_corrected_p_value_decide():
    assert words(record("a/x", finding(0.01))) == [["supported"]]
    assert words(record("a/x", finding(0.01, is_for=False))) == [["contradicted"]]
    assert words(record("a/x", finding(0.06))) == [["not supported"]]
    assert words(record("a/x", finding(0.05))) == [["supported"]]


def test_the_tests_of_a_paper_are_corrected_together():
    # By hand: 0.02 × 3, and 0.03 × 2; of another paper 0.03 × 1.
    records = [record("a/x", finding(0.02), finding(0.9)), record("a/y", finding(0.03)), record("b/x", finding(0.03))]
    assert words(*records) == [["not supported", "not supported"], ["not supported"], ["supported"]]
    found = with_verdicts(records)
    assert found[0].findings[0].p_holm == pytest.approx(0.06)
    assert found[2].findings[0].p_holm == 0.03


def test_papers_on_one_page_are_corrected_apart():
    records = [record("a/x", finding(0.03), paper="One"), record("a/y", finding(0.03), paper="Two")]
    assert words(*records) == [["supported"], ["supported"]]


def test_what_is_not_tested_is_open_and_not_counted():
    untested = finding(0.9, obstacle="fewer than 5 seeds"), finding(None)
    assert words(record("a/x", finding(0.03), *untested)) == [["supported", "open", "open"]]
    records = [record("a/x", finding(0.03)), record("a/y", finding(0.9))]
    assert words(*records, outdated=[records[1].key]) == [["supported"], ["open"]]
    assert with_verdicts(with_verdicts(records), [records[1].key])[1].findings[0].p_holm is None


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (["supported", "supported"], "supported"),
        (["supported", "open"], "open"),
        (["supported", "open", "not supported"], "not supported"),
        (["supported", "contradicted", "not supported"], "contradicted"),
    ],
)
def test_a_statement_must_be_supported_by_all_its_findings(found, word):
    assert of_all(found) == word


@pytest.mark.parametrize(
    ("effect", "distance"),
    [
        (Effect("difference", 0.3, 0.1, 0.5, (0.0, None)), 1.5),
        (Effect("difference", -0.3, -0.5, -0.1, (0.0, None)), -1.5),
        (Effect("difference", 0.3, 0.1, 0.5, (None, 0.2)), -0.5),
        (Effect("difference", 0.1, 0.0, 0.2, (-0.3, 0.3)), 2.0),
        (Effect("ratio", 0.25, 0.125, 0.5, (None, 1.0)), 2.0),  # in logarithms of base 2: 2 of 1
        (Effect("ratio", None, None, 0.5, (None, 1.0)), None),
        (Effect("value", 0.5, 0.5, 0.5, (None, 1.0)), 9.0),  # exact
    ],
)
def test_the_distance_is_in_half_widths_of_the_interval(effect, distance):
    assert finding(0.5, effect=effect).distance == (None if distance is None else pytest.approx(distance))
    assert replace(finding(0.5), effect=None).distance is None
