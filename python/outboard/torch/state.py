# SPDX-License-Identifier: Apache-2.0
"""State dicts: torch's layout on the outside, the engine's FP32 streams inside."""
import collections
import contextlib
import copy
import warnings

import torch

from ..errors import BadCheckpoint

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
        for binding in optimizer._bindings.values():
            if native.step_count(binding.index) > 0:
                optimizer.state[binding.parameter] = _entry(binding, native)
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
    written = [binding.parameter for binding, _, _ in plans]
    if written:
        torch.autograd.graph.increment_version(written)
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


def loaded(optimizer, native):
    """After a native load(): what torch sees is what the engine has."""
    written = []
    for parameter, binding in optimizer._bindings.items():
        binding.refreshed()
        written.append(parameter)
        optimizer.state[parameter] = {"step": native.step_count(binding.index)}
    if written:
        torch.autograd.graph.increment_version(written)
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
    from .optimizer import OutboardOptimizer

    OutboardOptimizer.__init__(twin, groups, copy.deepcopy(optimizer.defaults, memo),
                               loss_scaler=scaler, names=names, rounding=optimizer._rounding.name,
                               seed=optimizer._seed,
                               intake="step" if optimizer._early is None else "backward",
                               **optimizer._settings)
    twin.load_state_dict(optimizer.state_dict())
    twin.steps_applied, twin.steps_skipped = optimizer.steps_applied, optimizer.steps_skipped
    return twin
