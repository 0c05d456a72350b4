# SPDX-License-Identifier: Apache-2.0
"""`python -m outboard`: what is installed, what this machine offers, and whether a step works."""
import importlib.metadata
import os
import platform
import resource
import sys

import numpy

import outboard
from outboard import _load


def _version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _limit(kind):
    soft, _ = resource.getrlimit(kind)
    return "unlimited" if soft == resource.RLIM_INFINITY else f"{soft / 2**20:.0f} MiB"


def _trial():
    """A step of which every bit is known beforehand: AdamW from 1 with gradient 1 at rate 1/2."""
    with outboard.Engine(log=None) as engine:
        engine.add_group(outboard.AdamW(lr=0.5, eps=1e-15))
        weight = numpy.ones(70000, numpy.float32)
        parameter = engine.add_parameter("w", weight)
        engine.commit()
        engine.gradient_ready(parameter, numpy.ones_like(weight))
        engine.step()
        described = engine.describe()
    right = bool((abs(weight - 0.5) < 1e-6).all())
    return right, described


def main():
    print(f"outboard {outboard.__version__}, Python {platform.python_version()}, "
          f"{platform.system()} {platform.machine()}")
    try:
        native = _load.native()
    except ImportError as error:
        print(error)
        return 3
    print(f"native module: {native.__file__}, version {native.version}")
    for package in ("numpy", "ml_dtypes", "torch", "transformers", "accelerate", "lightning"):
        print(f"{package}: {_version_of(package)}")
    print("devices: weights on the CPU; this build has no CUDA")
    print(f"locked memory: {_limit(resource.RLIMIT_MEMLOCK)}, address space: "
          f"{_limit(resource.RLIMIT_AS)}, cpus allowed: {len(os.sched_getaffinity(0))}")
    try:
        right, described = _trial()
    except outboard.Error as error:
        print(f"a step: failed: {error}")
        return 1
    print(described.rstrip())
    print(f"a step: {'right' if right else 'WRONG VALUES'}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
