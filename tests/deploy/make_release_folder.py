"""Make ``release_0_1/``: a server's folder and a client's, as this release leaves them.

    python tests/deploy/make_release_folder.py TARGET

The server has a checkpoint in the middle of its run, and updates after it. ``expected.json`` holds the version, and the
SHA-256 of the model's tensors that the server exported before its folder was copied. Make such a folder once for each
release, and keep it: later servers must be able to resume from it. Until 0.1.0 is released, make its folder anew
whenever a form changes.
"""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from offbeat_client import Visit, run_client
from safetensors.numpy import load_file

from offbeat.service.server.admin import export_model

SERVER = """[service]
folder = "server"
clients = 3
tls = false
checkpoint_seconds = 3600.0

[data]
name = "digits"

[model]
name = "softmax"

[local]
steps = 1
batch_size = 1
lr = 0.1

[algorithm]
algorithm = "fedbuff"
buffer_size = 2
concurrency = 2
"""


def fit(model, visit: Visit):
    """Return a model that depends on the visit."""
    return {name: values + 0.01 * (visit.number + 1) for name, values in model.items()}, 10


@contextmanager
def serving(folder: Path, port: int = 0) -> Generator[str]:
    """Run the server of a folder's file within the context; yield its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "offbeat", "server", "start", "server.toml", "--set", f"service.port={port}"],
        cwd=folder, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Listening at "), line
        yield line.split()[2].rstrip(":")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def join(url: str, folder: Path, visits: int) -> int:
    """Send updates; return how many counted."""
    token = (folder / "server/enrolment-token").read_text().strip()
    return run_client(url, lambda _: fit, folder / "client", enrolment_token=token, visits=visits)


def export(folder: Path) -> dict[str, object]:
    """Return the newest version of the server with this folder, and the SHA-256 of its model's tensors by name.

    The file's own digest would not do: the order of its metadata is random.
    """
    model = folder / "model.safetensors"
    version = export_model(folder / "server", model)
    digest = hashlib.sha256(b"".join(values.tobytes() for _, values in sorted(load_file(model).items()))).hexdigest()
    model.unlink()
    return {"version": version, "sha256": digest}


def main(target: Path) -> None:
    """Make the folder."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "server.toml").write_text(SERVER)
        with serving(folder) as url:
            join(url, folder, 5)
        with serving(folder, int(url.rpartition(":")[2])) as url:  # from a checkpoint
            join(url, folder, 4)
            time.sleep(1)
            (folder / "expected.json").write_text(json.dumps(export(folder)) + "\n")
            backup = [sys.executable, "-m", "offbeat", "server", "backup", "server", "copy"]
            subprocess.run(backup, cwd=folder, check=True)
        shutil.rmtree(folder / "server")
        (folder / "copy").rename(folder / "server")
        shutil.copytree(folder, target, dirs_exist_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
