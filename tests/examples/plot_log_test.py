# SPDX-License-Identifier: Apache-2.0
"""scripts/plot_log.py on logs that are whole, cut off, without a split, and no logs at all."""
import contextlib
import io
import json
import pathlib
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))
import plot_log  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
NAMES = [name for name, _, _ in plot_log.PARTS]


def step_of(number, **more):
    split = {name: 1.0 + i for i, name in enumerate(NAMES)}
    return {"step": number, "loss": 5.0 / number, "ms": sum(split.values()), "split_ms": split,
            **more}


class PlotLog(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, steps, ending=""):
        path = pathlib.Path(self.folder.name) / name
        path.write_text("".join(json.dumps(s) + "\n" for s in steps) + ending, encoding="utf-8")
        return str(path)

    def run_main(self, *arguments):
        """The exit code, what was printed, and the complaint."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = plot_log.main(list(arguments))
        return code, out.getvalue().strip(), err.getvalue()

    def draw(self, log):
        code, output, complaint = self.run_main(log)
        self.assertEqual(code, 0, complaint)
        return tree.parse(output).getroot()

    def test_draws_the_loss_and_the_parts_of_every_step(self):
        steps = [step_of(n) for n in range(1, 41)]
        steps[19]["held_out"], steps[39]["held_out"], steps[39]["order2"] = 0.5, 0.4, 0.3
        root = self.draw(self.write("run.jsonl", steps))
        self.assertEqual(len(root.findall(f"{SVG}circle")), 2)
        titles = [e.text for e in root.iter(f"{SVG}title")]
        for name, words, _ in plot_log.PARTS:
            mean = 1.0 + NAMES.index(name)
            self.assertIn(f"steps 7 to 7: {words} {mean:.2f} ms", titles)
        words = " ".join(e.text for e in root.iter(f"{SVG}text"))
        self.assertIn("held out 0.4000", words)
        self.assertIn("order-2 model 0.3000", words)

    def test_the_stack_is_as_high_as_its_numbers(self):
        root = self.draw(self.write("run.jsonl", [step_of(1)]))
        parts = [e for e in root.iter(f"{SVG}rect") if e.find(f"{SVG}title") is not None]
        heights = [float(e.get("height")) for e in parts]
        self.assertEqual(len(heights), len(NAMES))
        for i, height in enumerate(heights):
            self.assertAlmostEqual(height / heights[0], 1.0 + i, delta=0.02)
        for above, below in zip(parts[1:], parts):
            bottom = float(above.get("y")) + float(above.get("height"))
            self.assertAlmostEqual(bottom, float(below.get("y")), delta=0.11)

    def test_long_logs_are_averaged(self):
        steps = [step_of(n) for n in range(1, 1001)]
        bins = plot_log.bins_of(steps, plot_log.PARTS)
        self.assertLessEqual(len(bins), plot_log.MOST_BINS)
        self.assertEqual((bins[0][0], bins[-1][1]), (1, 1000))
        self.assertEqual(bins[3][2], [1.0 + i for i in range(len(NAMES))])

    def test_a_loss_that_is_no_number_leaves_a_gap(self):
        steps = [step_of(n) for n in range(1, 10)]
        steps[4]["loss"] = None
        root = self.draw(self.write("run.jsonl", steps))
        first_line = next(e for e in root.iter(f"{SVG}path") if e.get("opacity"))
        self.assertEqual(first_line.get("d").count("M"), 2)
        self.assertNotIn("nan", tree.tostring(root, encoding="unicode"))

    def test_a_log_in_virtual_time_shows_whole_steps(self):
        steps = [{"step": n, "loss": 1.0, "ms": 7.0} for n in range(1, 4)]
        root = self.draw(self.write("run.jsonl", steps))
        self.assertIn("the whole step: 7.0 ms", [e.text for e in root.iter(f"{SVG}text")])

    def test_a_page_holds_everything_itself(self):
        output = str(pathlib.Path(self.folder.name) / "run.html")
        logs = [self.write(n, [step_of(1), step_of(2)]) for n in ("a.jsonl", "b.jsonl")]
        code, printed, _ = self.run_main(*logs, "-o", output)
        self.assertEqual((code, printed), (0, output))
        page = pathlib.Path(output).read_text(encoding="utf-8")
        self.assertIn("a.jsonl", page)
        self.assertIn("b.jsonl", page)
        self.assertIsNone(re.search(r'(src|href)=|url\(|@import', page))

    def test_a_stopped_run_may_end_within_a_line(self):
        root = self.draw(self.write("run.jsonl", [step_of(1), step_of(2)], '{"step": 3, "lo'))
        self.assertIsNotNone(root)

    def test_says_in_one_line_what_is_wrong(self):
        cases = {
            self.write("empty.jsonl", []): "0 steps",
            self.write("other.jsonl", [], "hello\nworld\n"): "line 1",
            self.write("middle.jsonl", [step_of(1), {"step": 2}, step_of(3)]): "line 2",
            str(pathlib.Path(self.folder.name) / "none.jsonl"): "cannot read",
        }
        for log, words in cases.items():
            code, printed, complaint = self.run_main(log)
            self.assertEqual((code, printed), (1, ""))
            self.assertIn(words, complaint)
            self.assertEqual(complaint.count("\n"), 1)
        good = self.write("good.jsonl", [step_of(1)])
        self.assertIn(".svg or .html", self.run_main(good, "-o", "x.pdf")[2])


class Ticks(unittest.TestCase):
    def test_are_round_and_inside(self):
        self.assertEqual(plot_log.ticks(0, 10), [0, 2, 4, 6, 8, 10])
        for low, high in ((0.0, 0.37), (1.2, 5.6), (0, 12345), (3.0, 3.0)):
            values = plot_log.ticks(low, high)
            self.assertLessEqual(len(values), 8)
            self.assertTrue(all(low - 1e-6 <= v <= high + 1e-6 for v in values), values)


if __name__ == "__main__":
    unittest.main()
