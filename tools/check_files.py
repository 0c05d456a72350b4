#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what every source file has to keep to: its licence line, its size, its white space.

usage: check_files.py [ROOT]     exit status 1 and one line for each problem
"""
import os
import pathlib
import re
import sys

MAX_LINES = 500
LICENCE = "SPDX-License-Identifier: Apache-2.0"
SOURCES = {".cpp", ".hpp", ".h", ".c", ".cu", ".py", ".sh", ".cmake", ".map", ".in"}
WITH_LICENCE_BY_NAME = {"CMakeLists.txt", "run", ".clang-tidy"}
TEXTS = SOURCES | {".md", ".json", ".txt"}
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
SKIPPED = {"build", "__pycache__", "testdata"}


def files(root):
    """Every file but those in hidden folders other than .ci, and in generated ones."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and
                            (not name.startswith(".") or name == ".ci"))
        for name in sorted(names):
            yield pathlib.Path(folder) / name


def check_source(lines):
    if not any(LICENCE in line for line in lines[:2]):
        yield 1, f"no line '{LICENCE}' at the top"
    if len(lines) > MAX_LINES:
        yield MAX_LINES, f"{len(lines)} lines, more than {MAX_LINES}: split the file"
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            yield number, "a note about unfinished work"


def check_text(text, lines):
    if not text.endswith("\n"):
        yield len(lines), "no newline at the end"
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            yield number, "white space at the end"


def check(root):
    problems = []
    for path in files(root):
        is_source = path.suffix in SOURCES or path.name in WITH_LICENCE_BY_NAME
        if not is_source and path.suffix not in TEXTS:
            continue
        text = path.read_bytes().decode("utf-8", errors="replace")
        lines = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")
        found = list(check_text(text, lines)) + (list(check_source(lines)) if is_source else [])
        name = path.relative_to(root).as_posix()
        problems += [f"{name}:{number}: {what}" for number, what in found]
    return problems


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parents[1]).resolve()
    problems = check(root)
    print("\n".join(problems) if problems else "files: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
