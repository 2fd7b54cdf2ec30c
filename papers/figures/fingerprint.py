"""Fingerprints of settings, by which outdated results are found."""

import hashlib
import json


def fingerprint_of(settings: object) -> str:
    """Return a short hash of settings, which are anything that JSON can hold."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
