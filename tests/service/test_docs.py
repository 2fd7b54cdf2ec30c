"""Tests that the pages on the service work as shown."""

import re
from pathlib import Path

from tests.service.conftest import running

CONCEPTS = Path(__file__).parents[2] / "docs" / "concepts"


def test_the_client_that_the_page_shows_takes_part(tmp_path):
    (example,) = re.findall(r"^```python\n(.*?)^```", (CONCEPTS / "service.md").read_text("utf-8"), re.S | re.M)
    with running(tmp_path / "server", stop_versions=2) as server:
        names = {"folder": tmp_path / "client", "token": server.enrolment_token, "ca": None}
        exec(example.replace("https://127.0.0.1:8443", server.url), names)
        status = server.admin.http.get("/v1/status").json()
    assert (status["version"], status["counted"]) == (2, 4)


def test_the_page_lists_all_settings():
    from offbeat.config.server_file import ServiceSection

    page = (CONCEPTS / "operate.md").read_text("utf-8")
    table = page.partition("| `[service]` |")[2].partition("\n\n")[0]
    listed = re.findall(
        r"`(\w+)`", "".join(line.partition("|")[2].partition("|")[0] for line in table.splitlines()[2:])
    )
    assert sorted(listed) == sorted(ServiceSection.model_fields)
