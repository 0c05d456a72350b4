# SPDX-License-Identifier: Apache-2.0
"""The steps that all optimizers are compared on, and the same in double."""

SETTINGS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}


class Double:
    """AdamW as its paper writes it, in double."""

    def __init__(self, param):
        self.param = param.double().clone()
        self.exp_avg, self.exp_avg_sq, self.steps = self.param * 0, self.param * 0, 0

    def step(self, grad):
        beta1, beta2 = SETTINGS["betas"]
        self.steps += 1
        self.exp_avg = beta1 * self.exp_avg + (1 - beta1) * grad
        self.exp_avg_sq = beta2 * self.exp_avg_sq + (1 - beta2) * grad * grad
        root = (self.exp_avg_sq / (1 - beta2**self.steps)).sqrt()
        direction = self.exp_avg / (1 - beta1**self.steps) / (root + SETTINGS["eps"])
        self.param -= SETTINGS["lr"] * (SETTINGS["weight_decay"] * self.param + direction)
