# SPDX-License-Identifier: Apache-2.0
"""Optimizers for torch whose FP32 state is Outboard's: AdamW, Adam, LAMB, Lion, Adagrad, SGD.

They are torch.optim.Optimizer subclasses and take the place of torch's own. See docs/python.md.
"""
from .optimizers import LAMB, SGD, Adagrad, Adam, AdamW, Lion
from .overlap import overlap
from .scaler import LossScaler

__all__ = ["LAMB", "SGD", "Adagrad", "Adam", "AdamW", "Lion", "LossScaler", "overlap"]
