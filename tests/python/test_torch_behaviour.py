# SPDX-License-Identifier: Apache-2.0
"""outboard.torch as a torch optimizer: groups, schedules, hooks, layouts, scalers, threads of its life."""
import copy
import gc
import os
import time

import pytest
import torch

import outboard
import outboard.torch as ot


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def weights(*shapes, dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]


def give(parameters, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for p in parameters:
        grad = torch.empty_strided(p.shape, p.stride(), dtype=p.dtype)
        p.grad = grad.copy_(torch.randn(p.shape, generator=generator))


def beside_stock(parameters, make_ours=ot.AdamW, make_stock=torch.optim.AdamW, steps=4, **settings):
    """Steps both with the same gradients; their parameters stay within 1e-6."""
    twins = [torch.nn.Parameter(p.detach().clone()) for p in parameters]
    ours, stock = make_ours(parameters, **settings), make_stock(twins, **settings)
    for i in range(steps):
        for group in (parameters, twins):
            give(group, i)
        ours.step()
        stock.step()
    for a, b in zip(parameters, twins, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    return ours, stock


# --- a real optimizer ----------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [
    lambda o: torch.optim.lr_scheduler.ConstantLR(o, 0.5, 3),
    lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda i: 1 / (i + 1)),
    lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1e-2, total_steps=11),
])
def test_rates_and_betas_of_every_step_are_the_schedulers(schedule):
    pairs = []
    for make in (ot.AdamW, torch.optim.AdamW):
        p = weights((50,))
        optimizer = make(p, lr=1e-2)
        pairs.append((p, optimizer, schedule(optimizer)))
    assert isinstance(pairs[0][1], torch.optim.Optimizer)
    for i in range(10):
        for p, optimizer, scheduler in pairs:
            p[0].grad = torch.ones(50)
            optimizer.step()
            scheduler.step()
        described = pairs[0][1].describe()
        if i == 4:  # through state dicts
            for p, optimizer, scheduler in pairs:
                scheduler.load_state_dict(copy.deepcopy(scheduler.state_dict()))
        torch.testing.assert_close(pairs[0][0][0], pairs[1][0][0], rtol=1e-6, atol=1e-7)
        assert f"betas {pairs[0][1]._rules[0]['beta1']:.6g}"[:9] in described


def test_a_tensor_is_a_rate_and_is_read_at_every_step():
    p = weights((9,))
    rate = torch.tensor(1e-2)
    optimizer = ot.SGD(p, lr=rate)
    for value in (1e-2, 0.5, 0.0):
        rate.fill_(value)
        before = p[0].detach().clone()
        p[0].grad = torch.ones(9)
        optimizer.step()
        torch.testing.assert_close(p[0].detach(), before - value)


def test_groups_of_any_size_have_settings_of_their_own():
    def groups(p):
        return [{"params": p[:3], "lr": 1e-2, "betas": (0.8, 0.9)}, {"params": []},
                {"params": p[3:], "lr": 1e-3, "eps": 1e-4, "weight_decay": 0.3}]

    p = weights((3,), (4, 5), (), (70, 70), (8,), (1,), (2, 2, 2), (6,))
    beside_stock(p, lambda q, **k: ot.AdamW(groups(q)), lambda q, **k: torch.optim.AdamW(groups(q)))


def test_a_group_that_is_added_later_begins_then():
    def run(make):
        p = weights((30,), (40,))
        optimizer = make(p[:1], lr=1e-2)
        for i in range(6):
            if i == 3:
                optimizer.add_param_group({"params": p[1:], "lr": 1e-3})
            give(p, i)
            optimizer.step()
        return p

    for a, b in zip(run(ot.AdamW), run(torch.optim.AdamW)):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_a_closure_is_called_once_with_gradients_enabled_and_before_they_are_taken():
    p = weights((5,))
    optimizer = ot.SGD(p, lr=0.1)
    calls = []

    def closure():
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        loss = (p[0] ** 2).sum()
        loss.backward()
        return loss

    before = p[0].detach().clone()
    with torch.no_grad():
        loss = optimizer.step(closure)
    assert calls == [True]
    assert loss.item() == pytest.approx((before**2).sum().item())
    torch.testing.assert_close(p[0].detach(), before - 0.1 * 2 * before)


def test_step_hooks_run_around_the_step():
    p = weights((5,))
    optimizer = ot.AdamW(p)
    seen = []
    optimizer.register_step_pre_hook(lambda o, a, k: seen.append(p[0].detach().clone()))
    optimizer.register_step_post_hook(lambda o, a, k: seen.append(p[0].detach().clone()))
    give(p)
    before = p[0].detach().clone()
    optimizer.step()
    assert torch.equal(seen[0], before) and torch.equal(seen[1], p[0]) and not torch.equal(*seen)


def test_frozen_parameters_cost_nothing_and_can_be_thawed():
    p = weights(*[(1000,)] * 10)
    for one in p[1:]:
        one.requires_grad_(False)
    optimizer = ot.AdamW(p, lr=1e-2)

    def state_elems():
        return optimizer.ledger()["trainable_elems"]

    for i in range(5):
        give(p[:1], i)
        optimizer.step()
    assert state_elems() == 1000
    p[1].requires_grad_(True)
    p[0].requires_grad_(False)
    p[0].grad = None
    kept = p[0].detach().clone()
    for i in range(2):
        give(p[1:2], i)
        optimizer.step()
    assert state_elems() == 2000 and torch.equal(kept, p[0])
    saved = optimizer.state_dict()["state"]
    assert {k: v["step"].item() for k, v in saved.items()} == {0: 5.0, 1: 2.0}
    give(p[:1], 9)
    optimizer.step()
    assert not torch.equal(kept, p[0]) and optimizer.state_dict()["state"][0]["step"] == 6


def test_parameters_without_gradients_keep_their_state():
    p = weights((10,), (10,))
    optimizer = ot.AdamW(p, lr=1e-2)
    give(p)
    optimizer.step()
    kept = p[1].detach().clone()
    p[1].grad = None
    give(p[:1], 1)
    optimizer.step()
    assert torch.equal(kept, p[1]) and optimizer.state_dict()["state"][1]["step"] == 1
    for one in p:
        one.grad = None
    optimizer.step()
    assert optimizer.last_result is None and optimizer.steps_applied == 2


def test_nothing_relies_on_zero_grad():
    p = weights((10,))
    optimizer = ot.SGD(p, lr=1.0)
    before = p[0].detach().clone()
    p[0].grad = torch.ones(10)
    for _ in range(3):
        optimizer.step()
    torch.testing.assert_close(p[0].detach(), before - 3)
    assert torch.equal(p[0].grad, torch.ones(10))


# --- shapes and layouts ----------------------------------------------------------------------------


def test_zero_size_and_0_d_parameters():
    beside_stock(weights((0,), (), (3, 0), (5,)))


def test_transposed_and_channels_last_weights_keep_their_layout():
    torch.manual_seed(0)
    p = [torch.nn.Parameter(torch.randn(30, 20).t()),
         torch.nn.Parameter(torch.randn(8, 3, 5, 5).to(memory_format=torch.channels_last))]
    strides = [one.stride() for one in p]
    ours, _ = beside_stock(p)
    assert [one.stride() for one in p] == strides
    saved = ours.state_dict()["state"]
    assert torch.equal(saved[0]["master_param"], p[0]) and torch.equal(saved[1]["master_param"], p[1])


def test_gradients_of_another_layout_are_the_same_gradients():
    results = []
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        p = torch.nn.Parameter(torch.randn(8, 3, 5, 5))
        optimizer = ot.AdamW([p])
        p.grad = torch.randn(8, 3, 5, 5).to(memory_format=layout)
        optimizer.step()
        results.append(p.detach())
    assert torch.equal(*results)


def test_weights_with_gaps_are_trained_in_place():
    torch.manual_seed(0)
    base = torch.randn(40, 10)
    untouched = base[:, 1::2].clone()
    p = torch.nn.Parameter(base[:, ::2])
    beside_stock([p])
    assert p.data_ptr() == base.data_ptr() and torch.equal(base[:, 1::2], untouched)


def test_tied_weights_are_one_parameter():
    def run(make):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20, bias=False))
        net[1].weight = net[0].weight
        optimizer = make(net.parameters(), lr=1e-2)
        for i in range(4):
            ids = torch.arange(i, i + 10)
            torch.nn.functional.cross_entropy(net(ids), ids).backward()
            optimizer.step()
            optimizer.zero_grad()
        return net[0].weight

    torch.testing.assert_close(run(ot.AdamW), run(torch.optim.AdamW), rtol=1e-6, atol=1e-6)


def test_dtypes_may_be_mixed_in_a_group():
    p = weights((300,)) + weights((300,), dtype=torch.bfloat16) + weights((300,), dtype=torch.float16)
    optimizer = ot.AdamW(p, lr=1e-2)
    for i in range(3):
        give(p, i)
        optimizer.step()
    for one in p:
        assert torch.equal(optimizer.master(one).to(one.dtype), one.detach())
    addresses = [one.data_ptr() for one in p]
    assert all(b.memory().data_ptr() == a for b, a in zip(optimizer._bindings.values(), addresses))


# --- weights that move, or that others write ---------------------------------------------------------


def test_weights_that_moved_are_found_again():
    p = weights((100,))
    reference = copy.deepcopy((p, ot.AdamW(p, lr=1e-2)))
    optimizer = ot.AdamW(p, lr=1e-2)
    for i in range(4):
        for group, o in ((p, optimizer), reference):
            give(group, i)
            o.step()
        p[0].data = p[0].data.clone()
    assert torch.equal(p[0], reference[0][0])


@pytest.mark.parametrize("write", [
    torch.nn.init.ones_,
    lambda p: setattr(p, "data", torch.ones(100)),
])
def test_weights_that_others_wrote_are_an_error_until_taken(write):
    p = weights((100,))
    optimizer = ot.AdamW([("w", p[0])], lr=1e-2)
    give(p)
    optimizer.step()
    with torch.no_grad():
        write(p[0])
    give(p, 1)
    with pytest.raises(outboard.ProtocolError, match="'w' was written by others.*weights_changed"):
        optimizer.step()
    optimizer.weights_changed()
    assert torch.equal(optimizer.master(p[0]), torch.ones(100))
    optimizer.step()
    assert optimizer.steps_applied == 2


def test_what_was_written_and_is_the_same_is_no_change():
    p = weights((100,), dtype=torch.bfloat16)
    optimizer = ot.AdamW(p)
    give(p)
    optimizer.step()
    with torch.no_grad():
        p[0].copy_(p[0].clone())
    give(p, 1)
    optimizer.step()
    assert optimizer.steps_applied == 2


def test_the_version_counter_moves_at_each_refresh():
    p = weights((100,))
    optimizer = ot.AdamW(p)
    loss = (p[0] * p[0]).sum()
    give(p)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# --- clipping and scaling ---------------------------------------------------------------------------


@pytest.mark.parametrize("clip", ["torch", "ours", "constructor"])
def test_clipping_by_torch_and_by_us_is_the_same_and_applied_once(clip):
    p = [torch.nn.Parameter(torch.zeros(2))]
    optimizer = ot.SGD(p, lr=1.0, **({"max_grad_norm": 1.0} if clip == "constructor" else {}))
    p[0].grad = torch.tensor([3.0, 4.0])
    if clip == "torch":
        norm = torch.nn.utils.clip_grad_norm_(p, 1.0)
    elif clip == "ours":
        norm = optimizer.clip_grad_norm_(1.0)
    optimizer.step()
    if clip == "constructor":
        norm = torch.tensor(optimizer.last_result.grad_norm)
    assert norm.item() == 5.0
    torch.testing.assert_close(p[0].detach(), torch.tensor([-0.6, -0.8]), rtol=1e-5, atol=1e-6)
    p[0].grad = torch.tensor([3.0, 4.0])
    optimizer.step()
    if clip != "constructor":  # for one step only
        torch.testing.assert_close(p[0].detach(), torch.tensor([-3.6, -4.8]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("unscale", [False, True])
def test_torchs_grad_scaler_works(unscale):
    def run(make):
        p = weights((64,))
        optimizer = make(p, lr=1e-2)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
        skipped = []
        for i in range(8):
            factor = torch.inf if i in (1, 3) else 1.0
            scaler.scale((p[0] * torch.linspace(-1, 1, 64) * factor).sum()).backward()
            if unscale:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(p, 0.5)
            scaler.step(optimizer)
            scaler.update()
            skipped.append(getattr(optimizer, "last_step_skipped", None))
            optimizer.zero_grad()
        return p[0].detach(), scaler.get_scale(), skipped, optimizer

    ours, scale, skipped, optimizer = run(ot.AdamW)
    theirs, stock_scale, _, _ = run(torch.optim.AdamW)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    assert scale == stock_scale
    assert skipped == [False, True, False, True, False, False, False, False]
    assert (optimizer.steps_applied, optimizer.steps_skipped) == (6, 2)


def test_a_schedule_can_follow_applied_steps_only():
    p = weights((10,), dtype=torch.float16)
    optimizer = ot.AdamW(p, lr=1e-2, loss_scaler=ot.LossScaler(init_scale=1024.0))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 1 / (i + 1))
    for call in range(1, 7):
        give(p, call)
        if call in (1, 3):
            p[0].grad[3] = torch.inf
        optimizer.step()
        assert optimizer.last_step_skipped == (call in (1, 3))
        if not optimizer.last_step_skipped:
            scheduler.step()
    assert scheduler.last_epoch == 4
    assert (optimizer.stats()["steps_applied"], optimizer.stats()["steps_skipped"]) == (4, 2)
    assert optimizer.loss_scale == 256.0


def test_a_gradient_that_is_not_finite_is_named(caplog):
    p = weights((20,), (30,), dtype=torch.bfloat16)
    optimizer = ot.AdamW([("a", p[0]), ("b", p[1])])
    give(p)
    p[1].grad[7] = torch.nan
    before = [one.detach().clone() for one in p]
    with caplog.at_level("WARNING", "outboard"):
        optimizer.step()
    assert optimizer.last_result.non_finite == {"name": "b", "element": 7, "count": 1, "is_nan": True}
    (line,) = [r.message for r in caplog.records if "skipped" in r.message]
    assert "'b'" in line and "NaN at element 7" in line and "step 1" in line and "scale" not in line
    assert all(torch.equal(a, b) for a, b in zip(before, p))


# --- life -----------------------------------------------------------------------------------------


def test_optimizers_give_everything_back():
    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def live():
        p = [torch.nn.Parameter(torch.zeros(1_000_000))]
        optimizer = ot.AdamW(p)
        p[0].grad = torch.ones(1_000_000)
        optimizer.step()

    for _ in range(3):
        live()
    gc.collect()
    before, threads = resident(), len(os.listdir("/proc/self/task"))
    for _ in range(15):
        live()
    gc.collect()
    assert resident() - before < 20 << 20
    assert len(os.listdir("/proc/self/task")) == threads


def test_the_layer_for_300_parameters_is_reported(record_property):
    p = weights(*[(10,)] * 300)
    optimizer = ot.AdamW(p)
    give(p)
    optimizer.step()
    native = optimizer._native
    ids = [b.index for b in optimizer._bindings.values()]
    addresses = [one.grad.data_ptr() for one in p]
    whole, engine = [], []
    for _ in range(10):
        start = time.perf_counter()
        optimizer.step()
        whole.append(time.perf_counter() - start)
        start = time.perf_counter()
        native.gradients_ready(ids, addresses)
        native.step()
        engine.append(time.perf_counter() - start)
        for b in optimizer._bindings.values():
            b.note()
    record_property("layer_ms", 1e3 * (min(whole) - min(engine)))
    print(f"300 parameters: {1e3 * min(whole):.2f} ms, of which the engine {1e3 * min(engine):.2f}")
    assert optimizer.stats()["steps_applied"] == 21
