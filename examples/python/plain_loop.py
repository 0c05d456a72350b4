# SPDX-License-Identifier: Apache-2.0
"""A training loop of one's own: BF16 weights, FP32 state, updates behind the next forward.

usage: plain_loop.py [STEPS]
"""
import sys

import text
import torch

import outboard
import outboard.torch


def main(steps=60):
    model = text.model().bfloat16()
    print(outboard.estimate(model)["text"])
    optimizer = outboard.torch.AdamW(model.named_parameters(), lr=3e-3, max_grad_norm=1.0)
    outboard.torch.overlap(model, optimizer)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    loader = torch.utils.data.DataLoader(text.Text(), batch_size=8, shuffle=True,
                                         generator=torch.Generator().manual_seed(0))
    batches = iter(loader)
    for step in range(1, steps + 1):
        loss = model(**next(batches)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step == 1 or step % 10 == 0:
            print(f"step {step:3}  loss {loss.item():.4f}  "
                  f"gradient norm {optimizer.last_result.grad_norm:.3f}")
    print(f"applied {optimizer.steps_applied}, skipped {optimizer.steps_skipped}, "
          f"digest {optimizer.state_digest():016x}")
    optimizer.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
