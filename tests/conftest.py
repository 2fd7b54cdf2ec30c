import pytest

pytest_plugins = ["tests.common_fixtures", "tests.browser_fixture", "tests.data_fixtures", "tests.experiment_fixtures"]

# Tests of these folders take longest or wait for other processes: beside them run the many short ones.
_FIRST = tuple(f"tests/{name}/" for name in ("e2e", "deploy", "docs", "trackers", "service", "training", "examples"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest tests come first, so that no process has a long one left when the others have ended."""

    def place(item: pytest.Item) -> int:
        return next((place for place, folder in enumerate(_FIRST) if item.nodeid.startswith(folder)), len(_FIRST))

    items.sort(key=place)
