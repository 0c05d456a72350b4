# SPDX-License-Identifier: Apache-2.0
"""What training will take, before anything is allocated."""
from . import _load
from .errors import InvalidArgument


def _sizes(model):
    """(elements, dtype name) of each weight that is trained."""
    if hasattr(model, "parameters"):
        names = {"torch.float16": "f16", "torch.bfloat16": "bf16", "torch.float32": "f32"}
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            kind = names.get(str(parameter.dtype))
            if kind is None:
                raise InvalidArgument(f"parameter {name!r} has dtype {parameter.dtype}")
            yield parameter.numel(), kind
        return
    for elems, kind in model:
        yield int(elems), kind


def estimate(model, *, nodes=1, schedule="blocking"):
    """Memory that an optimizer of the Adam kind will hold for `model`.

    `model`: a torch module, or (elements, 'f16' | 'bf16' | 'f32') of each weight. Returns a dict:
    'text' to print, 'entries' (purpose, place, bytes), host_bytes, device_bytes of the engine,
    weight_bytes and gradient_bytes of the trainer, and bytes_saved on the device against an
    optimizer that keeps FP32 masters and moments there.
    """
    native = _load.native()
    sizes = [(elems, _load.choice("DType", kind, "dtype")) for elems, kind in _sizes(model)]
    config = native.Config()
    config.schedule = _load.choice("Schedule", schedule, "schedule")
    out = native.plan_memory(sizes, config, nodes)
    bytes_of = {"f16": 2, "bf16": 2, "f32": 4}
    out["host_bytes"] = sum(e["bytes"] for e in out["entries"] if e["place"] != "device")
    out["device_bytes"] = sum(e["bytes"] for e in out["entries"] if e["place"] == "device")
    out["weight_bytes"] = sum(elems * bytes_of[kind.name] for elems, kind in sizes)
    out["gradient_bytes"] = out["weight_bytes"]
    # An FP32 weight is its own master.
    state = sum(elems * (8 if kind.name == "f32" else 12) for elems, kind in sizes)
    out["bytes_saved"] = state - out["device_bytes"]
    return out


def inspect_checkpoint(folder):
    """What is in the newest checkpoint of `folder`, or the one that it is, without its state."""
    return _load.native().inspect_checkpoint(str(folder))
