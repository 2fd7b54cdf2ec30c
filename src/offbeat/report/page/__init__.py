"""The page of a comparison: its data, template, style and script."""
