"""The papers' figures, run again: files with claims, their verdicts, and the pages that say so."""
