from offbeat.cli.terminal import visible


def test_characters_that_could_change_the_terminal_are_escaped():
    assert visible("Köln 東京 \x1b[2J\u202e\n") == "Köln 東京 \\x1b[2J\\u202e\\n"
