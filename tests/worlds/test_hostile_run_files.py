"""Files of runs that somebody sends who wants to break a server: each begins a run, or is refused in plain lines.

``OFFBEAT_HOSTILE`` says how many; ``make hostile`` makes 100,000.
"""

import copy
import os
import random
import resource
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from offbeat_core.errors import OffbeatError

from offbeat.config import host_file
from offbeat.service.hosting.host_messages import LARGEST_FILE
from offbeat.service.hosting.hosted_run import Prepare
from offbeat.worlds.host import preparing

NUMBER = int(os.environ.get("OFFBEAT_HOSTILE", "300"))
MODEL = "from torch import nn\n\n\ndef net():\n    return nn.Linear(3, 2)\n"
STEPS = "def steps(examples):\n    return 2\n"
EVIL = (
    "from pathlib import Path\n\nPath(__file__).with_name('was-imported').touch()\n\n\ndef net(*_, **__):\n    pass\n"
)
RUN: dict[str, Any] = {
    "service": {"clients": 5, "seed": 3, "checkpoint_seconds": 30.0},
    "admission": {"labels": ["gpu"], "names": ["ward 3"]},
    "quota": {"requests_a_second": 5.0, "uploads_gb": 1.0},
    "model": {"name": "model.py:net", "loss": "cross_entropy"},
    "local": {"steps": 2, "batch_size": 4, "lr": 0.1},
    "server": {"lease_seconds": 10.0, "max_staleness": 4},
    "stop": {"versions": 5},
    "algorithm": {"algorithm": "fedbuff", "buffer_size": 2, "concurrency": 3},
}
_PATHS = [
    ("service", "initial_model"),
    ("service", "helper_terms"),
    ("service", "helper_token_file"),
    ("service", "helper_ca"),
    ("service", "noise_secret"),
    ("service", "certificate"),
    ("service", "folder"),
    ("model", "name"),
    ("model", "loss"),
    ("local", "steps"),
    ("algorithm", "algorithm"),
    ("algorithm", "pattern"),
    ("algorithm", "staleness"),
    ("data", "name"),
    ("data", "collate"),
    ("evaluate", "metrics"),
    ("privacy", "helper"),
    ("login", "client_secret_file"),
]
"""Where files may be named, or somebody may try."""
_VALUES = [
    *(-1, 0, 1, 10**18, -(10**18), 2**63 - 1, 1e308, -0.0, 1e-320, float("nan"), float("inf"), True, ""),
    *("x" * 3000, "\x00", "\u202e", "a\nb", "é", "../x", "fedavg", "softmax", "cnn", [], [1] * 500, {}, {"name": "x"}),
    *([[[]]], {"name": {"name": 3}}, ["cross_entropy", 3], {"a": {"b": {"c": []}}}, "fedbuff", "scaffold", "mlp"),
]
_KEYS = ["x", "a\nb", "", "\u202e", "é", "x" * 3000, "\x00", "a.b"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder, elsewhere = tmp_path / "server files", tmp_path / "elsewhere"
    for each in (folder, elsewhere):
        each.mkdir()
    (elsewhere / "evil.py").write_text(EVIL)
    (folder / "model.py").write_text(MODEL)
    (folder / "steps.py").write_text(STEPS)
    (folder / "link").symlink_to(elsewhere)
    (folder / "link.py").symlink_to(elsewhere / "evil.py")
    (folder / "server.toml").write_text("[service]\nfolder = 'server'\nport = 9000\ntls = false\n")
    return folder


@pytest.fixture
def prepare(folder: Path) -> Prepare:
    return preparing(host_file.load(folder / "server.toml"), folder)


@pytest.fixture(autouse=True)
def little_memory() -> Generator[None]:
    """Let allocations above 8 GB fail at once."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def elsewhere(folder: Path) -> list[str]:
    """Return names of files that are not in the folder, and of a module that is not."""
    evil = folder.parent / "elsewhere" / "evil.py"
    relative = [
        "../elsewhere/evil.py",
        "link/evil.py",
        "link.py",
        "./x/../../elsewhere/evil.py",
        "link/../link/evil.py",
    ]
    files = [str(evil), f"/{evil}", f"//{evil}", *relative, f"{folder}/../elsewhere/evil.py", "~root/../..{evil}"]
    return [*files, "/dev/zero", "/proc/self/environ", "~/x", "~nobody-here/x"]


def refusal(prepare: Prepare, text: str) -> OffbeatError | None:
    """Return why a run's file is refused; None if it is not."""
    try:
        with prepare("hostile", text):
            return None
    except OffbeatError as error:
        refused = error
    assert all(line and len(line) < 10_000 and "\n" not in line for line in refused.lines), refused.lines
    assert "Traceback" not in str(refused)
    return refused


def with_value(key: tuple[str, ...], value: Any) -> dict[str, Any]:
    table = copy.deepcopy(RUN)
    at = table
    for part in key[:-1]:
        at = at.setdefault(part, {})
        if not isinstance(at, dict):
            return table
    at[key[-1]] = value
    return table


def test_the_file_by_itself_begins_a_run(prepare: Prepare) -> None:
    assert refusal(prepare, tomli_w.dumps(RUN)) is None
    assert refusal(prepare, tomli_w.dumps(with_value(("local", "steps"), "steps.py:steps"))) is None


def test_a_huge_quota_is_as_good_as_none(prepare: Prepare) -> None:
    assert refusal(prepare, tomli_w.dumps(with_value(("quota", "uploads_gb"), 1e308))) is None


@pytest.mark.parametrize("key", _PATHS, ids=".".join)
def test_no_key_reaches_a_file_elsewhere(key: tuple[str, str], folder: Path, prepare: Prepare) -> None:
    for file in elsewhere(folder):
        for name in (file, f"{file}:net", "os:getcwd", "evil:net", "elsewhere.evil:net"):
            for value in (name, {"name": name, "longest_gap": 3}, [name]):
                table = with_value(key, value)
                if key[1] == "pattern":
                    table["algorithm"] = {"algorithm": "async_comm_sgd", "server_lr": 1.0, "pattern": value}
                assert refusal(prepare, tomli_w.dumps(table)) is not None
    assert not (folder.parent / "elsewhere" / "was-imported").exists()


def test_a_refused_file_says_where_it_names_another(prepare: Prepare) -> None:
    table = RUN | {"algorithm": {"algorithm": "async_comm_sgd", "pattern": {"name": "../x.py:f", "longest_gap": 3}}}
    refused = refusal(prepare, tomli_w.dumps(table))
    assert "pattern.name = '../x.py:f': may only name files in" in str(refused)


@pytest.mark.parametrize(
    "text",
    [
        tomli_w.dumps(RUN | {"service": {"clients": 10**18}}),
        tomli_w.dumps(RUN | {"service": {"clients": 5, "initial_model": "a\nb"}}),
        tomli_w.dumps(RUN | {"model": {"name": "a\nb.py:net"}}),
        tomli_w.dumps(RUN | {"model": {"name": "mlp", "hidden": [10**15]}, "data": {"name": "digits"}}),
        "[" * 10_000,
        "a = " + "[" * 10_000,
        "a = " + "{a=" * 5_000,
        "a." * 10_000 + "b = 1",
        "[" + "a." * 10_000 + "b]",
        "a = " + "9" * 30_000,
        "a = 0x" + "f" * 30_000,
        "a = 1e" + "9" * 30_000,
        "a = '''" + "\n" * 30_000 + "'''",
        "service = 3\nalgorithm = 3",
        "[service]\nclients = 5\n[[service.x]]\n[[service.x]]",
        "a = 1\na = 1",
        "a = 9999-99-99",
        "\ufeffa = 1",
        "\x00",
    ],
    ids=range(19),
)
def test_what_is_hardly_a_file_is_refused(text: str, prepare: Prepare) -> None:
    assert len(text) <= LARGEST_FILE
    assert refusal(prepare, text) is not None


def test_random_files_begin_a_run_or_are_refused(prepare: Prepare, folder: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}")
    numbers = random.Random(seed)
    keys = [(section, key) for section, table in RUN.items() for key in table] + _PATHS
    values = [*_VALUES, *(f"{file}:net" for file in elsewhere(folder))]
    begun = 0
    for _ in range(NUMBER):
        table = copy.deepcopy(RUN)
        for _ in range(numbers.randrange(4)):
            section, key = numbers.choice(keys)
            part = numbers.random()
            value = copy.deepcopy(numbers.choice(values))
            if part < 0.1:
                table[section if part < 0.08 else numbers.choice(_KEYS)] = value
            elif part < 0.2:
                table.pop(section, None)
            elif isinstance(table.setdefault(section, {}), dict):
                table[section][key if part < 0.9 else numbers.choice(_KEYS)] = value
        text = tomli_w.dumps(table)
        if numbers.random() < 0.1:
            begin = numbers.randrange(len(text))
            text = text[:begin] + numbers.choice(["", "\x00", "[", "'", "=", "\\u0000"]) + text[begin + 3 :]
        begun += refusal(prepare, text) is None
    assert begun > NUMBER // 10
    assert not (folder.parent / "elsewhere" / "was-imported").exists()
