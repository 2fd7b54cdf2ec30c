"""The section ``[flower]`` of an experiment."""

from offbeat_core.tables.section import Section
from pydantic import Field

from offbeat.config.user_paths import ImportPath


class FlowerSection(Section):
    """``[flower]``: a Flower ClientApp that trains the clients, with data of its own."""

    app: ImportPath
    """The import path of the app."""
    run_config: dict[str, bool | int | float | str] = Field(default_factory=dict[str, bool | int | float | str])
    """Changes of the app's settings, which are those of ``pyproject.toml`` in the current folder."""
