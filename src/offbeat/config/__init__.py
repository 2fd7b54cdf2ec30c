"""The TOML files: their sections, defaults, checks and error messages."""
