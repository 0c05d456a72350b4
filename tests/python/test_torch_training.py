# SPDX-License-Identifier: Apache-2.0
"""Whole trainings: a GPT-2 on text beside torch.optim.AdamW, and masters against the contract's order."""
import copy

import pytest
import torch
from common import ReferenceAdamW, batch, gpt2, loss_of

import outboard.torch as ot

pytest.importorskip("transformers")

SCHEDULES = {
    "constant": lambda o, n: torch.optim.lr_scheduler.ConstantLR(o, 1.0, 1),
    "cosine": lambda o, n: torch.optim.lr_scheduler.CosineAnnealingLR(o, n),
    "one cycle": lambda o, n: torch.optim.lr_scheduler.OneCycleLR(o, 1e-3, total_steps=n),
    "lambda": lambda o, n: torch.optim.lr_scheduler.LambdaLR(o, lambda i: min(1.0, (i + 1) / 10)),
}


def two_groups(model, weight_decay):
    parameters = list(model.parameters())
    return [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]


def train(model, optimizer, schedule, steps, *, accumulate=1, clip=lambda model, optimizer: None):
    scheduler = SCHEDULES[schedule](optimizer, steps)
    losses, rates = [], []
    for step in range(steps):
        for part in range(accumulate):
            loss = loss_of(model, batch(step * accumulate + part)) / accumulate
            loss.backward()
            losses.append(loss.item())
        clip(model, optimizer)
        rates.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["betas"][0]))
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    return losses, rates


def by_torch(model, _):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)


def by_us(_, optimizer):
    optimizer.clip_grad_norm_(0.5)


@pytest.mark.parametrize("schedule, steps, accumulate, clipping", [
    ("constant", 200, 1, None), ("cosine", 200, 1, by_torch), ("one cycle", 200, 1, "ours"),
    ("lambda", 60, 4, by_us), ("cosine", 60, 4, None),
])
def test_losses_are_those_of_torchs_adamw_at_every_step(schedule, steps, accumulate, clipping):
    torch.set_num_threads(1)
    models = [gpt2(), gpt2()]
    settings = {"lr": 1e-3}
    native = {"max_grad_norm": 0.5} if clipping == "ours" else {}
    ours = ot.AdamW(two_groups(models[0], 0.1), **settings, **native)
    stock = torch.optim.AdamW(two_groups(models[1], 0.1), **settings)
    nothing = lambda model, optimizer: None
    ours_clip = clipping if callable(clipping) else nothing
    mine = train(models[0], ours, schedule, steps, accumulate=accumulate, clip=ours_clip)
    theirs = train(models[1], stock, schedule, steps, accumulate=accumulate,
                   clip=by_torch if clipping else nothing)
    assert mine[1] == theirs[1]
    worst = max(abs(a - b) / b for a, b in zip(mine[0], theirs[0], strict=True))
    print(f"{schedule}: {theirs[0][0]:.4f} to {theirs[0][-1]:.4f}, worst difference {worst:.1e}")
    assert theirs[0][-1] < 0.8 * theirs[0][0]
    assert worst <= 1e-5
    assert ours.steps_applied == steps


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_masters_have_the_bits_of_the_contracts_order(dtype):
    torch.set_num_threads(1)
    model = gpt2(dtype)
    twin = copy.deepcopy(model)
    scaler = ot.LossScaler(init_scale=256.0) if dtype == torch.float16 else None
    optimizer = ot.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, max_grad_norm=0.5,
                         loss_scaler=scaler)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=20)
    reference = ReferenceAdamW(twin.parameters(), weight_decay=0.1)
    for step in range(12):
        group = optimizer.param_groups[0]
        scale = optimizer.loss_scale
        for net in (model, twin):
            net.zero_grad()
            (loss_of(net, batch(step)) * scale).backward()
        reference.step(group["lr"], group["betas"], max_grad_norm=0.5, divisor=scale)
        optimizer.step()
        scheduler.step()
        assert optimizer.last_result.applied
        assert optimizer.last_result.grad_norm == reference.norm() / scale
        for ours, theirs, master in zip(model.parameters(), twin.parameters(), reference.masters):
            assert torch.equal(ours, theirs)
            assert torch.equal(optimizer.master(ours), master)
    saved = optimizer.state_dict()["state"]
    for entry, m, v in zip(saved.values(), reference.m, reference.v, strict=True):
        assert torch.equal(entry["exp_avg"], m) and torch.equal(entry["exp_avg_sq"], v)


def test_a_float16_training_finds_its_loss_scale():
    model = gpt2(torch.float16)
    scaler = ot.LossScaler(init_scale=2.0**24)
    optimizer = ot.AdamW(model.parameters(), lr=1e-3, loss_scaler=scaler, max_grad_norm=1.0)
    losses, skipped = [], 0
    for step in range(40):
        loss = loss_of(model, batch(step))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        skipped += optimizer.last_step_skipped
        losses.append(loss.item())
    assert 0 < skipped < 20 and optimizer.steps_skipped == skipped
    assert optimizer.steps_applied == 40 - skipped
    assert scaler.get_scale() == 2.0 ** (24 - skipped)
    assert losses[-1] < 0.9 * losses[0]
