import contextlib
import io
import re
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from offbeat_core.errors import OffbeatError

from offbeat.cli.main import app, main
from offbeat_studies.papers.figures.catalogue import read_all

EXPERIMENTS = Path(__file__).parents[2] / "offbeat_studies" / "papers"
RESULTS = Path("runs/reproduce/paper")
OWN = ("papers", "--experiments", "papers")  # a folder of the test

FIGURE = """
seeds = [1, 2]

[tool.papers.reproduction]
paper = "A paper"
figure = "Figure 1"
question = "Digits, by softmax."
over = "updates"
differs = ["Everything."]

[tool.papers.scales.quick]
minutes = 0.1
set = ["stop.virtual_seconds=20.0"]
notes = ["Half of the time."]

[tool.papers.scales.full]
minutes = 200

[data]
name = "digits"

[model]
name = "softmax"

[local]
steps = 3
batch_size = 8
lr = 0.1

[population]
clients = 10
partition = { name = "dirichlet", alpha = 0.5 }
step_seconds = { distribution = "constant", value = 1.0 }
down_bytes_per_second = { distribution = "constant", value = 1e5 }
up_bytes_per_second = { distribution = "constant", value = 1e5 }

[algorithms.fedavg]
cohort = 4

[algorithms.fedasync]
concurrency = 4

[stop]
virtual_seconds = 40.0

[evaluate]
every_seconds = 5.0
target = 0.3

[[tool.papers.claims]]
name = "FedAvg learns something"
quantity = "final"
of = "fedavg"
relation = "at least"
value = 0.15
paper = "it does"

[[tool.papers.claims]]
name = "FedAvg is perfect"
quantity = "tail"
of = "fedavg"
relation = "at least"
value = 0.999
last_seconds = 10.0
limit_from = "paper"
paper = "it is [sic]"

[[tool.papers.claims]]
name = "FedAsync sends as much"
quantity = "bytes_to_target"
of = "fedasync"
relation = "at most"
than = "fedavg"
factor = 1000.0
paper = "it does"
"""

PANELS = """
[tool.papers.panels.a]
figure = "Figure 1 (a)"
question = "With few."
set = ["population.clients=5", "stop.virtual_seconds=30.0"]

[tool.papers.panels.b]
figure = "Figure 1 (b)"
question = "With many."

[[tool.papers.claims]]
name = "It holds for one"
quantity = "best"
of = "fedasync"
relation = "at least"
value = 0.1
panels = ["b"]
paper = "so it is"

[[tool.papers.claims]]
name = "More clients are no slower"
quantity = "best"
of = "fedavg"
relation = "at least"
than = "fedasync"
than_panel = "a"
tolerance = 0.9
paper = "they are not"

[[tool.papers.claims]]
name = "More clients are as far ahead"
quantity = "best"
of = "fedavg"
less = "fedasync"
relation = "close to"
than = "fedavg"
than_panel = "a"
than_less = "fedasync"
tolerance = 0.9
paper = "they are"
"""


@pytest.fixture(scope="session")
def own_figures():
    """The figures of this package, by name."""
    return {figure.name: figure for figure in read_all([EXPERIMENTS])}


@pytest.fixture
def papers(run_main):
    """Return a function that runs ``offbeat papers`` in this process; it returns exit code, output and errors."""
    return partial(run_main, app, "offbeat", *OWN)


@pytest.fixture
def blank_pictures(monkeypatch):
    """Write files of pictures without drawing them, which takes half of the time of a figure."""
    leave_blank(monkeypatch)


@pytest.fixture
def experiments(tmp_path, monkeypatch):
    """A working folder with ``papers/paper/fig1.toml``; the folder of experiments."""
    monkeypatch.chdir(tmp_path)
    return write_figures()


@pytest.fixture
def write(experiments):
    """Return a function that writes ``papers/paper/fig1.toml`` with some texts replaced; it returns the path."""

    def replace(text=FIGURE, *changes):
        path = experiments / "paper" / "fig1.toml"
        for before, after in changes:
            assert before in text
            text = text.replace(before, after, 1)
        path.write_text(text, encoding="utf-8")
        return path

    return replace


@pytest.fixture(scope="session")
def reproduced_folder(tmp_path_factory):
    """A folder in which ``paper/fig1`` has been run, and the output."""
    folder = tmp_path_factory.mktemp("reproduced")
    with contextlib.chdir(folder):
        write_figures()
        return folder, run_papers("paper/fig1", "--jobs", "1", "--pages", "docs")


@pytest.fixture
def reproduced(experiments, reproduced_folder, tmp_path):
    """The output of ``paper/fig1``, which has been run in the working folder."""
    folder, output = reproduced_folder
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return output


def leave_blank(patch):
    patch.setattr(Figure, "savefig", lambda figure, file, **_: file.write(b"\x89PNG"))


def before_claims(tables):
    """Return the text of a figure's file with more tables before its claims."""
    return FIGURE.replace("[[tool.papers.claims]]", f"{tables}[[tool.papers.claims]]", 1)


def write_figures():
    folder = Path("papers")
    (folder / "paper").mkdir(parents=True)
    (folder / "paper" / "fig1.toml").write_text(FIGURE, encoding="utf-8")
    (folder / "paper" / "no_figure.toml").write_text("seeds = [1]\n", encoding="utf-8")
    return folder


def run_papers(*arguments):
    """Run ``offbeat papers``, which must succeed; return its output."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as output:
        patch.setattr(sys, "argv", ["offbeat", *OWN, *arguments])
        with pytest.raises(SystemExit) as caught:
            main(app, "offbeat")
    assert not caught.value.code
    return output.getvalue()


def assert_one_line(call, message):
    """Check that a call raises an error whose lines match the message."""
    with pytest.raises(OffbeatError, match=message) as caught:
        call()
    # The points of a tuning may have the same mistake.
    assert all("\n" not in line and re.search(message, line) for line in caught.value.lines)
