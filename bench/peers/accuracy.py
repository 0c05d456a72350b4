#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""1,000 AdamW steps of Outboard and of torch's fused AdamW on the same FP16 gradients, both against
the same steps in double. Fails if Outboard ends further from them than torch.

The scaled error is |p - p in double|, as a root mean square over all elements, over the root mean
square of how far the weights moved. Exit status 77 and a reason: torch is not there.
"""
import argparse
import pathlib
import sys

from double import SETTINGS, Double
from kernel import Kernel

SKIPPED = 77


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--elems", type=int, default=20_000)
    return parser.parse_args()


def gradients(torch, elems, steps):
    """Noise around a trend, of scales from 2^-12 to 1, in FP16."""
    generator = torch.Generator().manual_seed(7)
    scale = torch.exp2(-12 * torch.rand(elems, generator=generator))
    trend = torch.randn(elems, generator=generator)
    for _ in range(steps):
        noise = torch.randn(elems, generator=generator)
        yield ((trend * 0.3 + noise) * scale).half()


def scaled_errors(param, double, start):
    moved = (double - start.double()).square().mean().sqrt()
    error = (param.double() - double).abs()
    return (error.square().mean().sqrt() / moved).item(), (error.max() / moved).item()


def run(torch, options):
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(options.elems, generator=generator) * 0.02
    double = Double(start)
    kernel = Kernel(options.library, 1)
    ours = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    weight = torch.empty(options.elems, dtype=torch.float16)
    theirs = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([theirs], fused=True, **SETTINGS)
    for step, grad in enumerate(gradients(torch, options.elems, options.steps), 1):
        double.step(grad.double())
        kernel.adamw(ours, (grad, "f16"), (weight, "f16"), SETTINGS, step)
        theirs.grad = grad.float()
        optimizer.step()
    kernel.close()
    return (scaled_errors(ours[0], double.param, start),
            scaled_errors(theirs.detach(), double.param, start))


def main():
    options = parse_arguments()
    try:
        import torch
    except ImportError as error:
        print(f"skipped: no torch ({error}); bench/peers/compare.sh makes an environment with it")
        return SKIPPED
    ours, theirs = run(torch, options)
    print(f"{options.steps} steps, {options.elems} elements, scaled error (rms, largest):")
    print(f"  outboard           {ours[0]:.3e}  {ours[1]:.3e}")
    print(f"  torch {torch.__version__} fused {theirs[0]:.3e}  {theirs[1]:.3e}")
    if ours[0] <= theirs[0]:
        return 0
    print(f"error: {ours[0] / theirs[0]:.3f} times torch's")
    return 1


if __name__ == "__main__":
    sys.exit(main())
