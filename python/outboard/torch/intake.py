# SPDX-License-Identifier: Apache-2.0
"""Gradients taken while backward still runs; what is written over afterwards is taken again."""
import contextlib
import weakref

import torch

from ..errors import Error, InvalidConfig


def require_one_rank():
    """Collectives change gradients behind autograd's back, after they were taken."""
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    if there and torch.distributed.get_world_size() > 1:
        raise InvalidConfig(
            f"intake='backward' with the {torch.distributed.get_world_size()} ranks of "
            "torch.distributed: what they reduce would be taken before it is reduced; make the "
            "optimizer with intake='step'")


class EarlyGradients:
    """Gives a gradient to the engine as soon as autograd has added it up.

    `.grad` stays. A gradient that changes after that (another micro-batch, clipping, zeroing, a
    hook that fires again in re-entrant checkpointing) makes step() drop what was given and take all
    gradients as they are then: slower, and right. `dropped` counts how often. A change that autograd
    does not count, through `.data` or by a collective, is not seen: require_one_rank() is asked
    before every step, and `.data` of a gradient is the trainer's to leave alone.
    """

    def __init__(self, optimizer, accumulation):
        self._optimizer = optimizer
        self._accumulation = accumulation
        self._fired = {}  # parameter -> times since the last step
        self._given = {}  # parameter -> (gradient, its version, what the engine reads)
        self._handles = {}
        self.dropped = 0

    def watch(self, bindings):
        # A weight's hooks are out of sight of the collector of cycles: they must not hold this.
        own = weakref.WeakMethod(self._take)

        def taker(parameter):
            take = own()
            if take is not None:
                take(parameter)

        for binding in bindings:
            hook = binding.parameter.register_post_accumulate_grad_hook(taker)
            self._handles[binding.parameter] = hook

    def _take(self, parameter):
        count = self._fired[parameter] = self._fired.get(parameter, 0) + 1
        if parameter in self._given:  # autograd has added to what the engine may be reading
            self.drop()
        binding = self._optimizer._bindings.get(parameter)
        if count < self._accumulation or binding is None or binding.moved():
            return
        self._give(binding, parameter.grad)

    def _give(self, binding, grad):
        taken = binding.gradient(grad)
        try:
            self._optimizer._engine().gradients_ready([binding.index], [taken.data_ptr()])
        except BaseException:
            self.forget()
            raise
        self._given[binding.parameter] = (grad, grad._version, taken)

    def drop(self):
        """Nothing has been given from here on."""
        if self._given:
            try:
                self._optimizer._engine().discard()
            finally:
                self._given.clear()
            self.dropped += 1

    def forget(self):
        """drop(), after a failure that is thrown in any case."""
        with contextlib.suppress(Error):
            self.drop()

    def left(self, pairs, *, keep):
        """Those of (parameter, gradient) that step() still has to give."""
        gradients = dict(pairs)
        same = keep and all(
            gradients.get(parameter) is grad and grad._version == version
            for parameter, (grad, version, _) in self._given.items())
        if not same:
            self.drop()
        return [(p, grad) for p, grad in pairs if p not in self._given]

    def stepped(self):
        self._given.clear()
        self._fired.clear()

    def remove(self):
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()
        self._given.clear()
