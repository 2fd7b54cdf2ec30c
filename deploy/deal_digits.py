"""Deal the handwritten digits out to three sites: ``python deal_digits.py FOLDER``."""

import sys
from pathlib import Path

import numpy as np

from offbeat.data.catalogue import load_dataset

SITES = 3

digits = load_dataset("digits")
for site in range(SITES):
    inputs, labels = digits.train_inputs[site::SITES], digits.train_labels[site::SITES]
    np.savez(Path(sys.argv[1], f"{site}.npz"), inputs=np.asarray(inputs), labels=np.asarray(labels))
