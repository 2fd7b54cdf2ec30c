"""Commands of ``offbeat``, by entry points; they import only click at first."""
