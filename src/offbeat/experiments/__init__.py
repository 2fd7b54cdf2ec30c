"""A TOML file in, run directories and a report out."""
