# SPDX-License-Identifier: Apache-2.0
"""Loss scaling by the engine: overflow is found, and gradients are unscaled, in the step itself."""
import dataclasses

from .. import rules
from ..errors import BadCheckpoint, InvalidConfig, ProtocolError


class LossScaler:
    """Takes the place of torch.amp.GradScaler for one optimizer made with loss_scaler=this.

        scaler = LossScaler()
        optimizer = AdamW(model.parameters(), loss_scaler=scaler)
        scaler.scale(loss).backward()
        optimizer.step()            # or scaler.step(optimizer); scaler.update() does nothing

    An overflow skips the step and halves the scale; growth_interval clean steps double it.
    """

    def __init__(self, init_scale=65536.0, growth_interval=2000, min_scale=1.0,
                 max_scale=16777216.0, give_up_after=100, enabled=True):
        self.settings = rules.LossScaling(
            dynamic=enabled, initial_scale=init_scale if enabled else 1.0,
            growth_interval=growth_interval, min_scale=min_scale, max_scale=max_scale,
            give_up_after=give_up_after)
        self._optimizer = None

    def attach(self, optimizer):
        """Called by the optimizer that was made with it."""
        if self._optimizer is not None and self._optimizer is not optimizer:
            raise InvalidConfig("a LossScaler belongs to one optimizer; make one for each")
        self._optimizer = optimizer

    def __copy__(self):
        twin = object.__new__(type(self))
        twin.settings, twin._optimizer = self.settings, None
        if self._optimizer is not None:
            twin.settings = dataclasses.replace(self.settings, initial_scale=self.get_scale())
        return twin

    def _own(self):
        if self._optimizer is None:
            raise ProtocolError("this LossScaler belongs to no optimizer; give it to one as "
                                "loss_scaler=")
        return self._optimizer

    def is_enabled(self):
        return self.settings.dynamic

    def get_scale(self):
        return self._own().loss_scale

    def scale(self, loss):
        """The loss, or an iterable of them, times the scale."""
        if isinstance(loss, (list, tuple)):
            return type(loss)(self.scale(one) for one in loss)
        return loss * self.get_scale()

    def step(self, optimizer, *args, **kwargs):
        if optimizer is not self._own():
            raise InvalidConfig("this LossScaler belongs to another optimizer")
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale=None):
        """Nothing: step() has done it."""
        if new_scale is not None:
            raise InvalidConfig("the scale is the engine's own; give init_scale= at first")

    def unscale_(self, optimizer):
        raise ProtocolError("gradients are unscaled inside step() and .grad stays scaled; clip by "
                            "max_grad_norm= or clip_grad_norm_() of the optimizer")

    def state_dict(self):
        return {"scale": self.get_scale()}

    def load_state_dict(self, state_dict):
        """Goes on with the scale of a state_dict(); clean steps are counted anew from here.

        Once the optimizer has state (after load_state_dict() or a step) a copy of that is made for
        the moment. A scaler with enabled=False takes nothing, as torch's.
        """
        if not self.is_enabled():
            return
        others = sorted(set(state_dict) - {"scale"})
        if others:
            raise BadCheckpoint(f"load_state_dict() of a LossScaler: {', '.join(map(repr, others))} "
                                "cannot be taken: how the scale moves is what the LossScaler was made "
                                "with, and clean steps are counted anew. Give {'scale': ...} alone")
        if "scale" not in state_dict:
            raise BadCheckpoint("load_state_dict() of a LossScaler: there is no 'scale'")
        scale = float(state_dict["scale"])
        settings = dataclasses.replace(self.settings, initial_scale=scale)
        if self._optimizer is not None and scale != self.get_scale():
            self._optimizer._restart(settings)
        self.settings = settings
