# SPDX-License-Identifier: Apache-2.0
"""State dicts: torch's layout on the outside, the engine's FP32 streams inside."""
import collections
import contextlib
import copy
import json
import pathlib
import warnings

import torch

from ..errors import BadCheckpoint
from .binding import note_written

MASTER = "master_param"
# Names in torch's layout by the engine's streams; both have the others alike.
_TO_TORCH = {"master": MASTER}
_OF_TORCH = {MASTER: "master"}
_STREAMS = {"exp_avg", "exp_avg_sq", "momentum_buffer", "sum", MASTER}


class _Held:
    """A parameter's entry that torch passes on untouched: it would make BF16 of FP32 moments."""

    def __init__(self, entry):
        self.entry = entry


def _entry(binding, native):
    """A copy of what a parameter has, in torch's layout; the step as torch counts it."""
    entry = {"step": torch.tensor(float(native.step_count(binding.index)))}
    for stream in native.state_streams(binding.index):
        if binding.parameter.numel() > 0 or stream != "ema":
            entry[_TO_TORCH.get(stream, stream)] = binding.read(native, stream)
    return entry


@contextlib.contextmanager
def in_torch_layout(optimizer):
    """Inside, optimizer.state has copies of all state that has been stepped."""
    native = optimizer._engine()
    own = optimizer.state
    optimizer.state = collections.defaultdict(dict)
    try:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                binding = optimizer._bindings.get(parameter)
                if binding is not None and native.step_count(binding.index) > 0:
                    optimizer.state[parameter] = _entry(binding, native)
        yield
    finally:
        optimizer.state = own


def _step_of(name, entry, group):
    """The step count: of any type, in the entry or (older torch) only in the group."""
    step = entry.get("step", group.get("step"))
    if step is not None:
        return int(step)
    if "momentum_buffer" in entry or not set(entry) & _STREAMS - {MASTER}:
        return 1 if entry.get("momentum_buffer") is not None else 0  # torch's SGD counts none
    raise BadCheckpoint(f"load_state_dict(): the state of {name!r} has no step, neither in its entry "
                        "nor in its group; without it the bias correction would begin anew")


def _check_entry(binding, entry, streams):
    """The tensors of an entry by the engine's streams, dense and FP32."""
    if entry.get("max_exp_avg_sq") is not None:
        raise BadCheckpoint(f"load_state_dict(): {binding.name!r} has max_exp_avg_sq: it was trained "
                            "with amsgrad, which is not offered")
    found = {}
    for key, value in entry.items():
        stream = _OF_TORCH.get(key, key)
        if key == "step" or value is None:
            continue
        if stream not in streams:
            warnings.warn(f"load_state_dict(): {key!r} of {binding.name!r} means nothing to this "
                          "optimizer and is left out", stacklevel=4)
            continue
        if value.shape != binding.shape:
            raise BadCheckpoint(f"load_state_dict(): {key} of {binding.name!r} has shape "
                                f"{tuple(value.shape)}; the parameter has {tuple(binding.shape)}")
        found[stream] = binding.dense(value)
        if not torch.isfinite(found[stream]).all():
            raise BadCheckpoint(f"load_state_dict(): {key} of {binding.name!r} is not finite")
    return found


def _plan_entry(binding, entry, group, native):
    """What is to be written for a parameter; {} in place of an entry makes it begin anew."""
    streams = native.state_streams(binding.index)
    step = _step_of(binding.name, entry, group) if entry else 0
    found = _check_entry(binding, entry, streams)
    for stream in streams:
        if stream in found:
            continue
        if stream == "master":  # stock optimizers have none: the weight is all there is
            found[stream] = binding.dense(binding.parameter)
        elif step == 0 or stream == "momentum_buffer":
            found[stream] = binding.empty().zero_()
        else:
            raise BadCheckpoint(f"load_state_dict(): the state of {binding.name!r} has no {stream}")
    return step, found


def _apply(optimizer):
    """Writes what torch has left in optimizer.state into the engine; all or nothing."""
    own = {p: one["held"].entry for p, one in optimizer.state.items() if "held" in one}
    optimizer._bind(lambda p: p.requires_grad or p in own)
    optimizer._sync_groups()
    native = optimizer._engine()
    plans = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            binding = optimizer._bindings.get(parameter)
            if binding is None:
                continue
            entry = own.get(parameter, {})
            if not entry and native.step_count(binding.index) == 0:
                continue
            plans.append((binding, *_plan_entry(binding, entry, group, native)))
    optimizer.state = collections.defaultdict(dict)
    for binding, step, found in plans:
        if binding.moved():
            binding.take_changed(native)
        native.write_state(binding.index, step, [(s, t.data_ptr()) for s, t in found.items()])
        binding.refreshed()
        if step > 0:
            optimizer.state[binding.parameter] = {"step": step}
    note_written(binding.parameter for binding, _, _ in plans)
    for binding, _, _ in plans:
        binding.note()


@contextlib.contextmanager
def kept_as_it_is(optimizer, state_dict):
    """Gives (a state dict that torch may load, a function for after that). Runs the hooks itself."""
    state_dict = dict(state_dict)
    for hook in optimizer._optimizer_load_state_dict_pre_hooks.values():
        state_dict = hook(optimizer, state_dict) or state_dict
    held = {**state_dict, "state": {k: {"held": _Held(entry)} if isinstance(entry, dict) else entry
                                    for k, entry in state_dict["state"].items()}}
    before = (optimizer._optimizer_load_state_dict_pre_hooks,
              optimizer._optimizer_load_state_dict_post_hooks,
              optimizer.state, optimizer.param_groups, optimizer.defaults)
    optimizer._optimizer_load_state_dict_pre_hooks = collections.OrderedDict()
    optimizer._optimizer_load_state_dict_post_hooks = collections.OrderedDict()

    def finish():
        with torch.no_grad():
            _apply(optimizer)

    try:
        yield held, finish
    except BaseException:
        optimizer.state, optimizer.param_groups, optimizer.defaults = before[2:]
        raise
    finally:
        optimizer._optimizer_load_state_dict_pre_hooks = before[0]
        optimizer._optimizer_load_state_dict_post_hooks = before[1]
    for hook in before[1].values():
        hook(optimizer)


def _saved_groups(folder):
    """Hyper-parameters in a native checkpoint, by the names of parameters: docs/checkpoint_format.md"""
    manifest = json.loads((pathlib.Path(folder) / "manifest.json").read_text("utf-8"))
    if manifest.get("imported"):
        return {}
    return {name: manifest["groups"][one["group"]] for one in manifest["parameters"]
            for name in one["names"]}


def _put(old, new):
    """A value in place of another; a tensor stays the one that a scheduler may hold."""
    return old.fill_(new) if isinstance(old, torch.Tensor) else new


def _put_values(group, saved):
    for key in group.keys() - {"params", "betas"}:
        name = {"initial_accumulator_value": "initial_accumulator"}.get(key, key)
        if name in saved:
            group[key] = _put(group[key], saved[name])
    if "betas" in group and "beta1" in saved:
        group["betas"] = tuple(map(_put, group["betas"], (saved["beta1"], saved["beta2"])))


def loaded(optimizer, native, folder):
    """After a native load(): what torch sees is what the engine has, hyper-parameters too."""
    saved = _saved_groups(folder)
    for group in optimizer.param_groups:
        names = (optimizer._bindings[p].name for p in group["params"] if p in optimizer._bindings)
        values = next((saved[name] for name in names if name in saved), {})
        if values.get("rule") == optimizer.kind:
            _put_values(group, values)
    optimizer._rules = {}  # what param_groups say is set again in any case
    for parameter, binding in optimizer._bindings.items():
        binding.refreshed()
        optimizer.state[parameter] = {"step": native.step_count(binding.index)}
    note_written(optimizer._bindings)
    for binding in optimizer._bindings.values():
        binding.note()


def deep_copy(optimizer, memo):
    """Another optimizer over copies of the parameters (those of `memo`, with the model's copy)."""
    optimizer.synchronize()
    groups = copy.deepcopy(optimizer.param_groups, memo)
    twin = object.__new__(type(optimizer))
    memo[id(optimizer)] = twin
    names = [optimizer._name_of[p] for group in optimizer.param_groups for p in group["params"]]
    scaler = copy.copy(optimizer._scaler)
    settings = dict(optimizer._settings)
    if settings["schedule"] == "exact":  # nobody waits for the twin's weights
        settings["schedule"] = "blocking"
    from .optimizer import OutboardOptimizer

    OutboardOptimizer.__init__(twin, groups, copy.deepcopy(optimizer.defaults, memo),
                               loss_scaler=scaler, names=names, rounding=optimizer._rounding.name,
                               seed=optimizer._seed,
                               intake="step" if optimizer._early is None else "backward",
                               **settings)
    twin.load_state_dict(optimizer.state_dict())
    twin.steps_applied, twin.steps_skipped = optimizer.steps_applied, optimizer.steps_skipped
    return twin
