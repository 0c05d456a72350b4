# SPDX-License-Identifier: Apache-2.0
"""Updates behind the next forward: each module waits for its own weights before it uses them."""
import copy

import torch

from ..errors import InvalidArgument, InvalidConfig, ProtocolError

# Modules that use the weights of modules inside them without calling those.
_TOGETHER = (torch.nn.MultiheadAttention,)


class Waits:
    """The hooks of overlap(), and which weights have a refresh under way."""

    def __init__(self, model, optimizer, together):
        self._optimizer = optimizer
        self._pending = {}  # parameter -> Binding
        self._handles = []
        self._model = model
        for module in model.modules():
            inner = isinstance(module, (*_TOGETHER, *together))
            own = list(module.parameters(recurse=inner))
            if own:
                self._hook(module, own)
        self._hook_deepcopy(model)

    def _hook(self, module, own):
        # A compiled forward leaves its graph for the wait, and comes back.
        wait = torch.compiler.disable(lambda *_: self.wait_for(own))
        self._handles.append(module.register_forward_pre_hook(wait))
        self._handles.append(module.register_state_dict_pre_hook(lambda *_: self.wait_for(own)))

    def _hook_deepcopy(self, model):
        def deepcopy(memo):
            self.wait_for_all()
            del model.__dict__["__deepcopy__"]
            hooks = [(m, m._forward_pre_hooks, m._state_dict_pre_hooks) for m in model.modules()]
            try:
                self._without_hooks(hooks)
                return copy.deepcopy(model, memo)
            finally:
                for module, forward, state_dict in hooks:
                    module._forward_pre_hooks, module._state_dict_pre_hooks = forward, state_dict
                model.__dict__["__deepcopy__"] = deepcopy

        model.__dict__["__deepcopy__"] = deepcopy

    def _without_hooks(self, hooks):
        """A copy's weights are nobody's: it must not wait for these."""
        ours = {handle.id for handle in self._handles}
        for module, forward, state_dict in hooks:
            module._forward_pre_hooks = type(forward)(
                (k, v) for k, v in forward.items() if k not in ours)
            module._state_dict_pre_hooks = type(state_dict)(
                (k, v) for k, v in state_dict.items() if k not in ours)

    @torch.no_grad()
    def wait_for(self, parameters):
        if not self._pending:
            return
        for parameter in parameters:
            binding = self._pending.pop(parameter, None)
            if binding is not None:
                self._optimizer._engine().wait(binding.index)
                if binding.shadow is not None:
                    binding.refreshed()
                    binding.note()

    def wait_for_all(self):
        self.wait_for(list(self._pending))

    def stepped(self, bindings):
        self._pending = {binding.parameter: binding for binding in bindings}

    def remove(self):
        try:
            self.wait_for_all()
        finally:
            for handle in self._handles:
                handle.remove()
            self._model.__dict__.pop("__deepcopy__", None)
            self._handles = []


def overlap(model, optimizer, *, together=()):
    """step() returns once the gradients are taken; updates go on behind what the trainer does next.

    Before the first step. Each module of `model` then waits for its own weights before its forward,
    state_dict() and deepcopy of the model wait for all, and synchronize() of the optimizer does for
    whoever reads weights in another way (averages of weights, say). `together`: types of modules
    that use weights of modules inside them without calling those.

    A weight that is used without its module's forward is found: the next step() names it. With
    check_waits=True of the optimizer such a weight is NaN meanwhile.
    """
    from .optimizer import OutboardOptimizer

    if not isinstance(optimizer, OutboardOptimizer):
        raise InvalidArgument(f"overlap(): {type(optimizer).__name__} is no optimizer of "
                              "outboard.torch")
    if optimizer._waits is not None:
        raise ProtocolError("overlap(): was called for this optimizer already")
    if optimizer._bindings:
        raise ProtocolError("overlap(): comes before the first step() and load_state_dict()")
    if optimizer._settings["schedule"] not in ("blocking", "exact"):
        raise InvalidConfig(f"overlap(): schedule={optimizer._settings['schedule']!r} does not "
                            "overlap; leave it out")
    known = set(model.parameters())
    strangers = [optimizer._name_of[p] for group in optimizer.param_groups for p in group["params"]
                 if p not in known]
    if strangers:
        raise InvalidArgument(f"overlap(): nobody would wait for {', '.join(map(repr, strangers))}, "
                              "which the model has not")
    optimizer._engine().close()
    optimizer._settings["schedule"] = "exact"
    optimizer._make_engine()
    optimizer._rules = {}
    optimizer._waits = Waits(model, optimizer, tuple(together))
    return optimizer
