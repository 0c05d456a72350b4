# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Accelerate: prepare() takes the optimizer as it is; accumulation and clipping are its.

usage: accelerate_loop.py [STEPS]
"""
import sys

import accelerate
import text
import torch

import outboard.torch


def main(steps=30):
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = text.model()
    optimizer = outboard.torch.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    loader = torch.utils.data.DataLoader(text.Text(), batch_size=4, shuffle=True,
                                         generator=torch.Generator().manual_seed(0))
    model, wrapped, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for number, batch in zip(range(1, 2 * steps + 1), loader):
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            wrapped.step()
            schedule.step()
            wrapped.zero_grad()
        if number == 1 or number % 10 == 0:
            print(f"batch {number:3}  loss {loss.item():.4f}")
    print(f"applied {optimizer.steps_applied}, skipped {optimizer.steps_skipped}, "
          f"digest {optimizer.state_digest():016x}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
