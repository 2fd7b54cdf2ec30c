"""Chromium without a window, which opens pages from files."""

import json
import shutil
import time
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

_PROGRAMS = ("chromium", "chromedriver")
_DOWNLOAD_SECONDS = 20


def is_installed():
    """Return whether Debian's packages chromium and chromium-driver are here."""
    return all(map(shutil.which, _PROGRAMS))


class Browser:
    """A browser, and what its pages have logged and asked for."""

    def __init__(self, downloads):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        # Root has no sandbox, and CI is root; the pages are the tests' own.
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
        self.downloads = Path(downloads)
        self.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))

    def command(self, name, **arguments):
        return self.driver.execute_cdp_cmd(name, arguments)

    def open(self, path, width=1280, dark=False, media=""):
        """Open a page at a width of the window, with a clean log."""
        self.visit(Path(path).as_uri(), width, dark, media)

    def visit(self, url, width=1280, dark=False, media=""):
        """Open an address at a width of the window, with a clean log."""
        self.look(width, dark, media)
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(url)

    def look(self, width=1280, dark=False, media=""):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def wait_until_drawn(self):
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def barriers(self):
        """Return the serious faults that axe-core finds: the rule, and where."""
        axe = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
        self.command("Runtime.evaluate", expression=axe)  # whatever the page's policy says
        found = self.driver.execute_async_script("axe.run(document).then(arguments[0])")
        return [
            (fault["id"], [node["target"] for node in fault["nodes"]])
            for fault in found["violations"]
            if fault["impact"] in ("serious", "critical")
        ]

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        while True:
            with suppress(StaleElementReferenceException):  # a page that polls has just drawn them anew
                return [found.text for found in self.all(selector)]

    def mouse(self):
        return ActionChains(self.driver, duration=20)

    def console(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self):
        """Return the addresses that the page has asked for, apart from its own."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                parameters = message["params"]
                found.append(parameters["request"]["url"] if "request" in parameters else parameters["url"])
        return [url for url in found if url != self.driver.current_url and not url.startswith("data:")]

    def saved(self, name):
        """Wait for a downloaded text file, and return its content."""
        return self.saved_bytes(name).decode("utf-8")

    def saved_bytes(self, name):
        """Wait for a downloaded file, and return its content."""
        end = time.monotonic() + _DOWNLOAD_SECONDS
        path = self.downloads / name
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.05)
        content = path.read_bytes()
        path.unlink()
        return content

    def close(self):
        self.driver.quit()
