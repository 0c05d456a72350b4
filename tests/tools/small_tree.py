# SPDX-License-Identifier: Apache-2.0
"""A folder of small files for a tool to look at."""
import pathlib
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"


class SmallTree:
    """Files by name and text, gone at the end of the `with`."""

    def __init__(self, files):
        self._folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self._folder.name)
        (self.root / "src").mkdir()
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._folder.cleanup()

    def run(self, tool):
        """Exit status and output of a Python tool on this tree."""
        done = subprocess.run([sys.executable, TOOLS / tool, self.root], capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stdout + done.stderr
