# SPDX-License-Identifier: Apache-2.0
"""Broken training loops, one for each mistake: each is named, and nothing changes or crashes."""
import copy
import gc

import pytest
import torch

import outboard
import outboard.torch as ot


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2)).to(dtype)


def backward(model, optimizer=None):
    model(torch.ones(3, 4, dtype=next(model.parameters()).dtype)).float().square().mean().backward()


def named(model, **settings):
    return ot.AdamW(list(model.named_parameters()), **settings)


@pytest.mark.parametrize("settings, words", [
    ({"lr": -1.0}, "lr"),
    ({"betas": (1.0, 0.999)}, "beta1"),
    ({"eps": 0.0}, "eps"),
    ({"weight_decay": -0.1}, "weight_decay"),
    ({"amsgrad": True}, "amsgrad"),
    ({"maximize": True}, "maximize"),
    ({"max_gradnorm": 1.0}, "did you mean 'max_grad_norm'"),
    ({"schedule": "open"}, "open"),
    ({"accumulate": "host"}, "accumulate"),
    ({"placement": "gpu"}, "placement"),
    ({"device_fraction": 2.0, "placement": "fraction"}, "device_fraction"),
])
def test_wrong_settings_are_one_error_of_the_constructor(settings, words):
    with pytest.raises(outboard.InvalidConfig, match=words):
        ot.AdamW(net().parameters(), **settings)


def test_an_adam_never_is_an_adamw():
    with pytest.raises(outboard.InvalidConfig, match="decoupled_weight_decay"):
        ot.Adam(net().parameters(), decoupled_weight_decay=True)


@pytest.mark.parametrize("parameter, words", [
    (lambda: torch.nn.Parameter(torch.zeros(3, dtype=torch.float64)), "float64"),
    (lambda: torch.zeros(3, dtype=torch.int32), "int32"),
    (lambda: torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64)), "complex64"),
    (lambda: torch.nn.Parameter(torch.zeros(3, device="meta")), "meta"),
    (lambda: torch.nn.Parameter(torch.zeros(3)) * 2, "no leaf"),
])
def test_parameters_that_cannot_be_trained_are_refused_by_name(parameter, words):
    with pytest.raises(outboard.Error, match=f"'strange'.*{words}"):
        ot.AdamW([("strange", parameter())])


def test_a_group_that_is_refused_leaves_no_trace():
    model = net()
    optimizer = ot.AdamW(model[0].parameters())
    with pytest.raises(outboard.InvalidConfig):
        optimizer.add_param_group({"params": model[2].parameters(), "lr": -1.0})
    assert len(optimizer.param_groups) == 1
    backward(model)
    optimizer.step()


def test_a_rate_that_turns_bad_is_refused_at_the_step():
    model = net()
    optimizer = named(model)
    backward(model)
    optimizer.step()
    digest = optimizer.state_digest()
    optimizer.param_groups[0]["lr"] = float("nan")
    with pytest.raises(outboard.InvalidConfig, match="lr"):
        optimizer.step()
    assert optimizer.state_digest() == digest
    optimizer.param_groups[0]["lr"] = 1e-3
    optimizer.step()


def test_a_model_converted_after_the_first_step():
    model = net()
    optimizer = named(model)
    backward(model)
    optimizer.step()
    model.bfloat16()
    optimizer.zero_grad()
    backward(model)
    with pytest.raises(outboard.ProtocolError, match="'0.weight' was torch.float32.*bfloat16"):
        optimizer.step()


def test_a_gradient_of_another_dtype():
    p = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    optimizer = ot.AdamW([("w", p)])
    p.grad = torch.zeros(3, dtype=torch.bfloat16)
    optimizer.step()
    with pytest.raises((outboard.InvalidArgument, RuntimeError, TypeError)):
        p.grad = torch.zeros(3)
        optimizer.step()


def test_a_sparse_gradient():
    model = torch.nn.Embedding(10, 3, sparse=True)
    optimizer = named(model)
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(outboard.Unsupported, match="'weight' is sparse"):
        optimizer.step()


def test_two_parameters_over_the_same_memory():
    data = torch.zeros(10)
    a, b = torch.nn.Parameter(data), torch.nn.Parameter(data)
    optimizer = ot.AdamW([("a", a), ("b", b)])
    a.grad = b.grad = torch.ones(10)
    with pytest.raises(outboard.InvalidArgument, match="'a' and 'b' are two Parameters"):
        optimizer.step()


def test_two_parameters_that_overlap_in_part():
    data = torch.zeros(10)
    a, b = torch.nn.Parameter(data[:6]), torch.nn.Parameter(data[4:])
    optimizer = ot.AdamW([("a", a), ("b", b)])
    a.grad, b.grad = torch.ones(6), torch.ones(6)
    with pytest.raises(outboard.InvalidArgument, match="'b' overlaps"):
        optimizer.step()


def test_weights_that_are_not_finite():
    model = net()
    with torch.no_grad():
        model[0].weight[0, 0] = torch.inf
    optimizer = named(model)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    with pytest.raises(outboard.InvalidArgument, match="0.weight"):
        optimizer.step()


def test_a_step_after_close():
    model = net()
    optimizer = named(model)
    backward(model)
    optimizer.step()
    optimizer.close()
    optimizer.close()
    for call in (optimizer.step, optimizer.state_dict, optimizer.ledger):
        with pytest.raises(outboard.ProtocolError, match="closed"):
            call()


def test_unscaling_where_step_unscales():
    model = net(torch.float16)
    scaler = ot.LossScaler()
    optimizer = named(model, loss_scaler=scaler)
    with pytest.raises(outboard.ProtocolError, match="max_grad_norm"):
        scaler.unscale_(optimizer)


def test_two_scalers_at_once():
    model = net()
    optimizer = named(model, loss_scaler=ot.LossScaler())
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.ones(3, 4)).mean()).backward()
    with pytest.raises(outboard.InvalidConfig, match="one of them"):
        scaler.step(optimizer)


def test_a_scaler_of_another_optimizer():
    scaler = ot.LossScaler()
    named(net(), loss_scaler=scaler)
    with pytest.raises(outboard.InvalidConfig, match="belongs to one"):
        named(net(), loss_scaler=scaler)
    with pytest.raises(outboard.ProtocolError, match="loss_scaler="):
        ot.LossScaler().get_scale()


def test_a_loss_scale_that_never_settles_gives_up_and_names_the_tensor():
    model = net(torch.float16)
    optimizer = named(model, loss_scaler=ot.LossScaler(give_up_after=3))
    for p in model.parameters():
        p.grad = torch.full_like(p, torch.inf)
    optimizer.step()
    optimizer.step()
    with pytest.raises(outboard.Numerics, match="0.weight"):
        optimizer.step()


def test_a_second_engine_in_a_copy_of_the_optimizer_alone():
    model = net()
    optimizer = named(model)
    backward(model)
    optimizer.step()
    alone = copy.deepcopy(optimizer)  # its parameters are copies of their own, as torch's are
    before = copy.deepcopy(model)
    for p in alone.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    alone.step()
    for a, b in zip(model.parameters(), before.parameters()):
        assert torch.equal(a, b)


def test_a_wrapper_that_goes_does_not_close_the_optimizer():
    """As Lightning's: a subclass made on the fly, over the same __dict__."""
    model = torch.nn.Linear(4, 4)
    optimizer = ot.AdamW(model.parameters())
    wrapper = object.__new__(type("Wrapped", (type(optimizer),), {}))
    wrapper.__dict__ = dict(optimizer.__dict__)
    del wrapper
    gc.collect()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    assert optimizer.steps_applied == 1
