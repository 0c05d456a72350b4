# SPDX-License-Identifier: Apache-2.0
"""check_symbols.sh refuses a library that shows a stranger's symbol, or nothing."""
import os
import subprocess
import tempfile
import unittest

from small_tree import TOOLS

OWN = "namespace outboard { struct A { virtual ~A(); }; A::~A() {} int f() { return 1; } }\n"


def outcome(source):
    """Builds the source as a shared library, and runs the tool on it."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/library.so"
        subprocess.run([os.environ.get("CXX", "c++"), "-shared", "-fPIC", "-x", "c++", "-",
                        "-o", library], input=source, text=True, check=True)
        done = subprocess.run([TOOLS / "check_symbols.sh", library], capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class CheckSymbols(unittest.TestCase):
    def test_own_symbols(self):
        status, output = outcome(OWN)
        self.assertEqual(status, 0, output)

    def test_a_stranger(self):
        status, output = outcome(OWN + "int leaked_name() { return 1; }\n")
        self.assertEqual(status, 1, output)
        self.assertIn("leaked_name", output)

    def test_nothing_shown(self):
        status, output = outcome("static int f() { return 1; }\n")
        self.assertEqual(status, 1, output)
        self.assertIn("no symbol at all", output)


if __name__ == "__main__":
    unittest.main()
