# SPDX-License-Identifier: MIT
"""Four workers of a DataLoader compute features with one model, which is in memory once.

python dataloader.py
"""

import os

import gpushm.torch
import torch
from torch.utils.data import DataLoader, Dataset


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(16)]).eval()


class Features(Dataset):
    """Each worker shares the model when it computes its first item, after the fork."""

    model = None

    def __len__(self):
        return 64

    def __getitem__(self, i):
        if self.model is None:
            self.model = gpushm.torch.share("features", build)
        with torch.inference_mode():
            return os.getpid(), self.model(torch.full((512,), float(i)))


if __name__ == "__main__":
    pids, seen = set(), 0
    for pid, features in DataLoader(Features(), batch_size=4, num_workers=4):
        pids |= set(pid.tolist())
        seen += len(features)
    info = gpushm.stat("features")
    print(f"{len(pids)} workers made {seen} items with one model of {info.nbytes >> 20} MiB")
    gpushm.unlink("features")
