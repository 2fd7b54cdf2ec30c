"""Help of the studies' commands imports only click and themselves."""

import pytest

from tests.cli.test_start_up import LIGHT, RUN, run


@pytest.mark.parametrize("words", ["benchmark", "papers", "theory", "theory bound", "theory measure"])
def test_help_needs_only_click(words):
    out, packages = run(RUN, *words.split(), "--help")
    assert f"Usage: offbeat {words} " in out
    assert "offbeat_studies" in packages
    assert packages <= LIGHT


def test_the_commands_are_listed():
    out, packages = run(RUN, "--help")
    for name in ("benchmark", "papers", "theory"):
        assert f"  {name} " in out
    assert packages <= LIGHT


@pytest.mark.parametrize(("words", "found"), [("offbeat benchm", "benchmark"), ("offbeat theory b", "bound")])
def test_completion_finds_them(words, found):
    last = str(words.count(" "))
    out, packages = run(RUN, _OFFBEAT_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=last)
    assert out == f"plain,{found}\n"
    assert packages <= LIGHT
