# SPDX-License-Identifier: Apache-2.0
"""overlap(): the same bits as without, and every reader of weights waits, or is found."""
import copy
import gc

import numpy
import pytest
import torch

import outboard
import outboard.torch as ot


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class Net(torch.nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(50, 32)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(4))
        self.attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        self.norm = torch.nn.LayerNorm(32)
        self.head = torch.nn.Linear(32, 50, bias=False)
        self.head.weight = self.embed.weight
        self.to(dtype)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = x + torch.nn.functional.gelu(block(x))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(self.norm(x))


def train(model, optimizer, steps, first=0):
    losses = []
    for i in range(first, first + steps):
        ids = torch.arange(i, i + 24).view(2, 12) % 50
        loss = torch.nn.functional.cross_entropy(model(ids).float().flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_overlapped_steps_have_the_bits_of_blocking_ones(dtype):
    results = []
    for overlapped in (False, True):
        model = Net(dtype)
        optimizer = ot.AdamW(model.parameters(), lr=1e-2, max_grad_norm=1.0, check_waits=overlapped)
        if overlapped:
            ot.overlap(model, optimizer)
        losses = train(model, optimizer, 12)
        results.append((losses, optimizer.state_digest(), copy.deepcopy(model.state_dict())))
    assert results[0][:2] == results[1][:2]
    for a, b in zip(results[0][2].values(), results[1][2].values(), strict=True):
        assert torch.equal(a, b)


def overlapped(**settings):
    model = Net()
    optimizer = ot.overlap(model, ot.AdamW(list(model.named_parameters()), lr=1e-2, **settings))
    return model, optimizer


def test_readers_of_weights_wait():
    model, optimizer = overlapped(check_waits=True)
    train(model, optimizer, 2)
    assert all(torch.isfinite(t).all() for t in model.state_dict().values())
    train(model, optimizer, 1, 2)
    twin = copy.deepcopy(model)
    assert all(torch.isfinite(p).all() for p in twin.parameters())
    assert "__deepcopy__" not in vars(twin)
    train(model, optimizer, 1, 3)
    for p in model.parameters():
        optimizer.master(p)
    assert all(torch.isfinite(p).all() for p in model.parameters())
    train(model, optimizer, 1, 4)
    optimizer.synchronize()
    average = torch.optim.swa_utils.AveragedModel(model)
    assert all(torch.isfinite(p).all() for p in average.parameters())
    twin_loss = train(twin, torch.optim.SGD(twin.parameters()), 1)
    assert twin_loss[0] > 0


def test_a_weight_used_without_its_modules_forward_is_named_by_the_next_step():
    model, optimizer = overlapped()
    train(model, optimizer, 1)
    ids = torch.arange(24).view(2, 12)
    x = model.embed(ids)
    torch.nn.functional.linear(x, model.blocks[2].weight).square().mean().backward()
    with pytest.raises(outboard.ProtocolError, match="blocks.2.weight"):
        optimizer.step()


def test_check_waits_makes_such_a_weight_nan():
    model, optimizer = overlapped(check_waits=True)
    before = model.blocks[2].weight.detach().clone()
    train(model, optimizer, 1)
    # Whether the NaN or the refresh has arrived meanwhile is a matter of time.
    now = model.blocks[2].weight.detach().clone()
    model.blocks[2](torch.zeros(1, 32))
    after = model.blocks[2].weight.detach()
    assert torch.isfinite(after).all() and not torch.equal(after, before)
    assert (torch.isnan(now) | (now == after) | (now == before)).all()


def test_calling_it_at_the_wrong_time_or_for_the_wrong_model():
    model = Net()
    optimizer = ot.AdamW(model.parameters())
    train(model, optimizer, 1)
    with pytest.raises(outboard.ProtocolError, match="before the first step"):
        ot.overlap(model, optimizer)
    with pytest.raises(outboard.InvalidArgument, match="no optimizer of outboard.torch"):
        ot.overlap(model, torch.optim.SGD(model.parameters()))
    with pytest.raises(outboard.InvalidArgument, match="nobody would wait.*'stranger'"):
        ot.overlap(model, ot.AdamW([("stranger", torch.nn.Parameter(torch.zeros(3)))]))
    other, mine = overlapped()
    with pytest.raises(outboard.ProtocolError, match="already"):
        ot.overlap(other, mine)


def test_state_dicts_and_native_checkpoints_wait(tmp_path):
    model, optimizer = overlapped()
    train(model, optimizer, 3)
    saved = (copy.deepcopy(model.state_dict()), optimizer.state_dict())
    optimizer.save(tmp_path / "run")
    train(model, optimizer, 2, 3)
    for native in (False, True):
        other, loaded = overlapped()
        if native:
            loaded.load(tmp_path / "run")
        else:
            other.load_state_dict(saved[0])
            loaded.load_state_dict(saved[1])
        train(other, loaded, 2, 3)
        assert loaded.state_digest() == optimizer.state_digest()


def test_checkpointed_activations_recompute_with_the_same_weights():
    results = []
    for checkpointed in (False, True):
        model, optimizer = overlapped()
        if checkpointed:
            forward = model.attention.forward
            model.attention.forward = lambda *a, **k: torch.utils.checkpoint.checkpoint(
                forward, *a, use_reentrant=False, **k)
        train(model, optimizer, 3)
        results.append(optimizer.state_digest())
    assert results[0] == results[1]


def test_after_close_the_model_is_an_ordinary_one():
    model, optimizer = overlapped()
    train(model, optimizer, 2)
    optimizer.close()
    assert "__deepcopy__" not in vars(model)
    assert not any(m._forward_pre_hooks for m in model.modules())
    train(model, torch.optim.SGD(model.parameters()), 1)


class Memory:
    """Of a weight; tells when it goes whether the engine had ended."""

    def __init__(self, shape, native, told):
        self.data = numpy.zeros(shape, numpy.float32)
        self.__array_interface__ = self.data.__array_interface__
        self.native, self.told = native, told

    def __del__(self):
        self.told.append(self.native[0].closed)


@pytest.mark.parametrize("intake", ["step", "backward"])
def test_the_engine_ends_before_its_weights_go(intake):
    native, told = [], []
    model = torch.nn.Linear(64, 64, bias=False)
    model.weight = torch.nn.Parameter(torch.from_numpy(numpy.asarray(Memory((64, 64), native, told))))
    optimizer = ot.overlap(model, ot.AdamW(model.parameters(), intake=intake))
    native.append(optimizer._native)
    model(torch.ones(3, 64)).mean().backward()
    optimizer.step()
    del model, optimizer
    gc.collect()
    assert told == [True]


def test_a_deep_copy_trains_as_its_original_does():
    model, optimizer = overlapped()
    train(model, optimizer, 2)
    twin_model, twin = copy.deepcopy((model, optimizer))
    assert train(twin_model, twin, 3, 2) == train(model, optimizer, 3, 2)
    assert twin.state_digest() == optimizer.state_digest()
    for a, b in zip(model.state_dict().values(), twin_model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("intake", ["step", "backward"])
def test_after_a_weight_was_used_without_its_modules_forward_the_next_step_works(intake):
    model, optimizer = overlapped(intake=intake)
    train(model, optimizer, 1)
    ids = torch.arange(24).view(2, 12)
    with pytest.raises(outboard.ProtocolError, match="blocks.2.weight"):
        x = model.embed(ids) + model.norm(model.embed(ids))
        torch.nn.functional.linear(x, model.blocks[2].weight).square().mean().backward()
        optimizer.step()
    optimizer.zero_grad()
    twin_model, twin = copy.deepcopy((model, optimizer))
    train(model, optimizer, 2, 1)
    train(twin_model, twin, 2, 1)
    assert optimizer.steps_applied == 3
    assert optimizer.state_digest() == twin.state_digest()
