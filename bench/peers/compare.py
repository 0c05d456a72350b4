#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times one AdamW step of Outboard, torch and DeepSpeed on the same pages, in turns.

Every optimizer works on the same FP32 state in huge pages with the same number of threads; the 16-bit
weight that a GPU needs is part of every step: Outboard writes it in its pass, the others copy.
compare.sh prepares what this needs and calls it.
"""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import time

from double import SETTINGS, Double
from kernel import Kernel, huge_share, huge_tensor

TARGETS = [  # (ours, theirs, at least so many times as fast)
    ("outboard", "deepspeed + cast", 1.5),
    ("outboard", "torch fused + cast", 1.3),
]
ROOF_BYTES = 24


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, type=pathlib.Path)
    parser.add_argument("--params", type=float, default=1e8)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--dtype", choices=["f16", "bf16"], default="f16")
    parser.add_argument("--repeat", type=int, default=11)
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    parser.add_argument("--commit", default="unknown", help="of the library, for the figures")
    return parser.parse_args()


class Tensors:
    """What all optimizers share, and a slot in which a gradient lies until the weight does."""

    def __init__(self, torch, elems, dtype):
        kind = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
        self.dtype = dtype
        self.param, self.exp_avg, self.exp_avg_sq, self.grad32 = (
            huge_tensor(torch, elems, torch.float32, place) for place in range(4))
        self.grad16, self.slot, self.weight16 = (
            huge_tensor(torch, elems, kind, place) for place in range(4, 7))
        self.fill(torch)

    def fill(self, torch):
        generator = torch.Generator().manual_seed(1)
        torch.randn(self.param.shape, out=self.param, generator=generator)
        torch.randn(self.grad32.shape, out=self.grad32, generator=generator)
        self.param.mul_(0.02)
        self.grad16.copy_(self.grad32.mul_(0.01))
        self.grad32.copy_(self.grad16)
        self.slot.copy_(self.grad16)
        self.exp_avg.zero_()
        self.exp_avg_sq.zero_()

    def state(self):
        return self.param, self.exp_avg, self.exp_avg_sq


class Ours:
    def __init__(self, kernel, tensors, grad, weight):
        self.kernel, self.tensors, self.steps = kernel, tensors, 0
        formats = {"grad32": "f32"}
        self.grad = (getattr(tensors, grad), formats.get(grad, tensors.dtype))
        self.weight = (getattr(tensors, weight), tensors.dtype)

    def __call__(self):
        self.steps += 1
        self.kernel.adamw(self.tensors.state(), self.grad, self.weight, SETTINGS, self.steps)


class Theirs:
    """An optimizer of torch's interface, and the copies that belong to its step."""

    def __init__(self, torch, tensors, make, upcast=False, first_step=None):
        self.tensors, self.upcast = tensors, upcast
        param = torch.nn.Parameter(tensors.param)
        param.grad = tensors.grad32
        self.optimizer = make([param])
        step = torch.tensor(0.0) if first_step is None else first_step
        self.optimizer.state[param] = {"step": step, "exp_avg": tensors.exp_avg,
                                       "exp_avg_sq": tensors.exp_avg_sq}

    def __call__(self):
        if self.upcast:
            self.tensors.grad32.copy_(self.tensors.grad16)
        self.optimizer.step()
        self.tensors.weight16.copy_(self.tensors.param)


def contestants(torch, kernel, tensors):
    """name → (step, bytes it moves per parameter, counted; None: temporaries make it unclear)."""
    adamw = torch.optim.AdamW
    found = {
        "outboard": (Ours(kernel, tensors, "slot", "slot"), 28),
        "outboard, weight apart": (Ours(kernel, tensors, "grad16", "weight16"), 28),
        "outboard, f32 gradient": (Ours(kernel, tensors, "grad32", "weight16"), 30),
        "torch fused + cast": (
            Theirs(torch, tensors, lambda p: adamw(p, fused=True, **SETTINGS)), 34),
        "upcast + torch fused + cast": (
            Theirs(torch, tensors, lambda p: adamw(p, fused=True, **SETTINGS), upcast=True), 40),
        "torch foreach + cast": (
            Theirs(torch, tensors, lambda p: adamw(p, foreach=True, **SETTINGS)), None),
    }
    try:
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        def make(params):
            return DeepSpeedCPUAdam(params, adamw_mode=True, **SETTINGS)
        found["deepspeed + cast"] = (Theirs(torch, tensors, make, first_step=0), 34)
        found["upcast + deepspeed + cast"] = (
            Theirs(torch, tensors, make, upcast=True, first_step=0), 40)
        return found, ""
    except Exception as error:  # a missing package, compiler or header: said in the figures
        return found, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"


def check(torch, kernel, dtype):
    """Every optimizer's first step against the formula in double. @return name → largest error."""
    errors = {}
    for name in contestants(torch, kernel, Tensors(torch, 4096, dtype))[0]:
        tensors = Tensors(torch, 100_003, dtype)
        expected = Double(tensors.param)
        expected.step(tensors.grad16.double())
        contestants(torch, kernel, tensors)[0][name][0]()
        errors[name] = (tensors.param.double() - expected.param).abs().max().item()
        weight = tensors.slot if name == "outboard" else tensors.weight16
        if errors[name] > 1e-7 or not torch.equal(weight, tensors.param.to(weight.dtype)):
            raise RuntimeError(f"{name}: the step is off by {errors[name]:.2e}")
    return errors


def take_rounds(entries, repeat):
    """In turns, each round beginning with another. @return name → seconds of each round."""
    names = list(entries)
    times = {name: [] for name in names}
    for name in names:  # first steps allocate and touch
        entries[name]()
    for turn in range(repeat):
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            time.sleep(0.02)  # OpenMP's threads spin for a while after their work
            start = time.perf_counter()
            entries[name]()
            times[name].append(time.perf_counter() - start)
    return times


def quartiles(values):
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "lower_quartile": low, "upper_quartile": high}


def summarize(times, moved, elems):
    rows = {}
    for name, seconds in times.items():
        rows[name] = {"ns_per_param": quartiles([s / elems * 1e9 for s in seconds]),
                      "bytes_per_param": moved[name],
                      "time_over_outboard": quartiles(
                          [s / ours for s, ours in zip(seconds, times["outboard"])])}
        if moved[name]:
            rows[name]["share_of_roof"] = quartiles(
                [moved[name] / ROOF_BYTES * roof / s for s, roof in zip(seconds, times["roof"])])
    return rows


def judge(rows):
    lines = []
    for ours, theirs, target in TARGETS:
        if theirs not in rows:
            continue
        ratio = rows[theirs]["time_over_outboard"]["median"]
        verdict = "met" if ratio >= target else f"missed by {target - ratio:.2f}"
        lines.append({"what": f"{ours} against {theirs}", "times_as_fast": ratio,
                      "target": target, "verdict": verdict})
    return lines


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    found = re.search(r"model name\s*: (.*)", text)
    return found.group(1) if found else "unknown"


def print_table(report):
    print(f"{'step':32}{'ns/param':>10}{'B/param':>9}{'of roof':>9}{'time over ours':>26}")
    for name, row in report["steps"].items():
        ratio = row["time_over_outboard"]
        spread = f"{ratio['median']:.2f} ({ratio['lower_quartile']:.2f} to {ratio['upper_quartile']:.2f})"
        share = row.get("share_of_roof", {}).get("median", math.nan)
        print(f"{name:32}{row['ns_per_param']['median']:10.3f}{row['bytes_per_param'] or '?':>9}"
              f"{share:9.2f}{spread:>26}")
    print(f"huge pages {report['machine']['huge_pages']:.0%}, "
          "load {:.1f} to {:.1f}".format(*report["machine"]["load_average"]))
    for line in report["targets"]:
        print(f"{line['what']}: {line['times_as_fast']:.2f} times as fast, "
              f"target {line['target']}: {line['verdict']}")
    if report["deepspeed_problem"]:
        print("DeepSpeed was not measured:", report["deepspeed_problem"])


def versions():
    from importlib import metadata
    found = {}
    for package in ("torch", "deepspeed", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def main():
    options = parse_arguments()
    # OpenMP reads it when it is loaded, which importing torch does.
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch
    torch.set_num_threads(options.threads)
    elems = int(options.params)
    kernel = Kernel(options.library, options.threads)
    errors = check(torch, kernel, options.dtype)
    tensors = Tensors(torch, elems, options.dtype)
    found, problem = contestants(torch, kernel, tensors)
    entries = {"roof": lambda: kernel.roof(tensors.state())}
    entries.update({name: step for name, (step, _) in found.items()})
    moved = {"roof": ROOF_BYTES, **{name: count for name, (_, count) in found.items()}}
    load = os.getloadavg()[0]
    real_time = os.sched_getscheduler(0) != os.SCHED_OTHER
    times = take_rounds(entries, options.repeat)
    report = {
        "commit": options.commit,
        "command": f"{'chrt -f 1 ' if real_time else ''}bench/peers/compare.sh --params {elems} --threads {options.threads} "
                   f"--dtype {options.dtype} --repeat {options.repeat}",
        "machine": {"processor": processor(), "isa": kernel.isa(), "threads": options.threads,
                    "huge_pages": round(huge_share(), 3),
                    "load_average": [load, os.getloadavg()[0]]},
        "versions": versions(), "params": elems, "dtype": options.dtype,
        "repeats": options.repeat, "steps": summarize(times, moved, elems),
        "largest_error_of_first_step": errors, "deepspeed_problem": problem,
    }
    report["targets"] = judge(report["steps"])
    kernel.close()
    print_table(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
