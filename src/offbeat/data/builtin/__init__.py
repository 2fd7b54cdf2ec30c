"""The built-in data sets and their file formats."""
