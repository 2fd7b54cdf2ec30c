"""Make the pictures of ``docs/concepts/live-page.md``: a real server, real clients, a real browser.

``make live-page``, or ``python docs/make_live_page.py [FOLDER]``, takes a minute. It needs Debian's packages chromium
and chromium-driver. Without FOLDER the pictures go to ``docs/images``.
"""

import random
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
from offbeat_core.errors import OffbeatError
from PIL import Image
from torch.nn.functional import cross_entropy

from offbeat.client import LocalSGD, run_client
from offbeat.data.catalogue import load_dataset
from offbeat.training.models import softmax_regression
from tests.browser import Browser

SITES = [
    "Aachen",
    "Bergen",
    "Coimbra",
    "Delft",
    "Évora",
    "Faenza",
    "Graz",
    "Haarlem",
    "Inari",
    "Jena",
    "Kaunas",
    "Lund",
]
SERVER = """
[service]
folder = "server"
clients = 16
port = 0
tls = false
keep_best = "accuracy"

[data]
name = "digits"

[model]
name = "softmax"

[local]
steps = 2
batch_size = 8
lr = 0.02

[algorithm]
algorithm = "fedbuff"
buffer_size = 4
concurrency = 9

[server]
lease_seconds = 20.0
max_staleness = 8

[evaluate]
every_versions = 4
metrics = ["accuracy"]

[stop]
versions = 600
"""
VERSIONS = 160  # at which the pictures are taken
COLOURS = 160
PICTURES = {  # width and largest height in pixels, and whether dark
    "live_page": (1280, 3200, False),
    "live_page_dark": (1280, 1080, True),
    "live_page_narrow": (400, 1600, False),
}


def make_client(client: int) -> Any:
    """Return a client whose visits take longer the higher its number is."""
    digits = load_dataset("digits")
    share = slice(client, None, len(SITES))
    model = softmax_regression(digits.input_shape, classes=10)
    trained = LocalSGD(model, cross_entropy, (digits.train_inputs[share], digits.train_labels[share]))
    fit, draw = trained.fit, random.Random(client)

    def slow_fit(model: Any, visit: Any) -> Any:
        time.sleep((0.1 + 0.02 * client**1.5) * draw.uniform(0.6, 1.6))
        return fit(model, visit)

    trained.fit = slow_fit
    return trained


def join(url: str, token: str, folder: Path, name: str) -> None:
    """Take part until the server is gone."""
    with suppress(OffbeatError):
        run_client(url, make_client, folder, enrolment_token=token, name=name)


def misbehave(url: str, http: httpx.Client) -> None:
    """Make some requests that the server refuses."""
    for token, times in (("oba_unknown", 3), ("", 2)):
        for _ in range(times):
            httpx.get(f"{url}/v1/status", headers={"Authorization": f"Bearer {token}"} if token else {})
    http.get("/v1/models/latest")


def take(browser: Browser, folder: Path) -> None:
    """Save the pictures of the page that is open."""
    for name, (width, tallest, dark) in PICTURES.items():
        browser.look(width, dark)
        browser.run("scrollTo(0, 0)")
        time.sleep(1.5)
        height = min(browser.run("return document.documentElement.scrollHeight"), tallest)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.command("Emulation.setDeviceMetricsOverride", **size)
        time.sleep(0.7)
        path = folder / f"{name}.png"
        browser.driver.save_screenshot(str(path))
        with Image.open(path) as picture:
            picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def watch(url: str, enrolment: str, admin: str, folder: Path, pictures: Path) -> None:
    """Let clients train, and take the pictures on the way."""
    for number, name in enumerate(SITES):
        arguments = (url, enrolment, folder / "clients" / str(number), name)
        threading.Thread(target=join, args=arguments, daemon=True).start()
        time.sleep(0.1)
    headers = {"Authorization": f"Bearer {admin}"}
    with httpx.Client(base_url=url, headers=headers) as http, closing(Browser(folder)) as browser:
        http.post("/v1/tokens", json={"kind": "enrolment", "name": "Ward 3", "uses": 8, "expires_seconds": 86400})
        misbehave(url, http)
        browser.look()
        browser.driver.get(f"{url}/#token={admin}")
        while http.get("/v1/status").json()["version"] < VERSIONS:
            time.sleep(0.5)
        browser.find("#sites tbody tr:nth-child(3) .name").click()
        browser.find("#log > summary").click()
        take(browser, pictures)


def main() -> None:
    """Run the federation, and take the pictures."""
    pictures = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images"
    pictures.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "server.toml").write_text(SERVER, encoding="utf-8")
        command = [sys.executable, "-m", "offbeat", "server", "start", "server.toml"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                url = server.stdout.readline().split()[2].rstrip(":")
                enrolment, admin = (
                    (folder / "server" / f"{kind}-token").read_text().strip() for kind in ("enrolment", "admin")
                )
                watch(url, enrolment, admin, folder, pictures)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
