"""Help of the studies' commands imports only click and themselves."""

from tests.cli.test_start_up import LIGHT, run

COMMANDS = ["benchmark", "papers", "theory", "theory bound", "theory measure"]


def test_help_needs_only_click():
    results = run(*(([*words.split(), "--help"], {}) for words in COMMANDS))
    for words, (output, packages) in zip(COMMANDS, results, strict=True):
        assert output.startswith(f"Usage: offbeat {words} ")
        assert "offbeat_studies" in packages
        assert packages <= LIGHT, words


def test_the_commands_are_listed():
    ((output, packages),) = run((["--help"], {}))
    for name in ("benchmark", "papers", "theory"):
        assert f"  {name} " in output
    assert packages <= LIGHT


def test_completion_finds_them():
    expected = {"offbeat benchm": "plain,benchmark\n", "offbeat theory b": "plain,bound\n"}
    results = run(*(
        ([], {"_OFFBEAT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))})
        for words in expected
    ))  # fmt: skip
    for words, (output, packages) in zip(expected, results, strict=True):
        assert output == expected[words]
        assert packages <= LIGHT, words
