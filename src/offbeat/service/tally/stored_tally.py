"""Counts of clients' visits, read from a server's database."""

import sqlite3

from offbeat.service.store.database import LogRecord
from offbeat.service.tally.client_tally import COLUMNS, NUMBER_KEY, ClientTally, Counts


def read_tally(database: sqlite3.Connection) -> ClientTally:
    """Return the counts at the end of the log.

    Raises:
        ValueError, LookupError, TypeError: The log is broken.
    """
    tally = ClientTally()
    for client, *values in database.execute(f"SELECT {', '.join(COLUMNS)} FROM client_counts"):
        tally.put(client, Counts(*values))
    found = database.execute("SELECT value FROM meta WHERE key = ?", (NUMBER_KEY,)).fetchone()
    tally.number = 0 if found is None else int(found[0])
    query = "SELECT number, name, arguments, file FROM log WHERE number > ? ORDER BY number"
    for number, name, arguments, file in database.execute(query, (tally.number,)):
        tally.note(LogRecord.of_row({"number": number, "name": name, "arguments": arguments, "file": file}))
    return tally
