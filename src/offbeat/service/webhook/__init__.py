"""Messages about a run to a URL of the operator's."""
