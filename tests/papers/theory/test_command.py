import re

import pytest

from papers.theory import Row, command

GOOD = Row("whose claim", "where", 2.0, 0.125, 4.0)
COUNTER = Row("misprint", "there", 5.0, 0.0, 4.0, should_hold=False)
BAD = Row("wrong claim", "here", 5.0, 0.125, 4.0)


def test_the_table_has_all_rows(papers, monkeypatch):
    seeds = []
    monkeypatch.setattr(command, "check", lambda number: seeds.append(number) or [GOOD, COUNTER])
    code, out, err = papers("theory")
    assert (code, err, seeds) == (0, "", [20])
    assert re.search(r"whose claim +where +2 ± 0\.12 +4 +0\.5 +holds ", out)
    assert re.search(r"misprint +there +5 +4 +1\.25 +broken, as expected ", out)


def test_an_unexpected_row_is_marked_and_ends_with_1(papers, monkeypatch):
    monkeypatch.setattr(command, "check", lambda _: [GOOD, BAD])
    code, out, _ = papers("theory")
    assert code == 1
    assert re.search(r"wrong claim +here .* UNEXPECTED ", out)


@pytest.mark.parametrize(("arguments", "example"), [((), "fedlaavg/fig4e --scale quick"), (("theory",), "theory ")])
def test_help_gives_an_example(papers, arguments, example):
    code, out, _ = papers(*arguments, "--help")
    assert code == 0
    assert f"python -m papers {example}" in out
