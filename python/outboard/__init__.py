# SPDX-License-Identifier: Apache-2.0
"""Outboard: FP32 optimizer state beside a model of 16-bit (or FP32) weights.

outboard.Engine takes NumPy arrays; outboard.torch has optimizers for torch.
"""
from .engine import Engine, Parameter
from .errors import (BadCheckpoint, Deadlock, DeviceFailure, Error, InvalidArgument, InvalidConfig,
                     IoFailure, NoSpace, Numerics, OutOfMemory, Poisoned, ProtocolError, Timeout,
                     Unsupported)
from .estimate import estimate, inspect_checkpoint
from .rules import Adagrad, Adam, AdamW, Lamb, Lion, LossScaling, Sgd

__version__ = "0.1.0"
__all__ = [
    "Adagrad", "Adam", "AdamW", "BadCheckpoint", "Deadlock", "DeviceFailure", "Engine", "Error",
    "InvalidArgument", "InvalidConfig", "IoFailure", "Lamb", "Lion", "LossScaling", "NoSpace",
    "Numerics", "OutOfMemory", "Parameter", "Poisoned", "ProtocolError", "Sgd", "Timeout",
    "Unsupported", "estimate", "inspect_checkpoint",
]
