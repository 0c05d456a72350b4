# SPDX-License-Identifier: Apache-2.0
"""What ties one torch parameter to one parameter of an engine: its memory, and whether others wrote it."""
import torch

from .. import _load
from ..errors import InvalidArgument, ProtocolError, Unsupported

KINDS = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}


def require_usable(name, parameter):
    """Refuses what no engine of this build can train."""
    who = f"parameter {name!r}"
    if parameter.dtype not in KINDS:
        raise InvalidArgument(f"{who} has dtype {parameter.dtype}; float16, bfloat16 and float32 "
                              "can be trained")
    if parameter.device.type != "cpu":
        raise Unsupported(f"{who} is on {parameter.device}; this build has weights on the CPU only")
    if parameter.layout != torch.strided or parameter.is_inference():
        raise Unsupported(f"{who} is sparse, or was made in inference mode")


def note_written(parameters):
    """Autograd's version of each moves. One by one: older torch takes no list."""
    for parameter in parameters:
        torch.autograd.graph.increment_version(parameter)


def is_dense(tensor):
    """Whether its elements fill a range of memory without gaps, in whatever order."""
    return torch.ops.aten.is_non_overlapping_and_dense(tensor)


def strides_of(parameter):
    """Those of the dense tensors that are laid out as the parameter is."""
    if is_dense(parameter):
        return parameter.stride()
    return torch.empty(parameter.shape).stride()


class Binding:
    """A parameter and its number in the engine. Its address is looked at again before each step.

    A parameter with gaps between its elements has a dense twin, `shadow`, that the engine works on.
    """

    def __init__(self, name, parameter, rounding):
        require_usable(name, parameter)
        self.name, self.parameter = name, parameter
        self.dtype, self.shape = parameter.dtype, parameter.shape
        self.strides = strides_of(parameter)
        # A weight that was rounded at random cannot be told from one that others wrote.
        self.comparable = rounding == "nearest" or self.dtype == torch.float32
        self.shadow = None
        if not is_dense(parameter):
            self.shadow = torch.empty_strided(self.shape, self.strides, dtype=self.dtype)
            self.shadow.copy_(parameter.detach())
        self.index = self.group = None
        self.note()

    def note(self):
        """From now on the weight is as the engine has it."""
        self.address = self.parameter.data_ptr()
        self.version = self.parameter._version

    def memory(self):
        """The tensor that the engine reads and writes."""
        return self.parameter if self.shadow is None else self.shadow

    def add_to(self, native, group):
        memory = self.memory()
        self.group = group
        self.index = native.add_parameter(self.name, _load.choice("DType", KINDS[self.dtype], "dtype"),
                                          memory.numel(), memory.data_ptr(), group, 0)

    def empty(self):
        """A float32 tensor for one stream of its state."""
        return torch.empty_strided(self.shape, self.strides, dtype=torch.float32)

    def dense(self, values):
        """`values` as float32, laid out as the state is."""
        if (values.dtype == torch.float32 and values.device.type == "cpu" and
                values.stride() == self.strides):
            return values.detach()
        return self.empty().copy_(values.detach())

    def read(self, native, stream):
        out = self.empty()
        native.read_state(self.index, stream, out.data_ptr())
        return out

    # --- each step --------------------------------------------------------------------------------

    def gradient(self, grad):
        """The gradient as the engine takes it: of the weight's dtype and layout. Not copied if so."""
        who = f"the gradient of {self.name!r}"
        if grad.layout != torch.strided:
            raise Unsupported(f"{who} is sparse; make the embedding with sparse=False")
        if grad.dtype != self.dtype or grad.device.type != "cpu":
            raise InvalidArgument(f"{who} is {grad.dtype} on {grad.device}, the weight {self.dtype} "
                                  "on cpu; both are to be alike")
        if grad.stride() == self.strides or grad.numel() <= 1:
            return grad
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype).copy_(grad)

    def moved(self):
        """Whether it lies elsewhere, or was written by others, since note()."""
        return (self.parameter.data_ptr() != self.address or
                self.parameter._version != self.version)

    def settle(self, native):
        """After moved(): takes the new place, if the values are what the engine made of them."""
        parameter = self.parameter
        if parameter.dtype != self.dtype or parameter.shape != self.shape:
            raise ProtocolError(
                f"parameter {self.name!r} was {self.dtype} {tuple(self.shape)} when this optimizer "
                f"took it, and is {parameter.dtype} {tuple(parameter.shape)} now; convert the model "
                "before the first step, or make another optimizer")
        require_usable(self.name, parameter)
        if self.shadow is None and strides_of(parameter) != self.strides:
            raise ProtocolError(f"parameter {self.name!r} has other strides than when this optimizer "
                                "took it; change the memory format before the first step")
        if not self._as_left(native):
            raise ProtocolError(
                f"parameter {self.name!r} was written by others since this optimizer's last step, "
                "and its FP32 master was not. Call weights_changed() of the optimizer if the new "
                "values are to be trained; otherwise write the old ones back")
        self._rebind(native)

    def _as_left(self, native):
        return self.comparable and torch.equal(self.read(native, "master").to(self.dtype),
                                               self.parameter.detach())

    def _rebind(self, native):
        if self.shadow is None and self.parameter.data_ptr() != self.address:
            native.rebind(self.index, self.parameter.data_ptr())
        self.note()

    def take_changed(self, native):
        """The weight's values, whoever wrote them, become the master's."""
        if self.shadow is not None:
            self.shadow.copy_(self.parameter.detach())
        self._rebind(native)
        native.weights_changed(self.index)

    def refreshed(self):
        """After a step: a parameter with gaps gets its values."""
        if self.shadow is not None:
            self.parameter.detach().copy_(self.shadow)
