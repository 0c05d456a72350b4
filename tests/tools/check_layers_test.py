# SPDX-License-Identifier: Apache-2.0
"""check_layers.py accepts the edges that are meant and names every other one."""
import unittest

from small_tree import SmallTree

HEADERS = {
    "include/outboard/types.hpp": "#include <cstdint>\n",
    "simd/update.hpp": "#include <span>\n",
    "src/core/waiter.hpp": "#include <mutex>\n",
    "src/device/backend.hpp": '#include "simd/update.hpp"\n',
    "src/exec/executor.hpp": '#include "topology/machine.hpp"\n',
    "src/optim/scalars.hpp": '#include "simd/update.hpp"\n',
    "src/pipeline/step.hpp": '#include "exec/executor.hpp"\n',
    "src/inspect/checks.hpp": '#include "topology/machine.hpp"\n',
    "bench/update_bench/measure.hpp": '#include "exec/executor.hpp"\n',
    "bench/step_bench/bench.hpp": '#include "outboard/types.hpp"\n',
    "src/topology/machine.hpp": "#include <sys/mman.h>\n#include <vector>\n",
}


class CheckLayers(unittest.TestCase):
    def outcome(self, name, text):
        with SmallTree({**HEADERS, name: text}) as tree:
            return tree.run("check_layers.py")

    def assert_allowed(self, name, text):
        status, output = self.outcome(name, text)
        self.assertEqual(status, 0, output)

    def assert_refused(self, name, text, problem):
        status, output = self.outcome(name, text)
        self.assertEqual(status, 1, output)
        self.assertIn(f"{name}:1: ", output)
        self.assertIn(problem, output)

    def test_edges_that_are_meant(self):
        self.assert_allowed("src/engine/engine.cpp", '#include "pipeline/step.hpp"\n')
        self.assert_allowed("src/pipeline/step.cpp",
                            '#include "pipeline/step.hpp"\n#include "core/waiter.hpp"\n'
                            '#include "outboard/types.hpp"\n#include "optim/scalars.hpp"\n')
        self.assert_allowed("src/topology/discovery.cpp", "#include <hwloc.h>\n")
        self.assert_allowed("simd/update.cpp", '#include <hwy/highway.h>\n#include "update.hpp"\n')
        self.assert_allowed("src/exec/tbb.cpp", "#include <tbb/task_arena.h>\n")
        self.assert_allowed("tests/pipeline/step_test.cpp",
                            '#include <gtest/gtest.h>\n#include "pipeline/step.hpp"\n')
        self.assert_allowed("examples/a/main.cpp",
                            '#include <cblas.h>\n#include "outboard/types.hpp"\n')
        self.assert_allowed("src/core/a.cpp", '/*\n#include "engine/x.hpp"\n*/\n// #include <mpi.h>\n')

    def test_rooms_that_look_up_or_aside(self):
        self.assert_refused("src/core/a.cpp", '#include "exec/executor.hpp"\n',
                            "core may not include exec")
        self.assert_refused("src/pipeline/a.cpp", '#include "topology/machine.hpp"\n',
                            "pipeline may not include topology")
        self.assert_refused("src/device/a.cpp", '#include "../exec/executor.hpp"\n',
                            "device may not include exec")
        self.assert_refused("src/exec/a.cpp", '#include "optim/scalars.hpp"\n',
                            "exec may not include optim")

    def test_command_line_measures_kernels_in_one_way_only(self):
        self.assert_allowed("src/cli/bench.cpp", '#include "update_bench/measure.hpp"\n')
        self.assert_allowed("src/cli/step.cpp", '#include "step_bench/bench.hpp"\n')
        self.assert_refused("bench/step_bench/a.cpp", '#include "exec/executor.hpp"\n',
                            "step_bench may not include exec")
        self.assert_allowed("bench/update_bench/a.cpp", '#include "simd/update.hpp"\n')
        self.assert_allowed("bench/update_bench/a.cpp", '#include "optim/scalars.hpp"\n')
        self.assert_refused("src/cli/bench.cpp", '#include "exec/executor.hpp"\n',
                            "cli may include public headers only")
        self.assert_refused("examples/a.cpp", '#include "update_bench/measure.hpp"\n',
                            "examples may include public headers only")
        self.assert_refused("bench/update_bench/a.cpp", '#include "pipeline/step.hpp"\n',
                            "update_bench may not include pipeline")
        self.assert_refused("src/engine/a.cpp", '#include "update_bench/measure.hpp"\n',
                            "engine may not include update_bench")

    def test_command_line_inspects_machines_through_one_room(self):
        self.assert_allowed("src/cli/topo.cpp", '#include "inspect/checks.hpp"\n')
        self.assert_refused("src/cli/topo.cpp", '#include "topology/machine.hpp"\n',
                            "cli may include public headers only")
        self.assert_refused("src/inspect/a.cpp", '#include "exec/executor.hpp"\n',
                            "inspect may not include exec")
        self.assert_refused("src/engine/a.cpp", '#include "inspect/checks.hpp"\n',
                            "engine may not include inspect")

    def test_kernels_are_a_leaf(self):
        self.assert_refused("simd/a.cpp", '#include "core/waiter.hpp"\n',
                            "simd may not include core")
        self.assert_refused("simd/a.cpp", '#include "outboard/types.hpp"\n',
                            "simd may not include public")

    def test_skins_see_public_headers_only(self):
        for place in ("examples/a", "src/capi", "src/cli", "python"):
            self.assert_refused(f"{place}/a.cpp", '#include "core/waiter.hpp"\n',
                                "may include public headers only")

    def test_vendors_stay_in_their_rooms(self):
        for header, place in (("hwloc.h", "src/exec"), ("tbb/task_arena.h", "src/engine"),
                              ("oneapi/tbb.h", "src/core"), ("hwy/highway.h", "src/optim"),
                              ("cuda.h", "src/device/sim"), ("nccl.h", "src/dist/mpi"),
                              ("mpi.h", "src/dist/nccl")):
            self.assert_refused(f"{place}/a.cpp", f"#include <{header}>\n", "belongs to")
        self.assert_refused("src/optim/a.cpp", '#include "hwy/highway.h"\n', "belongs to simd/")
        self.assert_refused("src/core/a.cpp", "#include <fmt/core.h>\n", "no room is named")

    def test_headers_of_one_room(self):
        for header in ("nlohmann/json.hpp", "xxhash.h"):
            self.assert_allowed("src/ckpt/a.cpp", f"#include <{header}>\n")
            self.assert_refused("src/engine/a.cpp", f"#include <{header}>\n", "no room is named")

    def test_public_headers_are_self_contained(self):
        self.assert_refused("include/outboard/a.hpp", '#include "core/waiter.hpp"\n',
                            "a public header may not include core")
        self.assert_refused("include/outboard/a.hpp", "#include <sys/mman.h>\n",
                            "standard library only")
        self.assert_allowed("include/outboard/a.h", "#include <stdint.h>\n")
        self.assert_refused("include/outboard/a.hpp", "#include <stdint.h>\n",
                            "standard library only")
        self.assert_refused("include/outboard/a.h", "#include <stdio.h>\n",
                            "standard library only")

    def test_files_that_do_not_exist(self):
        self.assert_refused("src/core/a.cpp", '#include "elsewhere/a.hpp"\n', "no file")


if __name__ == "__main__":
    unittest.main()
