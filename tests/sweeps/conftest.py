import pytest

from offbeat.sweeps.search_space import parse_over


@pytest.fixture
def overs():
    """Return a function that parses texts of ``--over``."""

    def parse(*texts):
        return [parse_over(text) for text in texts]

    return parse
