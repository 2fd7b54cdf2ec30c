"""Client devices: speeds, links and losses."""
