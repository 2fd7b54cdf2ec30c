"""The built-in data sets and the file formats they come in."""
