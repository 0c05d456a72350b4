#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads our safetensors files with the package of that name, and gives us files that it wrote.

usage: safetensors_check.py PROGRAM FOLDER      see safetensors_check.sh
"""
import json
import pathlib
import subprocess
import sys

import numpy as np
import safetensors
from safetensors.numpy import load_file, save_file

SHAPES = {"wte": (300, 64), "block0.ln_1.gain": (64,), "scalar": (), "none": (0, 3),
          "b\u00e9ta \"q\"": (2, 3, 5)}


def run(program, *words):
    done = subprocess.run([program, "ckpt", *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"outboard ckpt {' '.join(map(str, words))}: {done.returncode}\n{done.stderr}")


def require_same(what, got, expected):
    if got.tobytes() != expected.tobytes():
        sys.exit(f"{what}: other bits than expected")


def to_bf16(values):
    """Nearest even, as 16-bit integers."""
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def raw_tensors(folder):
    """Name, dtype, shape and bytes of every tensor of an export, by the package's own parser."""
    index = folder / "model.safetensors.index.json"
    files = sorted(folder.glob("*.safetensors"))
    where = json.loads(index.read_text())["weight_map"] if index.exists() else None
    found = {}
    for file in files:
        for name, tensor in safetensors.deserialize(file.read_bytes()):
            if where is not None and where[name] != file.name:
                sys.exit(f"the index has '{name}' in {where[name]}, and it is in {file.name}")
            found[name] = tensor
    if where is not None and set(where) != set(found):
        sys.exit("the index has other tensors than its files")
    return found


def check_export(program, run_folder, weights, dtype, size):
    out = run_folder.with_name(f"{run_folder.name}-{dtype}-{size}")
    run(program, "export", run_folder, out, "--dtype", dtype, "--max-shard-size", size)
    tensors = raw_tensors(out)
    if set(tensors) != set(weights):
        sys.exit(f"{out}: has {sorted(tensors)}")
    for name, values in weights.items():
        flat = values.astype(np.float32).reshape(-1)
        expected = {"f32": flat, "f16": flat.astype(np.float16), "bf16": to_bf16(flat)}[dtype]
        if tensors[name]["dtype"] != dtype.upper() or tensors[name]["shape"] != [values.size]:
            sys.exit(f"{out}: '{name}' is {tensors[name]['dtype']} {tensors[name]['shape']}")
        require_same(f"{out}: {name}", np.frombuffer(bytes(tensors[name]["data"]), np.uint8),
                     expected.view(np.uint8))
    return len(tensors)


def main(program, folder):
    folder = pathlib.Path(folder)
    random = np.random.default_rng(7)
    checked = 0
    for dtype in (np.float32, np.float16):
        weights = {name: random.standard_normal(shape).astype(dtype).reshape(shape)
                   for name, shape in SHAPES.items()}
        file = folder / f"{np.dtype(dtype)}.safetensors"
        save_file(weights, file)
        run_folder = folder / f"run-{np.dtype(dtype)}"
        run(program, "import", file, run_folder)
        run(program, "verify", run_folder)
        state = {}
        for part in sorted(run_folder.glob("save-00000001/*.safetensors")):
            state.update(load_file(part))
        for name, values in weights.items():
            require_same(name, state[f"master/{name}"], values.astype(np.float32).reshape(-1))
            if state[f"exp_avg/{name}"].any() or state[f"exp_avg_sq/{name}"].any():
                sys.exit(f"{name}: moments that are not zero")
        checked += len(state)
        for out, size in (("f32", "5GB"), ("f32", "1KB"), ("f16", "10KB"), ("bf16", "10KB")):
            checked += check_export(program, run_folder, weights, out, size)
    print(f"safetensors {safetensors.__version__}: {checked} tensors read, the same to the bit")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
