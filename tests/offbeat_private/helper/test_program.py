"""``offbeat-helper`` in a fresh interpreter, without PyTorch and without ``offbeat``."""

import json
import subprocess
import sys

from tests.offbeat_private.helper.conftest import LOCAL, TERMS
from tests.offbeat_private.helper.test_roster import CLIENTS

RUN = """
import contextlib, io, json, sys

class Missing:
    # None in sys.modules would do, but scipy takes that for torch itself.
    def find_spec(name, path=None, target=None):
        if name in {"torch", "offbeat", *missing}:
            raise ModuleNotFoundError(name=name)

missing = []
sys.meta_path.insert(0, Missing)
from offbeat_private.helper.__main__ import main
ends = []
for missing, sys.argv in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            main()
        except SystemExit as end:
            ends.append([end.code or 0, output.getvalue(), errors.getvalue()])
print(json.dumps(ends))
"""


def run(*commands):
    """Return code, output and errors of each command of a process; its first word names packages that are missing."""
    lines = [[missing.split(), ["offbeat-helper", *map(str, arguments)]] for missing, *arguments in commands]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN], input=json.dumps(lines), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [tuple(end) for end in json.loads(done.stdout)]


ERRORS = {
    ("click", "--help"): "click is missing: pip install 'offbeat-client[helper]'",
    ("fastapi granian", "serve"): "fastapi is missing: pip install 'offbeat-client[helper]'",
    ("", "serve", "--folder", "nothing"): "nothing is not a helper's folder: make one with offbeat-helper enrol",
    ("", "serves"): "No such command 'serves'. Did you mean 'serve'? See offbeat-helper --help.",
    ("",): "Missing command. See offbeat-helper --help.",
}


def test_a_helper_is_enrolled_without_torch_its_help_names_the_program_and_an_error_is_one_line(tmp_path, offbeat):
    lines = ["[terms]", *(f"{key} = {value}" for key, value in TERMS.items())]
    lines += ["[local]", *(f"{key} = {value}" for key, value in LOCAL.items()), "[clients]"]
    roster, folder = tmp_path / "roster.toml", tmp_path / "helper"
    roster.write_text("\n".join([*lines, *(f'{name} = "{key}"' for name, key in CLIENTS.items())]), encoding="utf-8")
    names = ("enrol", "serve", "status")
    commands = [("", "enrol", roster, "--folder", folder), ("", "status", "--folder", folder)]
    *errors, enrolled, status, one, two, three = run(*ERRORS, *commands, *(("", name, "--help") for name in names))
    assert errors == [(2, "", f"offbeat-helper: {message}\n") for message in ERRORS.values()]
    assert enrolled[::2] == status[::2] == (0, "")
    assert enrolled[1].startswith("Run ")
    assert "batches: 0\n" in status[1]
    for name, (_, output, _) in zip(names, (one, two, three), strict=True):
        assert f"\n    offbeat-helper {name} " in output
        assert f"\n    offbeat helper {name} " in offbeat("helper", name, "--help")[1]
