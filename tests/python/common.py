# SPDX-License-Identifier: Apache-2.0
"""A small language model on real text, and AdamW in the contract's order, for several tests."""
import functools
import pathlib

import numpy
import torch

TEXT = pathlib.Path(__file__).parents[2] / "docs"


@functools.lru_cache(None)
def tokens():
    """The bytes of this project's documents."""
    text = "".join(path.read_text() for path in sorted(TEXT.glob("*.md")))
    return torch.tensor(list(text.encode()), dtype=torch.long)


def batch(step, rows=2, length=64):
    """Rows of text that depend on the step alone."""
    generator = torch.Generator().manual_seed(1000 + step)
    starts = torch.randint(len(tokens()) - length, (rows,), generator=generator)
    return torch.stack([tokens()[start:start + length] for start in starts])


def gpt2(dtype=torch.float32, seed=0, layers=2, width=32):
    import transformers

    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=256, n_positions=64, n_embd=width, n_layer=layers, n_head=4, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    config._attn_implementation = "eager"
    return transformers.GPT2LMHeadModel(config).to(dtype)


def loss_of(model, ids):
    return model(input_ids=ids, labels=ids).loss


class ReferenceAdamW:
    """FP32 masters beside 16-bit weights, each line rounded as docs/numerics.md has it."""

    def __init__(self, parameters, weight_decay):
        self.parameters, self.weight_decay, self.t = list(parameters), weight_decay, 0
        self.masters = [p.detach().float().clone() for p in self.parameters]
        self.m = [torch.zeros_like(p) for p in self.masters]
        self.v = [torch.zeros_like(p) for p in self.masters]

    @torch.no_grad()
    def step(self, lr, betas=(0.9, 0.999), eps=1e-8, max_grad_norm=0.0, divisor=1.0):
        f = lambda value: torch.tensor(value, dtype=torch.float64).float()
        self.t += 1
        beta1, beta2 = betas
        clip = 1.0
        if max_grad_norm > 0:
            clip = min(1.0, max_grad_norm / (self.norm() / divisor + 1e-6))
        coeff = f(clip / divisor)
        inv_sqrt_bias2 = f(1 / (1 - beta2**self.t) ** 0.5)
        step_size, lr_wd = f(lr / (1 - beta1**self.t)), f(lr * self.weight_decay)
        for p, master, m, v in zip(self.parameters, self.masters, self.m, self.v):
            g = p.grad.float() * coeff
            m.copy_((f(beta1) * m) + (f(1 - beta1) * g))
            v.copy_((f(beta2) * v) + ((f(1 - beta2) * g) * g))
            # torch's own root goes through a library that does not round every value correctly.
            root = torch.from_numpy(numpy.sqrt(v.numpy()))
            d = (root * inv_sqrt_bias2) + f(eps)
            u = (lr_wd * master) + (step_size * (m / d))
            master.copy_(master - u)
            p.copy_(master.to(p.dtype))

    def norm(self):
        """In the contract's order: blocks of 4,096 in 64 lanes, folded by halves, in double."""
        total = 0.0
        for p in self.parameters:
            squares = p.grad.double().reshape(-1) ** 2
            padded = torch.zeros(-(-len(squares) // 4096) * 4096, dtype=torch.float64)
            padded[:len(squares)] = squares
            own = 0.0
            for block in padded.view(-1, 64, 64):
                lanes = torch.zeros(64, dtype=torch.float64)
                for row in block:
                    lanes += row
                while len(lanes) > 1:
                    lanes = lanes[:len(lanes) // 2] + lanes[len(lanes) // 2:]
                own += lanes.item()
            total += own
        return total ** 0.5
