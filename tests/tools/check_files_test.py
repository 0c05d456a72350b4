# SPDX-License-Identifier: Apache-2.0
"""check_files.py names each kind of file that does not keep to the rules."""
import unittest

from small_tree import LICENCE, SmallTree


class CheckFiles(unittest.TestCase):
    def outcome(self, name, text):
        with SmallTree({name: text}) as tree:
            return tree.run("check_files.py")

    def assert_refused(self, name, text, problem):
        status, output = self.outcome(name, text)
        self.assertEqual(status, 1, output)
        self.assertIn(problem, output)

    def test_good_files(self):
        self.assertEqual(self.outcome("src/a.cpp", LICENCE + "int a;\n" * 499)[0], 0)
        self.assertEqual(self.outcome("tools/a.py", "#!/usr/bin/env python3\n" + LICENCE)[0], 0)
        self.assertEqual(self.outcome("README.md", "# words\n")[0], 0)

    def test_each_problem(self):
        self.assert_refused("src/a.cpp", "int a;\n", "src/a.cpp:1: no line")
        self.assert_refused("CMakeLists.txt", "project(a)\n", "CMakeLists.txt:1: no line")
        self.assert_refused(".ci/run", "#!/bin/sh\ntrue\n", ".ci/run:1: no line")
        self.assert_refused("src/a.cpp", LICENCE + "int a;\n" * 500, "501 lines")
        self.assert_refused("src/a.cpp", LICENCE + "// TO" "DO\n", "src/a.cpp:2: a note")
        self.assert_refused("src/a.cpp", LICENCE + "int a; \n", "src/a.cpp:2: white space")
        self.assert_refused("src/a.cpp", LICENCE + "int a;\r\n", "src/a.cpp:2: white space")
        self.assert_refused("docs/a.md", "no end", "docs/a.md:1: no newline")


if __name__ == "__main__":
    unittest.main()
