# SPDX-License-Identifier: Apache-2.0
"""Update rules: hyper-parameters with defaults. The formulas: docs/numerics.md."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay: the decay is no part of the gradient."""

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True)
class Adam:
    """Adam with L2 regularization: the decay is added to the gradient."""

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True)
class Sgd:
    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True)
class Lion:
    lr: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True)
class Adagrad:
    lr: float = 1e-2
    lr_decay: float = 0.0
    initial_accumulator: float = 0.0
    eps: float = 1e-10
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True)
class Lamb:
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True)
class LossScaling:
    """As outboard::LossScaling; `None` in its place is a fixed scale of 1."""

    dynamic: bool = True
    initial_scale: float = 65536.0
    growth_interval: int = 2000
    min_scale: float = 1.0
    max_scale: float = 16777216.0
    give_up_after: int = 100


def parts(rule):
    """Name and values of a rule, as the native module takes them."""
    if type(rule) not in (AdamW, Adam, Sgd, Lion, Adagrad, Lamb):
        from .errors import InvalidArgument

        raise InvalidArgument(
            f"{rule!r} is no rule; give outboard.AdamW(...), Adam, Sgd, Lion, Adagrad or Lamb")
    values = {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}
    return type(rule).__name__, values
