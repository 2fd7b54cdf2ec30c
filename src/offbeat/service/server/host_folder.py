"""The folder of a server of several runs.

Each of its runs has a folder of its own in it, which is like that of a server with this run alone.
"""

from pathlib import Path

RUNS = "runs"
"""The folder of the runs' own folders."""


def is_host_folder(folder: Path) -> bool:
    """Return whether a folder is that of a server of several runs."""
    return (folder / RUNS).is_dir() and (folder / "offbeat.sqlite").exists()


def run_folders(folder: Path) -> list[Path]:
    """Return the folders of a server's runs; that of a server with one run is its own."""
    if not is_host_folder(folder):
        return [folder]
    return sorted(path.parent for path in folder.glob(f"{RUNS}/*/offbeat.sqlite"))


def host_of(folder: Path) -> tuple[Path, str]:
    """Return the server's folder, and the prefix of the run's URLs.

    ``folder`` is a run's, or the server's own, without a prefix.
    """
    host = folder.absolute().parent.parent
    if folder.absolute().parent.name == RUNS and is_host_folder(host):
        return host, f"/{RUNS}/{folder.absolute().name}"
    return folder, ""
