"""Check pages of the built site with axe-core, in Chromium.

``make axe``, after ``make docs``. It looks at a page of each kind at 400, 1,280 and
1,920 pixels, light and dark, and prints serious faults and errors in the console; exits with 1 if there are any.
"""

import functools
import http.server
import sys
import threading
from pathlib import Path

from tests.browser import Browser

ROOT = Path(__file__).parents[1]
PAGES = ("index", "api/offbeat", "api/built-in", "which-algorithm", "reference")
VIEWS = ((400, False), (1280, True), (1920, False), (400, True))


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


def faults(browser: Browser, url: str, width: int, *, dark: bool) -> list[str]:
    """Return a line for each serious fault, and for each error in the console."""
    browser.visit(url, width, dark)
    browser.run("localStorage.clear()")  # the site keeps the scheme of its first page
    browser.visit(url, width, dark)
    found = [f"console: {message}" for message in browser.console()]
    if (wide := browser.run("return document.documentElement.scrollWidth")) > width:
        found.append(f"the page is {wide} pixels wide")
    found += [f"{rule}: {len(places)} times, first {places[0]}" for rule, places in browser.barriers()]
    return found


def main() -> int:
    """Check the pages; return 1 if there is a fault."""
    handler = functools.partial(_Quiet, directory=ROOT / "site")
    number = 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = Browser(ROOT / "build")
        try:
            for page in PAGES:
                for width, dark in VIEWS:
                    url = f"http://127.0.0.1:{server.server_port}/{page}.html"
                    for fault in faults(browser, url, width, dark=dark):
                        number += 1
                        print(f"{page}, {width} pixels, {'dark' if dark else 'light'}: {fault}")
        finally:
            browser.close()
            server.shutdown()
    print(f"{number} faults in {len(PAGES)} pages")
    return min(number, 1)


if __name__ == "__main__":
    sys.exit(main())
