# SPDX-License-Identifier: Apache-2.0
"""An engine's settings, from keyword arguments to the native structs."""
import difflib
import logging

from . import _load, rules
from .errors import InvalidConfig

LOGGER = logging.getLogger("outboard")
_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR)
_ENUMS = {"schedule": "Schedule", "placement": "Placement", "accumulate": "Accumulate"}
_PLAIN = ("max_grad_norm", "accumulation", "device_fraction", "device_budget_bytes",
          "keep_host_room", "bucket_bytes", "pinned_slots", "strict_pinning", "check_waits")
_HOST = ("synthetic_topology", "threads_per_node", "reserve_cores")
# Beside these: loss_scaling, log.
KNOWN = (*_ENUMS, *_PLAIN, *_HOST, "loss_scaling", "log")


def _to_logger(level, line):
    LOGGER.log(_LEVELS[level], "%s", line)


def _set(target, name, value):
    try:
        setattr(target, name, value)
    except TypeError:
        raise InvalidConfig(f"{name} is {value!r}, which is of the wrong type") from None


def _loss_scaling(native, given):
    scaling = native.LossScaling()
    if given is None:
        scaling.dynamic, scaling.initial_scale = False, 1.0
    else:
        for field in rules.LossScaling.__dataclass_fields__:
            _set(scaling, field, getattr(given, field))
    return scaling


def make_engine(settings):
    """The native engine of these settings. Raises InvalidConfig naming the setting."""
    native = _load.native()
    for name in settings:
        if name not in KNOWN:
            close = difflib.get_close_matches(name, KNOWN, 1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(KNOWN)}"
            raise InvalidConfig(f"there is no setting {name!r}{hint}")
    config = native.Config()
    for name, value in settings.items():
        if name in _ENUMS:
            setattr(config, name, _load.choice(_ENUMS[name], value, name))
        elif name in _PLAIN:
            _set(config, name, value)
    host = native.HostOptions()
    for name in _HOST:
        if name in settings:
            _set(host, name, settings[name])
    config.host = host
    config.loss_scaling = _loss_scaling(native, settings.get("loss_scaling"))
    log = settings.get("log", _to_logger)
    config.set_log(log)
    return native.HostEngine(config)
