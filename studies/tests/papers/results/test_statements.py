"""Distinct statements and their verdicts."""

from dataclasses import replace

from offbeat_studies.papers.figures.figure_result import FigureRecord
from offbeat_studies.papers.figures.finding import Finding
from offbeat_studies.papers.results.statements import counts, statements_of


def finding(claim, verdict, **changes):
    return Finding(claim, "p", "o", "r", verdict=verdict, **changes)


def record(name, *findings):
    return FigureRecord(name, "quick", "f", "f.toml", "A", "F", "q", "w", 1.0, findings, (), None, (), ())


def verdicts(*records, outdated=()):
    return {(one.text, one.evidence): one.verdict for one in statements_of(records, outdated)}


def test_a_claim_of_several_panels_counts_once():
    first = record("a/x", finding("c", "supported"), finding("d", "supported"))
    second = record("a/y", finding("c", "not supported"))
    assert verdicts(first, second) == {("c", "proxy"): "not supported", ("d", "proxy"): "supported"}


def test_claims_that_test_one_statement_count_once():
    one = record("a/x", finding("c", "supported", statement="s"), finding("d", "contradicted", statement="s"))
    assert verdicts(one) == {("s", "proxy"): "contradicted"}


def test_equal_statements_of_two_papers_are_two():
    first = record("a/x", finding("c", "supported"))
    second = replace(record("a/y", finding("c", "contradicted")), paper="B")
    assert [one.verdict for one in statements_of([first, second])] == ["supported", "contradicted"]


def test_classes_of_evidence_are_not_added_up():
    one = record("a/x", finding("c", "supported"), finding("c", "contradicted", evidence="paper"))
    found = statements_of([one])
    assert counts(found, "proxy") == {"supported": 1}
    assert counts(found, "paper") == {"contradicted": 1}
    assert not counts(found, "ours")


def test_outdated_findings_are_left_out_where_there_are_others():
    first, second = record("a/x", finding("c", "supported")), record("a/y", finding("c", "open"))
    assert verdicts(first, second, outdated=[second.key]) == {("c", "proxy"): "supported"}
    (one,) = statements_of([second], [second.key])
    assert (one.is_outdated, one.verdict) == (True, "open")
