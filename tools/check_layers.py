#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every #include against who may include whom (docs/architecture.md).

usage: check_layers.py [ROOT]     exit status 1 and one line for each include that is not allowed
"""
import pathlib
import re
import sys

# A room may include itself, what is listed here, `core` and the public headers.
ROOM_EDGES = {
    "core": set(),
    "topology": set(),
    "device": {"simd"},
    "memory": {"device", "topology"},
    "exec": {"topology"},
    "optim": {"simd"},
    "plan": {"topology"},
    "dist": {"device"},
    "pipeline": {"memory", "exec", "optim", "device", "dist", "plan", "simd"},
    "ckpt": {"optim"},
    "engine": {"topology", "device", "memory", "exec", "optim", "plan", "dist", "pipeline", "ckpt",
               "simd"},
    # No part of the library: measures its kernels, for the command line and the benchmarks.
    "update_bench": {"simd", "memory", "topology", "exec", "optim"},
    # Nor this: runs whole steps through the public interface and compares them with the planner.
    "step_bench": {"plan"},
    # Nor this: what a machine offers and forbids, for the command line.
    "inspect": {"topology", "device", "plan", "simd"},
}
ROOMS = set(ROOM_EDGES) | {"simd"}
LEAF = "simd"  # includes nothing of the others, not even core or the public headers
SKINS = {"capi", "cli", "examples", "python"}  # public headers only, and:
SKIN_EDGES = {"cli": {"inspect", "step_bench", "update_bench"}}

# One vendor, one place; the tests of that place may include it as well.
VENDORS = [
    (re.compile(r"hwloc"), "src/topology/"),
    (re.compile(r"(tbb|oneapi)/"), "src/exec/"),
    (re.compile(r"hwy/"), "simd/"),
    (re.compile(r"(cuda|cublas|nvtx)\w*(\.h|/)"), "src/device/cuda/"),
    (re.compile(r"nccl"), "src/dist/nccl/"),
    (re.compile(r"mpi\.h"), "src/dist/mpi/"),
]
# Header-only libraries that a room uses beside its own vendor.
ROOM_HEADERS = {"ckpt": re.compile(r"(nlohmann/json\.hpp|xxhash\.h)$")}
STANDARD = re.compile(r"[a-z_0-9]+$")
C_STANDARD = re.compile(r"std(def|int|bool)\.h$")  # what the C interface needs
SYSTEM = re.compile(r"((sys|linux|asm|netinet|arpa)/[\w.-]+\.h|(?!xxh)[a-z_0-9]+\.h)$")
INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
SOURCES = {".cpp", ".hpp", ".h", ".c", ".in"}
FOLDERS = ("include", "src", "simd", "tests", "bench", "examples", "python")


def place_of(path):
    """The room, `public`, `tests`, `bench` or the skin that a path (relative, posix) belongs to."""
    parts = path.split("/")
    if parts[0] == "include":
        return "public"
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    if parts[0] == "bench" and len(parts) > 2 and parts[1] in ROOM_EDGES:
        return parts[1]
    return parts[0]


def quoted_target(root, file, name):
    """The place that a quoted include leads to, or None if it leads nowhere."""
    first = name.split("/")[0]
    if first == "outboard":
        return "public"
    beside = (root / file).parent / name
    if beside.exists():
        return place_of(beside.resolve().relative_to(root).as_posix())
    if first in ROOMS | SKINS:
        return first
    return None


def quoted_problem(root, file, name):
    here = place_of(file)
    if here in ("tests", "bench"):  # they may see everything, by include folders of their own
        return None
    there = quoted_target(root, file, name)
    if there is None:
        return f'"{name}" is no file of the project'
    if here == there:
        return None
    if here == "public":
        return f"a public header may not include {there}"
    if here in SKINS:
        if there in {"public"} | SKIN_EDGES.get(here, set()):
            return None
        return f"{here} may include public headers only"
    if here == LEAF or here not in ROOMS:
        return f"{here} may not include {there}"
    allowed = ROOM_EDGES[here] | {"core", "public"}
    return None if there in allowed else f"{here} may not include {there}"


def vendor_problem(file, name):
    for pattern, home in VENDORS:
        if not pattern.match(name):
            continue
        tests = ("tests/" + home.removeprefix("src/"), "tests/fake_cuda/", "tests/conformance/cuda")
        stand_in = name.startswith(("cuda", "cublas")) and file.startswith(
            (*tests[1:], "examples/gpt/cuda/"))
        if stand_in or file.startswith((home, tests[0])) or (name.startswith("cuda") and
                                              file == "include/outboard/cuda.hpp"):
            return None
        return f"<{name}> belongs to {home}"
    return None


def angle_problem(file, name):
    here = place_of(file)
    if name.startswith("outboard/"):
        return "own headers go in quotes"
    problem = vendor_problem(file, name)
    if problem or any(pattern.match(name) for pattern, _ in VENDORS):
        return problem
    if here == "public" and file.endswith(".h") and C_STANDARD.match(name):
        return None
    if here == "public" and not STANDARD.match(name):
        return f"a public header may include the standard library only, not <{name}>"
    if here in ROOM_HEADERS and ROOM_HEADERS[here].match(name):
        return None
    if here in ROOMS and not (STANDARD.match(name) or SYSTEM.match(name)):
        return f"<{name}> is a vendor that no room is named for"
    return None


def check_file(root, file):
    text = (root / file).read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, angle = match.groups()
        is_vendor = quoted and any(pattern.match(quoted) for pattern, _ in VENDORS)
        if angle or is_vendor:  # Highway's own examples use quotes
            problem = angle_problem(file, angle or quoted)
        else:
            problem = quoted_problem(root, file, quoted)
        if problem:
            yield f"{file}:{number}: {problem}"


def check(root):
    problems = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCES and path.is_file():
                problems += check_file(root, path.relative_to(root).as_posix())
    return problems


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parents[1]).resolve()
    if not (root / "src").is_dir():
        print(f"{root} has no src folder", file=sys.stderr)
        return 2
    problems = check(root)
    print("\n".join(problems) if problems else "layers: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
