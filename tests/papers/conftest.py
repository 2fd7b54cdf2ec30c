from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from papers.__main__ import app

FIGURE = """
seeds = [1, 2]

[reproduction]
paper = "A paper"
figure = "Figure 1"
question = "Digits, by softmax."
over = "updates"
differs = ["Everything."]

[scales.quick]
minutes = 0.1
set = ["stop.virtual_seconds=20.0"]

[scales.full]
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

[[claims]]
name = "FedAvg learns something"
quantity = "final"
of = "fedavg"
relation = "at least"
value = 0.15
paper = "it does"

[[claims]]
name = "FedAvg is perfect"
quantity = "tail"
of = "fedavg"
relation = "at least"
value = 0.999
last_seconds = 10.0
paper = "it is"

[[claims]]
name = "FedAsync sends as much"
quantity = "bytes_to_target"
of = "fedasync"
relation = "at most"
than = "fedavg"
factor = 1000.0
paper = "it does"
"""

PANELS = """
[panels.a]
figure = "Figure 1 (a)"
question = "With few."
set = ["population.clients=5", "stop.virtual_seconds=30.0"]

[panels.b]
figure = "Figure 1 (b)"
question = "With many."

[[claims]]
name = "It holds for one"
quantity = "best"
of = "fedasync"
relation = "at least"
value = 0.1
panels = ["b"]
paper = "so it is"

[[claims]]
name = "More clients are no slower"
quantity = "best"
of = "fedavg"
relation = "at least"
than = "fedasync"
than_panel = "a"
tolerance = 0.9
paper = "they are not"

[[claims]]
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


@pytest.fixture
def papers(run_main: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs ``python -m papers`` in this process; it returns exit code, output and errors."""
    return partial(run_main, app, "python -m papers")


@pytest.fixture
def experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with ``papers/paper/fig1.toml``; the folder of experiments."""
    monkeypatch.chdir(tmp_path)
    folder = Path("papers")
    (folder / "paper").mkdir(parents=True)
    (folder / "paper" / "fig1.toml").write_text(FIGURE, encoding="utf-8")
    (folder / "paper" / "no_figure.toml").write_text("seeds = [1]\n", encoding="utf-8")
    return folder
