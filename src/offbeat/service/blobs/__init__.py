"""Large bodies: written once under a name that is new, and never changed."""
