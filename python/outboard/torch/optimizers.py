# SPDX-License-Identifier: Apache-2.0
"""The optimizers: torch's names and defaults for hyper-parameters, Outboard's formulas."""
from .optimizer import OutboardOptimizer, _number

_TORCH_ONLY = {"amsgrad": False, "maximize": False, "differentiable": False}


def _accepts(values, allowed):
    """Options of torch's optimizers that choose an implementation; there is one here."""
    for name in ("foreach", "fused", "capturable"):
        values.pop(name, None)
    return {name: values.pop(name, only) for name, only in allowed.items()}


def _adam_values(group):
    beta1, beta2 = group["betas"]
    return {"lr": _number(group["lr"]), "beta1": _number(beta1), "beta2": _number(beta2),
            "eps": _number(group["eps"]), "weight_decay": _number(group["weight_decay"])}


class _AdamLike(OutboardOptimizer):
    refused = _TORCH_ONLY
    weight_decay = 0.0
    eps = 1e-8

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=None, weight_decay=None, **settings):
        same = _accepts(settings, self.refused)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": self.eps if eps is None else eps,
            "weight_decay": self.weight_decay if weight_decay is None else weight_decay, **same,
        }, **settings)

    def _values(self, group):
        return _adam_values(group)


class AdamW(_AdamLike):
    """Adam with decoupled weight decay, as torch.optim.AdamW."""

    kind = "AdamW"
    weight_decay = 1e-2


class Adam(_AdamLike):
    """Adam with L2 regularization, as torch.optim.Adam. Never AdamW."""

    kind = "Adam"
    refused = {**_TORCH_ONLY, "decoupled_weight_decay": False}


class LAMB(_AdamLike):
    """Layer-wise adaptive Adam (You et al., 2020)."""

    kind = "Lamb"
    eps = 1e-6


class Lion(OutboardOptimizer):
    """The sign of an interpolated momentum (Chen et al., 2023)."""

    kind = "Lion"
    refused = {"maximize": False}

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, **settings):
        same = _accepts(settings, self.refused)
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, **same},
                         **settings)

    def _values(self, group):
        beta1, beta2 = group["betas"]
        return {"lr": _number(group["lr"]), "beta1": _number(beta1), "beta2": _number(beta2),
                "weight_decay": _number(group["weight_decay"])}


class Adagrad(OutboardOptimizer):
    """As torch.optim.Adagrad."""

    kind = "Adagrad"
    refused = {"maximize": False, "differentiable": False}

    def __init__(self, params, lr=1e-2, lr_decay=0.0, weight_decay=0.0,
                 initial_accumulator_value=0.0, eps=1e-10, **settings):
        same = _accepts(settings, self.refused)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, **same,
        }, **settings)

    def _values(self, group):
        return {"lr": _number(group["lr"]), "lr_decay": _number(group["lr_decay"]),
                "initial_accumulator": _number(group["initial_accumulator_value"]),
                "eps": _number(group["eps"]), "weight_decay": _number(group["weight_decay"])}


class SGD(OutboardOptimizer):
    """As torch.optim.SGD. A group keeps having momentum, or having none."""

    kind = "Sgd"
    refused = {"maximize": False, "differentiable": False}

    def __init__(self, params, lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0,
                 nesterov=False, **settings):
        same = _accepts(settings, self.refused)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, **same,
        }, **settings)

    def _values(self, group):
        return {"lr": _number(group["lr"]), "momentum": _number(group["momentum"]),
                "dampening": _number(group["dampening"]), "nesterov": bool(group["nesterov"]),
                "weight_decay": _number(group["weight_decay"])}
