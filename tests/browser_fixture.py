"""The browser of all tests that open a page."""

import pytest


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    from tests.browser import Browser, is_installed  # not for the many tests that open no page

    if not is_installed():
        pytest.skip("chromium and chromium-driver are not installed: no page is opened")
    chromium = Browser(tmp_path_factory.mktemp("downloads"))
    yield chromium
    chromium.close()
