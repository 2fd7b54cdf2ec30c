"""``offbeat-helper`` in a fresh interpreter, without PyTorch and without ``offbeat``."""

import subprocess
import sys

import pytest

from tests.offbeat_private.helper.conftest import LOCAL, TERMS
from tests.offbeat_private.helper.test_roster import CLIENTS

RUN = """
import sys

class Missing:
    # None in sys.modules would do, but scipy takes that for torch itself.
    def find_spec(name, path=None, target=None):
        if name in {"torch", "offbeat", *missing}:
            raise ModuleNotFoundError(name=name)

missing = sys.argv[1].split()
sys.meta_path.insert(0, Missing)
sys.argv[:2] = ["offbeat-helper"]
from offbeat_private.helper.__main__ import main
main()
"""


def run(*arguments, missing=""):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, missing, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_helper_is_enrolled_without_torch(tmp_path):
    lines = ["[terms]", *(f"{key} = {value}" for key, value in TERMS.items())]
    lines += ["[local]", *(f"{key} = {value}" for key, value in LOCAL.items()), "[clients]"]
    roster, folder = tmp_path / "roster.toml", tmp_path / "helper"
    roster.write_text("\n".join([*lines, *(f'{name} = "{key}"' for name, key in CLIENTS.items())]), encoding="utf-8")
    code, output, errors = run("enrol", roster, "--folder", folder)
    assert (code, errors) == (0, "")
    assert output.startswith("Run ")
    code, output, errors = run("status", "--folder", folder)
    assert (code, errors) == (0, "")
    assert "batches: 0\n" in output


@pytest.mark.parametrize("command", ["enrol", "serve", "status"])
def test_an_example_names_the_program(command, offbeat):
    assert f"\n    offbeat-helper {command} " in run(command, "--help")[1]
    assert f"\n    offbeat helper {command} " in offbeat("helper", command, "--help")[1]


@pytest.mark.parametrize(
    ("arguments", "missing", "message"),
    [
        (["serve", "--folder", "nothing"], "", "nothing is not a helper's folder: make one with offbeat-helper enrol"),
        (["nothing"], "", "No such command 'nothing'. See offbeat-helper --help."),
        (["serves"], "", "No such command 'serves'. Did you mean 'serve'? See offbeat-helper --help."),
        ([], "", "Missing command. See offbeat-helper --help."),
        (["--help"], "click", "click is missing: pip install 'offbeat-client[helper]'"),
        (["serve"], "fastapi granian", "fastapi is missing: pip install 'offbeat-client[helper]'"),
    ],
)
def test_an_error_is_one_line(arguments, missing, message):
    assert run(*arguments, missing=missing) == (2, "", f"offbeat-helper: {message}\n")
