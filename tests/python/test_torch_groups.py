# SPDX-License-Identifier: Apache-2.0
"""Groups that are removed, moved and made anew, and limits that end with their step."""
import pytest
import torch

import outboard
import outboard.torch as ot


def weights(*shapes):
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]


def in_groups(count=3):
    p = weights(*[(4,)] * count)
    return p, ot.SGD([{"params": [one], "lr": 10.0**-i} for i, one in enumerate(p)])


def moved_by_one_step(p, optimizer):
    before = [one.detach().clone() for one in p]
    for one in p:
        one.grad = torch.ones_like(one)
    optimizer.step()
    return [round((b - a).mean().item(), 4) for a, b in zip(p, before)]


def test_a_group_keeps_its_values_wherever_it_is_in_param_groups():
    p, optimizer = in_groups()
    assert moved_by_one_step(p, optimizer) == [1.0, 0.1, 0.01]
    del optimizer.param_groups[0]
    assert moved_by_one_step(p, optimizer) == [0.0, 0.1, 0.01]
    optimizer.add_param_group({"params": weights((3,)), "lr": 0.5})
    late = optimizer.param_groups[-1]["params"]
    assert moved_by_one_step([*p, *late], optimizer) == [0.0, 0.1, 0.01, 0.5]
    optimizer.param_groups.reverse()
    optimizer.load_state_dict(optimizer.state_dict())
    assert moved_by_one_step([*p, *late], optimizer) == [0.0, 0.1, 0.01, 0.5]
    optimizer.param_groups.clear()
    for one, rate in zip(p, (0.3, 0.2, 0.1)):
        optimizer.add_param_group({"params": [one], "lr": rate})
    assert moved_by_one_step([*p, *late], optimizer) == [0.3, 0.2, 0.1, 0.0]


def test_a_parameter_that_changes_its_group_is_named():
    p = weights((4,), (4,), (4,))
    optimizer = ot.SGD([{"params": p[:2]}, {"params": p[2:], "lr": 1.0}], names=["a", "b", "c"])
    moved_by_one_step(p, optimizer)
    first, second = optimizer.param_groups
    first["params"], second["params"] = p[:1], p[:0:-1]
    for one in p:
        one.grad = torch.ones_like(one)
    before = [one.detach().clone() for one in p]
    with pytest.raises(outboard.ProtocolError, match="'b'.*'a'"):
        optimizer.step()
    first["params"] = []
    with pytest.raises(outboard.ProtocolError, match="'b'.*'c'"):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(p, before))
    first["params"], second["params"] = p[:2], p[2:]
    assert moved_by_one_step(p, optimizer) == [0.001, 0.001, 1.0]


@pytest.mark.parametrize("nothing", ["overflow", "no gradient"])
def test_a_limit_is_for_one_step_also_where_that_does_nothing(nothing):
    p = weights((4,))
    optimizer = ot.SGD(p, lr=1.0)
    p[0].grad = torch.ones(4)
    optimizer.clip_grad_norm_(1e-3)
    if nothing == "overflow":
        optimizer.found_inf = torch.tensor(1.0)
    else:
        p[0].grad = None
    optimizer.step()
    optimizer.found_inf = None
    assert moved_by_one_step(p, optimizer) == [1.0]
