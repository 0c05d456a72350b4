# SPDX-License-Identifier: Apache-2.0
"""The base of all optimizers here: torch.optim.Optimizer on top, an engine below."""
import atexit
import contextlib
import os
import sys
import weakref

import torch
from torch.optim import Optimizer

from .. import _load, _settings
from ..errors import Error, InvalidArgument, InvalidConfig, ProtocolError
from . import state
from .binding import Binding, note_written, require_usable
from .intake import EarlyGradients, require_one_rank

_open = weakref.WeakSet()


@atexit.register
def _close_all():
    for optimizer in list(_open):
        if optimizer._process == os.getpid():
            optimizer.close()


def _number(value):
    return float(value)  # of a tensor too


class OutboardOptimizer(Optimizer):
    """An optimizer whose FP32 masters and moments are held and updated by an Outboard engine.

    Parameters are taken at the first step, or load_state_dict(), with the memory they have then;
    only those that require a gradient. A step blocks until the weights are refreshed, unless
    overlap() was called. Keyword arguments beside the hyper-parameters:
      max_grad_norm   clips the global norm in step(), in the same pass; 0: not
      loss_scaler     a LossScaler, for float16 weights
      accumulation    micro-batches whose gradients are in .grad, added up without division: 1
      names           a name for each parameter, where they are not given as named_parameters()
      rounding, seed  'stochastic' rounds masters to 16-bit weights at random, by this seed
      intake          'step': gradients are taken in step(); 'backward': as soon as backward has them
    and every setting of outboard.Engine.
    """

    # GradScaler leaves unscaling to step(), which gets `grad_scale` and `found_inf`.
    _step_supports_amp_scaling = True

    def __init__(self, params, defaults, *, loss_scaler=None, names=None, rounding="nearest",
                 seed=0, intake="step", **settings):
        settings.setdefault("schedule", "blocking")
        if settings["schedule"] == "open" or settings.get("accumulate") == "host":
            raise InvalidConfig("schedule='open' and accumulate='host' need gradients during "
                                "backward; use outboard.Engine for them")
        self._settings = dict(settings)
        self._rounding, self._seed = _load.choice("Rounding", rounding, "rounding"), seed
        self._scaler = loss_scaler
        self._max_grad_norm = settings.get("max_grad_norm", 0.0)
        self._names = list(names) if names is not None else None
        self._process, self._native = os.getpid(), None
        self._owner = id(self)  # not that of a wrapper which takes over __dict__ and class
        self._bindings = {}  # parameter -> Binding
        self._rules = {}  # by the engine's number of a group: as the engine has it
        self._waits = None
        if intake not in ("step", "backward"):
            raise InvalidConfig(f"intake is {intake!r}; there are 'step' and 'backward'")
        if intake == "backward":
            require_one_rank()
        self._early = None if intake == "step" else EarlyGradients(
            self, settings.get("accumulation", 1))
        self.last_result = None
        self.steps_applied = self.steps_skipped = 0
        self.last_step_skipped = False
        super().__init__(params, defaults)
        self._make_engine()

    def _make_engine(self, scaling=None):
        settings = dict(self._settings)
        if self._scaler is not None:
            settings["loss_scaling"] = scaling or self._scaler.settings
        self._native = _settings.make_engine(settings)
        if self._scaler is not None:
            self._scaler.attach(self)
        self._divisor = 1.0  # as the engine has it
        _open.add(self)

    # --- what a rule adds -------------------------------------------------------------------------

    kind = None  # the engine's name of the rule
    refused = {}  # options that must keep the value they have in torch by default, by name

    def _values(self, group):
        """The rule's hyper-parameters of a group, by the engine's names."""
        raise NotImplementedError

    def _rule_of(self, group):
        for name, only in self.refused.items():
            if name in group and group[name] not in (only, None):
                raise InvalidConfig(f"{type(self).__name__}: {name}={group[name]!r} is not offered; "
                                    f"leave it {only!r}")
        values = self._values(group)
        _load.native().check_rule(self.kind, values)
        return values

    # --- groups -----------------------------------------------------------------------------------

    def add_param_group(self, param_group):
        """As torch's; a name is in every error about a parameter."""
        before, names = len(self.param_groups), dict(getattr(self, "_name_of", {}))
        self._refuse_non_leaves(param_group)
        super().add_param_group(param_group)
        try:
            group = self.param_groups[-1]
            self._rule_of(group)
            self._give_names(group)
            for name, parameter in zip(group["outboard_names"], group["params"]):
                require_usable(name, parameter)
            del group["outboard_names"]
        except BaseException:
            del self.param_groups[before:]
            self._name_of = names
            raise

    def _refuse_non_leaves(self, param_group):
        params = param_group.get("params", []) if isinstance(param_group, dict) else []
        if isinstance(params, (torch.Tensor, set)):
            return
        params = param_group["params"] = list(params)
        for i, one in enumerate(params):
            name, tensor = one if isinstance(one, tuple) else (f"#{i}", one)
            if isinstance(tensor, torch.Tensor) and not tensor.is_leaf:
                raise InvalidArgument(f"parameter {name!r} is the result of an operation and no leaf; "
                                      "can't optimize a non-leaf Tensor: give the parameter itself")

    def _give_names(self, group):
        known = getattr(self, "_name_of", None)
        if known is None:
            known = self._name_of = {}
        names = group.get("param_names")
        if names is None:
            at = len(self.param_groups) - 1
            while any(one.startswith(f"group{at}.") for one in known.values()):
                at += 1  # groups were removed before this one came
            taken, count = self._names, len(known)
            names = [taken[count + i] if taken and count + i < len(taken) else f"group{at}.{i}"
                     for i in range(len(group["params"]))]
        group["outboard_names"] = names
        for name, parameter in zip(names, group["params"]):
            known.setdefault(parameter, name)

    # --- binding ----------------------------------------------------------------------------------

    def _engine(self):
        if self._native is None or self._native.closed:
            raise ProtocolError("this optimizer is closed; make another one")
        return self._native

    def _bind(self, wanted):
        """Takes in those parameters that the engine has not yet, in the order of the groups."""
        native = self._engine()
        self._sync_groups()
        added = []
        for group, number in self._numbered():
            for parameter in group["params"]:
                if parameter in self._bindings or not wanted(parameter):
                    continue
                if number is None:
                    number = self._add_group(group)
                binding = Binding(self._name_of[parameter], parameter, self._rounding.name)
                binding.add_to(native, number)
                self._require_own_memory(binding, added)
                added.append(binding)
                self._bindings[parameter] = binding
        if added:
            native.commit()
            for binding in added:
                binding.note()
            if self._early is not None:
                self._early.watch(added)

    def _require_own_memory(self, binding, added):
        for other in (*self._bindings.values(), *added):
            if other.index == binding.index:
                raise InvalidArgument(
                    f"parameters {other.name!r} and {binding.name!r} are two Parameters over the same "
                    "memory; tie weights by using one Parameter in both places")

    def _sync_groups(self):
        """Hyper-parameters as they are now, where they are others than the engine has."""
        native = self._engine()
        for group, number in self._numbered():
            values = self._rule_of(group)
            if number is not None and values != self._rules.get(number):
                native.set_group(number, self.kind, values)
                self._rules[number] = values

    def _add_group(self, group):
        values = self._rule_of(group)
        number = self._engine().add_group(self.kind, values, self._rounding, self._seed, None)
        self._rules[number] = values
        return number

    def _numbered(self):
        """(group, its number in the engine, None before it has one) of all. Parameters that were
        taken together stay so, wherever in param_groups their group is."""
        numbered, first = [], {}  # of a number: its first parameter, and where that is
        for at, group in enumerate(self.param_groups):
            number = None
            for parameter in group["params"]:
                binding = self._bindings.get(parameter)
                if binding is None:
                    continue
                known, place = first.setdefault(binding.group, (binding.name, at))
                if place != at:
                    self._refuse_regrouping(binding.name, f"{known!r}, of its old group, is not there")
                if number not in (None, binding.group):
                    self._refuse_regrouping(binding.name, f"{first[number][0]!r} is of another group")
                number = binding.group
            numbered.append((group, number))
        return numbered

    def _refuse_regrouping(self, name, why):
        raise ProtocolError(f"parameter {name!r} is not in the group that this optimizer took it with: "
                            f"{why}; put it back, or make another optimizer")

    # --- each step --------------------------------------------------------------------------------

    def step(self, closure=None):
        """One step with the gradients in .grad; returns what `closure` returned.

        What came of it is in `last_result`, None where no parameter had a gradient.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            self._step()
        return loss

    def _step(self):
        native = self._engine()
        self._require_early_right()
        pairs = [(p, p.grad) for group in self.param_groups for p in group["params"]
                 if p.grad is not None]
        divisor, overflow = self._grad_scaler()
        self.last_result = None
        self.last_step_skipped = overflow
        if overflow:
            self.steps_skipped += 1
        if overflow or not pairs:
            native.set_max_grad_norm(self._max_grad_norm)  # clip_grad_norm_() was for this step
            return
        left = self._not_given_yet(pairs, divisor)
        self._bind(lambda p: p.requires_grad or p.grad is not None)
        self._sync_groups()
        ids, addresses, kept = [], [], []
        for parameter, grad in left:
            binding = self._bindings[parameter]
            if binding.moved():
                binding.settle(native)
            grad = binding.gradient(grad)
            kept.append(grad)
            ids.append(binding.index)
            addresses.append(grad.data_ptr())
        if divisor != self._divisor:
            native.set_gradient_divisor(divisor)
            self._divisor = divisor
        try:
            native.gradients_ready(ids, addresses)
            result = native.step()
        except BaseException:
            if self._early is not None:
                self._early.forget()
            raise
        self._conclude(result, [parameter for parameter, _ in pairs])
        del kept

    def _require_early_right(self):
        if self._early is None:
            return
        try:
            require_one_rank()
        except InvalidConfig:
            self._early.forget()
            raise

    def _not_given_yet(self, pairs, divisor):
        if self._early is None:
            return pairs
        new = any(parameter not in self._bindings for parameter, _ in pairs)
        moved = any(binding.moved() for binding in self._bindings.values())
        return self._early.left(pairs, keep=divisor == self._divisor and not new and not moved)

    def _conclude(self, result, parameters):
        self.last_result = result
        if self._early is not None:
            self._early.stepped()
        self.last_step_skipped = result.skipped
        self._native.set_max_grad_norm(self._max_grad_norm)
        if not result.applied:
            self.steps_skipped += 1
            return
        self.steps_applied += 1
        bindings = [self._bindings[parameter] for parameter in parameters]
        if self._waits is not None:
            self._waits.stepped(bindings)
        else:
            for binding in bindings:
                binding.refreshed()
        note_written(parameters)
        for binding in bindings:
            binding.note()
            held = self.state[binding.parameter]
            held["step"] = held.get("step", 0) + 1

    def _grad_scaler(self):
        """(what a torch GradScaler has multiplied gradients by, whether it found an overflow)."""
        scale = getattr(self, "grad_scale", None)
        found = getattr(self, "found_inf", None)
        if found is None and scale is None:
            return 1.0, False
        if self._scaler is not None:
            raise InvalidConfig("this optimizer has a LossScaler of its own and a torch GradScaler "
                                "calls it; use one of them")
        return (1.0 if scale is None else _number(scale)), found is not None and _number(found) > 0

    # --- clipping and scaling ---------------------------------------------------------------------

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm):
        """The global norm of the gradients in .grad, without loss scale; the next step() clips.

        As torch.nn.utils.clip_grad_norm_(), but .grad stays as it is: step() multiplies on the way.
        """
        grads = [p.grad for group in self.param_groups for p in group["params"]
                 if p.grad is not None]
        if any(p not in self._bindings for group in self.param_groups for p in group["params"]):
            self.synchronize()
            self._bind(lambda p: p.requires_grad or p.grad is not None)
        self._native.set_max_grad_norm(_number(max_norm))
        if not grads:
            return torch.zeros(())
        norms = [torch.linalg.vector_norm(grad, dtype=torch.float32) for grad in grads]
        made_with = self.loss_scale * self._settings.get("accumulation", 1)
        return torch.linalg.vector_norm(torch.stack(norms)) / made_with

    @property
    def loss_scale(self):
        """What the next loss is to be multiplied by; 1 without a LossScaler."""
        if self._scaler is None:
            return 1.0
        if not self._bindings:
            return self._scaler.settings.initial_scale
        return self._engine().loss_scale()

    @torch.no_grad()
    def _restart(self, scaling):
        """Another engine with this LossScaling, and the state of the one before."""
        self.synchronize()
        old, bindings = self._engine(), self._bindings
        for binding in bindings.values():
            if binding.moved():
                binding.settle(old)
        held = {p: (old.step_count(b.index), [(s, b.read(old, s)) for s in old.state_streams(b.index)])
                for p, b in bindings.items()}
        self._make_engine(scaling)  # where it refuses, the old one stays
        old.close()
        if self._early is not None:
            self._early.remove()
        self._bindings, self._rules = {}, {}
        if not held:
            return
        self._bind(lambda p: p in held)
        for parameter, binding in self._bindings.items():
            step, streams = held[parameter]
            self._native.write_state(binding.index, step, [(s, t.data_ptr()) for s, t in streams])
            binding.refreshed()
        note_written(self._bindings)
        for binding in self._bindings.values():
            binding.note()

    # --- between steps ----------------------------------------------------------------------------

    @torch.no_grad()
    def weights_changed(self, params=None):
        """Weights were written by others: their masters are made anew. None: all that were."""
        native = self._engine()
        self.synchronize()
        bindings = list(self._bindings.values()) if params is None else [
            self._bindings[p] for p in params if p in self._bindings]
        for binding in bindings:
            if params is not None or binding.moved():
                binding.take_changed(native)

    def synchronize(self):
        """Returns once all weights are as the last step made them. What reads or writes state does."""
        if self._early is not None:
            self._early.drop()
        if self._waits is not None:
            self._waits.wait_for_all()

    def state_digest(self):
        """64 bits of all state: equal ones mean equal bits."""
        self.synchronize()
        return self._engine().state_digest()

    def master(self, parameter):
        """A copy of a parameter's FP32 master."""
        self.synchronize()
        return self._bindings[parameter].read(self._engine(), "master")

    def save(self, folder, *, keep_last=1, entries=None):
        """A native checkpoint: crash-safe, checksummed, matched by name. docs/checkpoint_format.md"""
        self.synchronize()
        return self._engine().save(str(folder), keep_last, entries or {})

    @torch.no_grad()
    def load(self, folder, *, strict=True):
        """Loads the newest native checkpoint in `folder`: weights, state, and hyper-parameters, which
        param_groups have from then on."""
        self._bind(lambda p: p.requires_grad)
        self.synchronize()
        native = self._engine()
        report = native.load(str(folder), strict, False)
        state.loaded(self, native, report["folder"])
        return report

    def ledger(self):
        return self._engine().ledger()

    def stats(self):
        return self._engine().stats()

    def describe(self):
        return self._engine().describe()

    def close(self):
        """Waits for all work and gives the state's memory back. Weights stay as they are."""
        if self._native is not None and not self._native.closed:
            try:
                if self._early is not None:
                    self._early.remove()
                if self._waits is not None:
                    self._waits.remove()
            finally:
                self._native.close()
        self._bindings = {}

    def __del__(self):
        # Model, hooks and this may go as a cycle: the engine is to end before the weights do.
        if getattr(self, "_owner", None) != id(self) or sys.is_finalizing():
            return
        if self._process == os.getpid():
            with contextlib.suppress(Error):
                self.close()

    # --- state dicts ------------------------------------------------------------------------------

    def state_dict(self):
        """In torch's layout, with copies of the FP32 state: step, the rule's moments, master_param."""
        self.synchronize()
        with state.in_torch_layout(self):
            return super().state_dict()

    def load_state_dict(self, state_dict):
        """One of state_dict(), or of torch's optimizer of the same name. FP32 stays FP32."""
        self.synchronize()
        with state.kept_as_it_is(self, state_dict) as (held, finish):
            super().load_state_dict(held)
            finish()

    def __deepcopy__(self, memo):
        return state.deep_copy(self, memo)

    def __reduce_ex__(self, protocol):
        raise TypeError(f"{type(self).__name__} cannot be pickled: its state is an engine's. Save "
                        "state_dict(), or save() a native checkpoint")
