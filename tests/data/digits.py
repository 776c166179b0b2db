#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes digits-images.npy and digits-labels.npy beside this file, from scikit-learn's copy of the
data set. Run once; README.md says with which versions. Needs numpy and scikit-learn."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

here = Path(__file__).resolve().parent
images, labels = load_digits(return_X_y=True)

# The pixels are whole numbers from 0 to 16: uint8 holds them exactly.
assert images.shape == (1797, 64) and np.array_equal(images, images.astype(np.uint8))

np.save(here / "digits-images.npy", images.astype(np.uint8))
np.save(here / "digits-labels.npy", labels.astype(np.uint8))
