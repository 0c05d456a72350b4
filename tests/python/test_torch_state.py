# SPDX-License-Identifier: Apache-2.0
"""State dicts of outboard.torch: round trips, torch's own optimizers, generic tools."""
import copy
import io
import warnings

import pytest
import torch

import outboard
import outboard.torch as ot

PAIRS = [
    (ot.AdamW, torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
    (ot.Adam, torch.optim.Adam, {"lr": 1e-2, "weight_decay": 0.01}),
    (ot.SGD, torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9, "nesterov": True}),
    (ot.SGD, torch.optim.SGD, {"lr": 1e-2, "weight_decay": 0.01}),
    (ot.Adagrad, torch.optim.Adagrad, {"lr": 1e-2, "lr_decay": 0.1}),
]
OURS = [ot.Adam, ot.SGD, ot.Adagrad, ot.LAMB, ot.Lion]


def model(dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(9, 33), torch.nn.GELU(), torch.nn.Linear(33, 5))
    return net.to(dtype)


def gradients(net, seed):
    """The same ones for every net of that shape; no backward, so that nothing but steps differs."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in net.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


def steps(net, optimizer, first, count):
    for i in range(first, first + count):
        gradients(net, i)
        optimizer.step()


def assert_same(a, b, rtol=0.0):
    for x, y in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("ours, stock, settings", PAIRS)
def test_goes_on_in_torchs_optimizer_and_back(ours, stock, settings):
    nets = [model(), model()]
    mine, theirs = ours(nets[0].parameters(), **settings), stock(nets[1].parameters(), **settings)
    steps(nets[0], mine, 0, 5)
    steps(nets[1], theirs, 0, 5)
    assert_same(*nets, rtol=1e-6)

    moved = [copy.deepcopy(nets[0]), copy.deepcopy(nets[1])]
    to_stock, to_mine = stock(moved[0].parameters(), **settings), ours(moved[1].parameters(), **settings)
    to_stock.load_state_dict(mine.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_mine.load_state_dict(theirs.state_dict())
    for net, optimizer in ((nets[0], mine), (moved[0], to_stock), (moved[1], to_mine)):
        steps(net, optimizer, 5, 5)
    assert_same(nets[0], moved[0], rtol=1e-6)
    assert_same(nets[0], moved[1], rtol=1e-6)


@pytest.mark.parametrize("ours, dtype, before", [
    *((ot.AdamW, dtype, before) for dtype in (torch.float32, torch.bfloat16, torch.float16)
      for before in (0, 1, 3)),
    *((ours, torch.bfloat16, 3) for ours in OURS),
])
def test_goes_on_with_the_same_bits_after_torch_save(ours, dtype, before):
    net = model(dtype)
    optimizer = ours(net.parameters())
    steps(net, optimizer, 0, before)
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    twin = copy.deepcopy((net, optimizer))
    steps(*twin, 7, 2)
    for order in ("net first", "optimizer first"):
        other = model(dtype, seed=1)
        loaded = ours(other.parameters())
        if order == "net first":
            other.load_state_dict(saved["net"])
        loaded.load_state_dict(saved["optimizer"])
        if order == "optimizer first":
            other.load_state_dict(saved["net"])
            if before == 0:
                loaded.weights_changed()
        steps(other, loaded, 7, 2)
        assert loaded.state_digest() == twin[1].state_digest()
        assert_same(other, twin[0])


@pytest.mark.parametrize("count", [0, 1, 5])
def test_state_dicts_survive_generic_tools(count):
    net = model(torch.bfloat16)
    optimizer = ot.AdamW(net.parameters())
    steps(net, optimizer, 0, count)
    saved = optimizer.state_dict()

    def walk(value, use):
        if isinstance(value, torch.Tensor):
            return use(value)
        if isinstance(value, dict):
            return {k: walk(v, use) for k, v in value.items()}
        return type(value)(walk(v, use) for v in value) if isinstance(value, (list, tuple)) else value

    for use in (torch.Tensor.cpu, torch.clone, lambda t: t.to("cpu", copy=True),
                lambda t: t.contiguous().view(-1).view(t.shape)):
        twin_net = copy.deepcopy(net)
        twin = ot.AdamW(twin_net.parameters())
        twin.load_state_dict(walk(copy.deepcopy(saved), use))
        check_net, check = copy.deepcopy((net, optimizer))
        steps(twin_net, twin, 9, 2)
        steps(check_net, check, 9, 2)
        assert twin.state_digest() == check.state_digest()


def test_the_layout_is_torchs_and_state_is_fp32():
    net = model(torch.bfloat16)
    optimizer = ot.AdamW(net.parameters())
    steps(net, optimizer, 0, 2)
    saved = optimizer.state_dict()
    assert list(saved) == ["state", "param_groups"] and list(saved["state"]) == [0, 1, 2, 3]
    for entry, parameter in zip(saved["state"].values(), net.parameters(), strict=True):
        assert set(entry) == {"step", "exp_avg", "exp_avg_sq", "master_param"}
        assert entry["step"] == 2 and entry["step"].dtype == torch.float32
        assert {entry[k].dtype for k in entry} == {torch.float32}
        assert entry["exp_avg"].shape == parameter.shape
        assert torch.equal(entry["master_param"].bfloat16(), parameter.detach())
    held = sum(t.numel() for one in optimizer.state.values() for t in one.values()
               if isinstance(t, torch.Tensor))
    assert held == 0


@pytest.mark.parametrize("form", ["int", "0-d", "group", "missing"])
def test_the_step_is_taken_in_whatever_form(form):
    net = model()
    stock = torch.optim.AdamW(net.parameters())
    steps(net, stock, 0, 5)
    saved = stock.state_dict()
    for entry in saved["state"].values():
        if form == "int":
            entry["step"] = 5
        elif form != "0-d":
            del entry["step"]
    if form == "group":
        saved["param_groups"][0]["step"] = 5
    names = [name for name, _ in net.named_parameters()]
    optimizer = ot.AdamW(net.parameters(), names=names)
    if form == "missing":
        with pytest.raises(outboard.BadCheckpoint, match="'0.weight'.*no step"):
            optimizer.load_state_dict(saved)
        return
    optimizer.load_state_dict(saved)
    twin = model()
    steps(twin, reference := torch.optim.AdamW(twin.parameters()), 0, 5)
    steps(net, optimizer, 5, 3)
    steps(twin, reference, 5, 3)
    assert_same(net, twin, rtol=1e-6)


def test_what_does_not_fit_is_refused_and_leaves_everything():
    net = model()
    optimizer = ot.AdamW(net.parameters(), lr=1e-2)
    steps(net, optimizer, 0, 2)
    digest, weights = optimizer.state_digest(), copy.deepcopy(net)

    def damaged(change):
        saved = copy.deepcopy(optimizer.state_dict())
        saved["param_groups"][0]["lr"] = 5.0
        change(saved)
        return saved

    def set_in(key, value):
        return lambda saved: saved["state"][2].__setitem__(key, value)

    bad = [
        (set_in("exp_avg", torch.zeros(3)), "exp_avg .* has shape"),
        (set_in("exp_avg", torch.full((5, 33), torch.nan)), "not finite"),
        (set_in("max_exp_avg_sq", torch.zeros(5, 33)), "amsgrad"),
        (lambda saved: saved["state"][2].pop("exp_avg_sq"), "no exp_avg_sq"),
        (lambda saved: saved["param_groups"].append({"params": []}), "groups"),
        (lambda saved: saved["param_groups"][0]["params"].pop(), "size"),
        (lambda saved: saved["param_groups"][0].__setitem__("amsgrad", True), "amsgrad"),
        (lambda saved: saved["param_groups"][0].__setitem__("lr", -1.0), "lr"),
    ]
    for change, words in bad:
        with pytest.raises(ValueError if "group" in words or "size" in words else outboard.Error,
                           match=words):
            optimizer.load_state_dict(damaged(change))
        assert optimizer.param_groups[0]["lr"] == 1e-2
        assert optimizer.state_digest() == digest
        assert_same(net, weights)
    steps(net, optimizer, 2, 1)


def test_hooks_of_state_dicts_run_in_torchs_order():
    net = model()
    optimizer = ot.AdamW(net.parameters())
    steps(net, optimizer, 0, 1)
    calls = []
    optimizer.register_state_dict_pre_hook(lambda o: calls.append("save before"))
    optimizer.register_state_dict_post_hook(lambda o, s: {**s, "extra": 1})
    optimizer.register_load_state_dict_pre_hook(
        lambda o, s: {k: v for k, v in s.items() if k != "extra"})
    optimizer.register_load_state_dict_post_hook(lambda o: calls.append(
        f"loaded {next(iter(o.state.values()))['step']}"))
    saved = optimizer.state_dict()
    assert saved["extra"] == 1
    steps(net, optimizer, 1, 2)
    optimizer.load_state_dict(saved)
    assert calls == ["save before", "loaded 1"]


def test_deepcopy_of_both_is_independent_and_goes_on_alike():
    net = model(torch.float16)
    optimizer = ot.AdamW(net.parameters(), loss_scaler=ot.LossScaler(4.0), max_grad_norm=1.0)
    steps(net, optimizer, 0, 3)
    twin_net, twin = copy.deepcopy((net, optimizer))
    before = optimizer.state_digest()
    steps(twin_net, twin, 3, 2)
    assert optimizer.state_digest() == before
    steps(net, optimizer, 3, 2)
    assert_same(net, twin_net)
    with pytest.raises(TypeError, match="state_dict"):
        torch.save(optimizer, io.BytesIO())


def test_distributed_checkpoints_get_and_set(tmp_path):
    dcp = pytest.importorskip("torch.distributed.checkpoint.state_dict")
    net = model(torch.bfloat16)
    optimizer = ot.AdamW(net.parameters(), lr=1e-2)
    steps(net, optimizer, 0, 3)
    saved = dcp.get_optimizer_state_dict(net, optimizer)
    assert set(saved["state"]["0.weight"]) == {"step", "exp_avg", "exp_avg_sq", "master_param"}
    flat = dcp.get_optimizer_state_dict(
        net, optimizer, options=dcp.StateDictOptions(flatten_optimizer_state_dict=True))
    assert "state.0.weight.master_param" in flat
    twin_net = copy.deepcopy(net)
    twin = ot.AdamW(twin_net.parameters(), lr=1e-2)
    dcp.set_optimizer_state_dict(twin_net, twin, saved)
    steps(net, optimizer, 3, 2)
    steps(twin_net, twin, 3, 2)
    assert optimizer.state_digest() == twin.state_digest()


def test_native_checkpoints_match_by_name(tmp_path):
    net = model(torch.bfloat16)
    optimizer = ot.AdamW(list(net.named_parameters()), lr=1e-2)
    steps(net, optimizer, 0, 3)
    optimizer.save(tmp_path / "run", entries={"epoch": b"3"})
    other = model(torch.bfloat16, seed=1)
    loaded = ot.AdamW(list(other.named_parameters())[::-1], lr=1.0)
    assert loaded.load(tmp_path / "run")["entries"] == {"epoch": b"3"}
    assert_same(net, other)
    assert loaded.param_groups[0]["lr"] == 1e-2
    steps(net, optimizer, 3, 1)
    steps(other, loaded, 3, 1)
    assert_same(net, other)
    assert all(one["step"] == 4 for one in loaded.state.values())


def test_a_native_checkpoints_rates_are_those_of_param_groups(tmp_path):
    for kind, settings, others in (
            (ot.AdamW, {"betas": (0.8, 0.9), "weight_decay": 0.3}, {}),
            (ot.Adagrad, {"lr_decay": 0.1, "initial_accumulator_value": 0.2}, {}),
            (ot.SGD, {"momentum": 0.5}, {"momentum": 0.9})):
        folder = tmp_path / kind.__name__
        net, other = model(), model(seed=1)
        optimizer = kind(list(net.named_parameters()), lr=1e-2, **settings)
        steps(net, optimizer, 0, 2)
        optimizer.save(folder)
        rate = torch.tensor(0.5, dtype=torch.float64)
        loaded = kind(list(other.named_parameters()), lr=rate, **others)
        loaded.load(folder)
        group = loaded.param_groups[0]
        assert group["lr"] is rate and rate == 1e-2
        assert all(group[name] == value for name, value in settings.items())
        steps(net, optimizer, 2, 2)
        steps(other, loaded, 2, 2)
        assert_same(net, other)
        assert optimizer.state_digest() == loaded.state_digest()
        group["lr"] = optimizer.param_groups[0]["lr"] = 0.25
        steps(net, optimizer, 4, 1)
        steps(other, loaded, 4, 1)
        assert_same(net, other)


def loss_scaled(scale, **settings):
    net = model(torch.float16)
    scaler = ot.LossScaler(scale)
    return net, ot.AdamW(net.parameters(), lr=1e-2, loss_scaler=scaler, **settings), scaler


@pytest.mark.parametrize("scaler_first", [False, True])
@pytest.mark.parametrize("intake", ["step", "backward"])
def test_a_loss_scale_goes_on_by_state_dict_and_deepcopy(scaler_first, intake):
    net, optimizer, scaler = loss_scaled(64.0, intake=intake)
    steps(net, optimizer, 0, 2)
    next(net.parameters()).grad.fill_(torch.inf)
    optimizer.step()
    assert scaler.state_dict() == {"scale": 32.0}
    _, twin = copy.deepcopy((net, optimizer))
    assert twin.loss_scale == 32.0 and twin.state_digest() == optimizer.state_digest()

    other, resumed, other_scaler = loss_scaled(65536.0, intake=intake)
    other.load_state_dict(net.state_dict())
    for one in (other_scaler, resumed) if scaler_first else (resumed, other_scaler):
        one.load_state_dict((scaler if one is other_scaler else optimizer).state_dict())
    assert other_scaler.get_scale() == resumed.loss_scale == 32.0
    assert resumed.state_digest() == optimizer.state_digest()
    steps(net, optimizer, 2, 3)
    steps(other, resumed, 2, 3)
    assert_same(net, other)
    assert resumed.state_digest() == optimizer.state_digest()


def test_what_a_loss_scaler_cannot_take_is_named():
    net, optimizer, scaler = loss_scaled(64.0)
    steps(net, optimizer, 0, 1)
    digest = optimizer.state_digest()
    with pytest.raises(outboard.BadCheckpoint, match="'_growth_tracker'.*'growth_factor'"):
        scaler.load_state_dict({"scale": 2.0, "growth_factor": 2.0, "_growth_tracker": 3})
    with pytest.raises(outboard.BadCheckpoint, match="no 'scale'"):
        scaler.load_state_dict({})
    with pytest.raises(outboard.InvalidConfig):
        scaler.load_state_dict({"scale": -1.0})
    assert optimizer.state_digest() == digest and scaler.get_scale() == 64.0
    off = ot.LossScaler(enabled=False)
    off.load_state_dict({"scale": 8.0})
    assert off.settings.initial_scale == 1.0


def test_older_torch_moves_one_version_at_a_time(monkeypatch):
    newer = torch.autograd.graph.increment_version

    def older(tensor):
        assert isinstance(tensor, torch.Tensor)
        newer(tensor)

    monkeypatch.setattr(torch.autograd.graph, "increment_version", older)
    net = model()
    optimizer = ot.AdamW(net.parameters())
    steps(net, optimizer, 0, 1)
    before = [p._version for p in net.parameters()]
    optimizer.load_state_dict(optimizer.state_dict())
    assert all(p._version > v for p, v in zip(net.parameters(), before))
