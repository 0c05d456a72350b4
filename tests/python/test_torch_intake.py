# SPDX-License-Identifier: Apache-2.0
"""intake='backward': the bits of intake='step', whatever happens to gradients after backward."""
import copy

import pytest
import torch

import outboard
import outboard.torch as ot


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.GELU(), torch.nn.Linear(300, 300),
                               torch.nn.GELU(), torch.nn.Linear(300, 5)).to(dtype)


def backward(model, seed, factor=1.0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8, 20, generator=generator).to(next(model.parameters()).dtype)
    (model(x).float().square().mean() * factor).backward()


def plain(model, optimizer, i):
    backward(model, i)


def accumulated(model, optimizer, i):
    for part in range(3):
        backward(model, 3 * i + part)


def clipped_by_torch(model, optimizer, i):
    backward(model, i)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def clipped_by_us(model, optimizer, i):
    backward(model, i)
    optimizer.clip_grad_norm_(0.01)


def zeroed_and_again(model, optimizer, i):
    backward(model, i + 100)
    optimizer.zero_grad(set_to_none=i % 2 == 0)
    backward(model, i)


def one_gradient_dropped(model, optimizer, i):
    backward(model, i)
    model[2].weight.grad = None


def written_over(model, optimizer, i):
    backward(model, i)
    model[0].bias.grad.mul_(2)


def looked_at_between(model, optimizer, i):
    backward(model, i)
    optimizer.state_dict()


def reentrant(model, optimizer, i):
    generator = torch.Generator().manual_seed(i)
    x = torch.randn(8, 20, generator=generator, requires_grad=True)
    half = lambda x: model[2](model[1](model[0](x)))
    y = torch.utils.checkpoint.checkpoint(half, x, use_reentrant=True)
    y = y + torch.utils.checkpoint.checkpoint(half, x, use_reentrant=True)
    model[4](model[3](y)).square().mean().backward()


@pytest.mark.parametrize("way, accumulation, drops", [
    (plain, 1, 0), (accumulated, 3, 0), (accumulated, 1, 4), (clipped_by_torch, 1, 4),
    (clipped_by_us, 1, 0), (zeroed_and_again, 1, 4), (one_gradient_dropped, 1, 4),
    (written_over, 1, 4), (looked_at_between, 1, 4), (reentrant, 1, 4),
])
@pytest.mark.parametrize("overlapped", [False, True])
def test_bits_are_those_of_gradients_taken_in_step(way, accumulation, drops, overlapped):
    results = []
    for intake in ("step", "backward"):
        model = net()
        optimizer = ot.AdamW(model.parameters(), lr=1e-2, intake=intake, accumulation=accumulation)
        if overlapped:
            ot.overlap(model, optimizer)
        for i in range(5):
            way(model, optimizer, i)
            optimizer.step()
            optimizer.zero_grad()
        results.append((optimizer.state_digest(), optimizer.steps_applied))
        if intake == "backward":
            assert (optimizer._early.dropped > 0) == (drops > 0)
            assert optimizer._early.dropped >= drops
    assert results[0] == results[1]


def test_gradients_are_given_before_step():
    model = net(torch.bfloat16)
    optimizer = ot.AdamW(model.parameters(), intake="backward")
    backward(model, 0)
    optimizer.step()
    optimizer.zero_grad()
    before = optimizer.stats()["gradient_bytes_down"]
    backward(model, 1)
    assert set(optimizer._early._given) == set(model.parameters())
    optimizer.step()
    weights = sum(p.numel() for p in model.parameters())
    # Once each: 2 bytes a weight, and what fills packed ones up to whole lines.
    assert 2 * weights <= optimizer.stats()["gradient_bytes_down"] - before < 2.1 * weights


@pytest.mark.parametrize("scaler", ["torch", "ours"])
def test_scalers_have_the_same_bits(scaler):
    results = []
    for intake in ("step", "backward"):
        model = net(torch.float16)
        own = ot.LossScaler(init_scale=1024.0) if scaler == "ours" else None
        optimizer = ot.AdamW(model.parameters(), lr=1e-3, intake=intake, loss_scaler=own)
        other = own or torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        for i in range(6):
            backward(model, i, factor=other.get_scale() * (torch.inf if i == 2 else 1.0))
            if scaler == "torch":
                other.scale(torch.ones(()))
            other.step(optimizer)
            other.update()
            optimizer.zero_grad()
        results.append((optimizer.state_digest(), optimizer.steps_applied, optimizer.steps_skipped))
    assert results[0] == results[1] and results[0][1:] == (5, 1)


def test_thawing_moving_and_copying_go_on():
    results = []
    for intake in ("step", "backward"):
        model = net()
        model[4].requires_grad_(False)
        optimizer = ot.AdamW(model.parameters(), lr=1e-2, intake=intake)
        for i in range(6):
            if i == 2:
                model[4].requires_grad_(True)
            if i == 4:
                model[0].weight.data = model[0].weight.data.clone()
            if i == 5:
                model, optimizer = copy.deepcopy((model, optimizer))
            backward(model, i)
            optimizer.step()
            optimizer.zero_grad()
        results.append(optimizer.state_digest())
    assert results[0] == results[1]


def test_another_intake_is_refused():
    with pytest.raises(outboard.InvalidConfig, match="'backward'"):
        ot.AdamW(net().parameters(), intake="streaming")


def test_more_than_one_rank_is_refused(monkeypatch):
    model = net()
    optimizer = ot.AdamW(model.parameters(), intake="backward")
    before = copy.deepcopy(model.state_dict())
    backward(model, 0)
    with monkeypatch.context() as ranks:
        ranks.setattr(torch.distributed, "is_initialized", lambda: True)
        ranks.setattr(torch.distributed, "get_world_size", lambda: 2)
        with pytest.raises(outboard.InvalidConfig, match="2 ranks.*intake='step'"):
            optimizer.step()
        with pytest.raises(outboard.InvalidConfig, match="2 ranks"):
            ot.AdamW(net().parameters(), intake="backward")
        ot.AdamW(net().parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    optimizer.step()
    assert optimizer.steps_applied == 1
