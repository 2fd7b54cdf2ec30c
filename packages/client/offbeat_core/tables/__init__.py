"""Tables of TOML files: reading, checking, and errors for their author."""
