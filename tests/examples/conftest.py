import pytest
from rich.console import Console

from offbeat.config.experiment_sections import StopSection
from offbeat.runs.progress import Progress


@pytest.fixture
def quiet():
    return Progress(Console(quiet=True), StopSection(updates=1), None)
