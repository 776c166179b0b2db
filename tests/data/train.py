#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains the demo's classifier on the handwritten digits and writes its weights beside this file.

The network has 64 inputs (pixels, 0 to 16), 64 hidden units with ReLU and 10 outputs; the largest
output is the answer. It is trained on the first 1,000 images; the other 797 are held out: nothing
here looks at them before the last line. Needs numpy alone. The seed is fixed, so that a second run
writes the same files; another numpy, BLAS or processor may differ in the last bits.

    python3 train.py            writes w1.npy b1.npy w2.npy b2.npy (float32) and prints accuracies
    python3 train.py --check    writes nothing, prints the accuracies of the files that are there
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
TRAIN = 1000  # images before this one are trained on, the rest is held out
HIDDEN, EPOCHS, BATCH, RATE, DECAY = 64, 200, 50, 2e-3, 1e-2
FILES = ("w1", "b1", "w2", "b2")


def forward(net, x):
    """Hidden layer and outputs for the rows of x."""
    w1, b1, w2, b2 = net
    hidden = np.maximum(x @ w1 + b1, 0)
    return hidden, hidden @ w2 + b2


def gradients(net, x, y):
    """Of the mean cross-entropy of softmax(outputs) against the labels y."""
    hidden, out = forward(net, x)
    p = np.exp(out - out.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    p /= len(y)
    back = (p @ net[2].T) * (hidden > 0)
    return x.T @ back, back.sum(axis=0), hidden.T @ p, p.sum(axis=0)


def train(x, y):
    """Adam with weight decay (AdamW) over shuffled batches; the rate falls to zero as a cosine."""
    rng = np.random.default_rng(1998)
    net = [
        rng.normal(0, np.sqrt(2 / 64), (64, HIDDEN)),
        np.zeros(HIDDEN),
        rng.normal(0, np.sqrt(2 / HIDDEN), (HIDDEN, 10)),
        np.zeros(10),
    ]
    mean = [np.zeros_like(p) for p in net]
    square = [np.zeros_like(p) for p in net]
    steps = EPOCHS * (len(x) // BATCH)
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for batch in order.reshape(-1, BATCH):
            step += 1
            rate = RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
            for i, g in enumerate(gradients(net, x[batch], y[batch])):
                mean[i] = 0.9 * mean[i] + 0.1 * g
                square[i] = 0.999 * square[i] + 0.001 * g * g
                adam = (mean[i] / (1 - 0.9**step)) / (np.sqrt(square[i] / (1 - 0.999**step)) + 1e-8)
                net[i] -= rate * (adam + DECAY * net[i])
    return net


def report(net, images, labels):
    """Accuracies of the float32 weights on raw pixels, which is what the demo computes."""
    _, out = forward(net, images.astype(np.float32))
    right = out.argmax(axis=1) == labels
    ranked = np.sort(out, axis=1)
    print(f"train:    {right[:TRAIN].sum()} of {TRAIN} right, {right[:TRAIN].mean():.2%}")
    print(f"held out: {right[TRAIN:].sum()} of {len(right) - TRAIN} right, {right[TRAIN:].mean():.2%}")
    print(f"closest call: the two largest outputs differ by {(ranked[:, -1] - ranked[:, -2]).min():.4f}")


def main():
    images = np.load(HERE / "digits-images.npy")
    labels = np.load(HERE / "digits-labels.npy")
    if "--check" in sys.argv[1:]:
        net = [np.load(HERE / f"{name}.npy") for name in FILES]
    else:
        net = train(images[:TRAIN] / 16.0, labels[:TRAIN])
        net[0] /= 16  # from now on it takes raw pixels; a power of two, so nothing is rounded
        net = [p.astype(np.float32) for p in net]
        for name, p in zip(FILES, net):
            np.save(HERE / f"{name}.npy", p)
    report(net, images, labels)


if __name__ == "__main__":
    main()
