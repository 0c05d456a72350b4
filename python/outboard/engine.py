# SPDX-License-Identifier: Apache-2.0
"""Engines for NumPy arrays: weights and gradients stay where they are, the state is the engine's."""
import atexit
import contextlib
import os
import sys
import weakref

import numpy

from . import _load, _settings, rules
from .errors import Error, InvalidArgument, ProtocolError

_DTYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}
_ITEM_BYTES = {"f16": 2, "bf16": 2, "f32": 4}
_open_engines = weakref.WeakSet()


@atexit.register
def _close_all():
    for engine in list(_open_engines):
        if engine._process == os.getpid():
            engine.close()


class Parameter:
    """What add_parameter() returns. `array` is the weight, which the engine keeps fresh."""

    def __init__(self, engine, index, name, array, dtype):
        self._engine = weakref.ref(engine)
        self.index, self.name, self.array, self.dtype = index, name, array, dtype

    def __repr__(self):
        return f"<outboard.Parameter {self.name!r}, {self.dtype} of {self.array.shape}>"


def _dtype_of(array, dtype, who):
    known = _DTYPES.get(array.dtype.name)
    if dtype is None:
        if known is None or not array.dtype.isnative:
            raise InvalidArgument(
                f"{who} has dtype {array.dtype}; float32, float16 and bfloat16 (of ml_dtypes) can "
                "be, and uint16 with dtype='bf16' or 'f16'")
        return known
    if dtype not in _ITEM_BYTES:
        raise InvalidArgument(f"{who}: dtype is {dtype!r}; there are 'f16', 'bf16', 'f32'")
    raw = array.dtype == numpy.uint16 and dtype != "f32"
    if known != dtype and not raw:
        raise InvalidArgument(f"{who} has dtype {array.dtype} and is said to be {dtype!r}")
    return dtype


def _dense(array, who):
    if not isinstance(array, numpy.ndarray):
        raise InvalidArgument(f"{who} is a {type(array).__name__} and no numpy.ndarray")
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise InvalidArgument(f"{who} has gaps between its elements (strides {array.strides}); "
                              "give numpy.ascontiguousarray() of it")
    if not array.flags.aligned:
        raise InvalidArgument(f"{who} is not aligned to its elements")
    return array


class Engine:
    """FP32 optimizer state for weights in NumPy arrays.

    Settings are those of outboard::Config by name: schedule, placement, max_grad_norm, ...; the
    schedule is 'blocking' unless another is given: step() returns with the weights refreshed.
    `loss_scaling`: an outboard.LossScaling, or None for a fixed scale of 1.
    Every call may raise an outboard.Error. An engine is closed by close(), by `with`, or when
    nothing refers to it any more.
    """

    def __init__(self, **settings):
        settings.setdefault("schedule", "blocking")
        self._process = os.getpid()
        self._native = _settings.make_engine(settings)
        self._parameters = []
        self._pending = []
        _open_engines.add(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        # Collected with its arrays in a cycle, it is to end before they go.
        if hasattr(self, "_native") and self._process == os.getpid() and not sys.is_finalizing():
            with contextlib.suppress(Error):
                self.close()

    def close(self):
        """Waits for all work and gives everything back. Any later call but this one is an error."""
        self._native.close()
        self._parameters, self._pending = [], []

    @property
    def closed(self):
        return self._native.closed

    # --- set-up -----------------------------------------------------------------------------------

    def add_group(self, rule, *, rounding="nearest", seed=0, ema_decay=None):
        """A group of hyper-parameters; returns its number."""
        kind, values = rules.parts(rule)
        rounded = _load.choice("Rounding", rounding, "rounding")
        return self._native.add_group(kind, values, rounded, seed, ema_decay)

    def set_group(self, group, rule):
        """Other values of the same rule, from the next step() on."""
        self._native.set_group(group, *rules.parts(rule))

    def add_parameter(self, name, array, *, group=0, dtype=None, master=None):
        """A weight, in the order of first use. The engine writes into `array` from commit() on.

        `dtype`: 'bf16' or 'f16' for an array of uint16. `master`: float32 values to start from in
        place of the weight's own. A second name for the same memory returns the first parameter.
        """
        who = f"parameter {name!r}"
        kind = _dtype_of(_dense(array, who), dtype, who)
        if not array.flags.writeable:
            raise InvalidArgument(f"{who} cannot be written to")
        address = 0
        if master is not None:
            if not isinstance(master, numpy.ndarray) or master.dtype != numpy.float32:
                raise InvalidArgument(f"{who}: its master is no array of float32")
            if master.shape != array.shape or master.strides != tuple(
                    stride // array.itemsize * 4 for stride in array.strides):
                raise InvalidArgument(f"{who}: its master is not laid out as the weight is")
            address = master.ctypes.data
        index = self._native.add_parameter(name, _load.choice("DType", kind, "dtype"), array.size,
                                           array.ctypes.data, group, address)
        if index < len(self._parameters):
            return self._parameters[index]
        parameter = Parameter(self, index, name, array, kind)
        parameter._master = master  # read by commit()
        self._parameters.append(parameter)
        return parameter

    def commit(self):
        """Allocates all memory and takes the weights. Again: what was added since."""
        self._native.commit()
        for parameter in self._parameters:
            parameter._master = None

    # --- each step --------------------------------------------------------------------------------

    def gradient_ready(self, parameter, gradient):
        """The gradient, of the weight's dtype, shape and layout, times loss_scale.

        It is read until step() or discard() returns.
        """
        self._own(parameter)
        who = f"the gradient of {parameter.name!r}"
        kind = _dtype_of(_dense(gradient, who),
                         parameter.dtype if gradient.dtype == numpy.uint16 else None, who)
        weight = parameter.array
        if kind != parameter.dtype:
            raise InvalidArgument(f"{who} is {kind} and the weight {parameter.dtype}")
        if gradient.shape != weight.shape or gradient.strides != weight.strides:
            raise InvalidArgument(
                f"{who} has shape {gradient.shape}, strides {gradient.strides}; the weight has "
                f"{weight.shape}, {weight.strides}")
        self._native.gradients_ready([parameter.index], [gradient.ctypes.data])
        self._pending.append(gradient)

    def wait(self, parameter):
        """Returns once the weight is as the last step() made it. Needed with schedule='exact'."""
        self._native.wait(self._own(parameter))

    def step(self):
        """Decides on clipping and overflow, updates; returns a StepResult."""
        try:
            return self._native.step()
        finally:
            self._pending = []

    def discard(self):
        """Drops the gradients given since the last step()."""
        self._native.discard()
        self._pending = []

    @property
    def loss_scale(self):
        """What the next loss is to be multiplied by."""
        return self._native.loss_scale()

    def set_accumulation(self, micro_batches):
        self._native.set_accumulation(micro_batches)

    def set_max_grad_norm(self, limit):
        self._native.set_max_grad_norm(limit)

    def set_gradient_divisor(self, divisor):
        self._native.set_gradient_divisor(divisor)

    # --- between steps ----------------------------------------------------------------------------

    def weights_changed(self, parameter):
        """The weight was written by others: its master is read from it again."""
        self._native.weights_changed(self._own(parameter))

    def set_placement(self, placement, device_fraction=0.0):
        self._native.set_placement(_load.choice("Placement", placement, "placement"),
                                   device_fraction)

    def synchronize(self):
        self._native.synchronize()

    def state_digest(self):
        """64 bits of all state: equal ones mean equal bits."""
        return self._native.state_digest()

    def state_streams(self, parameter):
        return self._native.state_streams(self._own(parameter))

    def step_count(self, parameter):
        return self._native.step_count(self._own(parameter))

    def read_state(self, parameter, stream="master"):
        """A float32 copy of one stream, in the weight's shape and layout."""
        index = self._own(parameter)
        order = "C" if parameter.array.flags.c_contiguous else "F"
        out = numpy.zeros(parameter.array.shape, numpy.float32, order=order)
        self._native.read_state(index, stream, out.ctypes.data)
        return out

    def write_state(self, parameter, *, step_count=None, **streams):
        """Replaces streams (master=, exp_avg=, ...) and the step count; the weight follows."""
        index = self._own(parameter)
        order = "C" if parameter.array.flags.c_contiguous else "F"
        kept = []
        for name, values in streams.items():
            values = numpy.require(values, numpy.float32, [order, "A"])
            if values.shape != parameter.array.shape:
                raise InvalidArgument(f"{name} of {parameter.name!r} has shape {values.shape}; the "
                                      f"weight has {parameter.array.shape}")
            kept.append((name, values))
        self._native.write_state(index, step_count,
                                 [(name, values.ctypes.data) for name, values in kept])

    def save(self, folder, *, keep_last=1, entries=None):
        """One more checkpoint in `folder`; entries: any bytes of the trainer's own, by name."""
        return self._native.save(str(folder), keep_last, entries or {})

    def load(self, folder, *, strict=True, verify_first=False):
        """The newest checkpoint in `folder`; returns what was in it."""
        return self._native.load(str(folder), strict, verify_first)

    def stats(self):
        return self._native.stats()

    def ledger(self):
        return self._native.ledger()

    def describe(self):
        return self._native.describe()

    def _own(self, parameter):
        if not isinstance(parameter, Parameter):
            raise InvalidArgument(f"{parameter!r} is no parameter; use what add_parameter() gave")
        if parameter._engine() is not self:
            raise InvalidArgument(f"parameter {parameter.name!r} belongs to another engine")
        if self._native.closed:
            raise ProtocolError("the engine is closed; make another one")
        return parameter.index
