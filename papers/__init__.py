"""The figures, tables and theorems of the papers, measured again; not part of the installed package."""
