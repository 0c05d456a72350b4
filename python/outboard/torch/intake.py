# SPDX-License-Identifier: Apache-2.0
"""Gradients taken while backward still runs; what is written over afterwards is taken again."""


class EarlyGradients:
    """Gives a gradient to the engine as soon as autograd has added it up.

    `.grad` stays. A gradient that changes after that (another micro-batch, clipping, zeroing, a
    hook that fires again in re-entrant checkpointing) makes step() drop what was given and take all
    gradients as they are then: slower, never wrong. `dropped` counts how often.
    """

    def __init__(self, optimizer, accumulation):
        self._optimizer = optimizer
        self._accumulation = accumulation
        self._fired = {}  # parameter -> times since the last step
        self._given = {}  # parameter -> (gradient, its version, what the engine reads)
        self._handles = {}
        self.dropped = 0

    def watch(self, bindings):
        for binding in bindings:
            hook = binding.parameter.register_post_accumulate_grad_hook(self._take)
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
        self._optimizer._engine().gradients_ready([binding.index], [taken.data_ptr()])
        self._given[binding.parameter] = (grad, grad._version, taken)

    def drop(self):
        """Nothing has been given from here on."""
        if self._given:
            self._optimizer._engine().discard()
            self._given.clear()
            self.dropped += 1

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
