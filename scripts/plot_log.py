#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the log of a training run: the loss, and where each step's time went.

    scripts/plot_log.py run.jsonl                  writes run.svg
    scripts/plot_log.py run.jsonl -o run.html      the same drawing in a page
    scripts/plot_log.py a.jsonl b.jsonl -o ab.svg  the losses of both, the times of the first

The log is what the examples' --log writes. The file needs nothing beside itself to be shown.
"""
import argparse
import html
import json
import math
import pathlib
import sys

WIDTH, MARGIN_LEFT, MARGIN_RIGHT = 960, 70, 24
PANEL_WIDTH = WIDTH - MARGIN_LEFT - MARGIN_RIGHT
MOST_BINS = 120
RUN_COLOURS = ["#1f5fa8", "#c2571a", "#3a7d44", "#7b4ea3", "#8a6d1f"]
PARTS = [  # of split_ms, from the bottom of the stack: name in the log, words, colour
    ("forward", "forward kernels", "#9ecae1"),
    ("backward", "backward kernels", "#3182bd"),
    ("wait_weights", "exposed: waiting for weights", "#e6550d"),
    ("wait_gradients", "exposed: waiting for gradient buffers", "#fdae6b"),
    ("gate", "exposed: after backward, until step() returns", "#756bb1"),
    ("other", "exposed: the host", "#bdbdbd"),
]
WHOLE = [("ms", "the whole step", "#9ecae1")]  # where the log has no split


class LogError(Exception):
    """What is wrong with a log; one line."""


def read_log(path):
    """The steps of one log, each a dictionary with at least `step`, `loss` and `ms`."""
    try:
        lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LogError(f"cannot read {path}: {error}") from error
    steps = []
    for number, line in enumerate(lines, 1):
        try:
            step = json.loads(line)
            step["step"] + 0, step["ms"] + 0, step["loss"]
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines) and steps:
                break  # a run that was stopped may leave half a line
            raise LogError(f"{path}, line {number}: not a step of a training log") from error
        steps.append(step)
    if not steps:
        raise LogError(f"{path} has 0 steps; pass what --log has written")
    return steps


def smooth(values, weight=0.05):
    """Exponential mean, started with a short memory: a loss falls fast at first."""
    mean, smoothed = 0.0, []
    for count, value in enumerate(values, 1):
        mean += (value - mean) * max(weight, min(1.0, 4.0 / count))
        smoothed.append(mean)
    return smoothed


def ticks(low, high, most=6):
    """Round numbers that cover low to high."""
    span = max(high - low, 1e-9)
    raw = span / most
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def means_of(steps, parts):
    """The mean of each part, in milliseconds."""
    return [max(0.0, sum(s.get("split_ms", s)[name] for s in steps) / len(steps))
            for name, _, _ in parts]


def bins_of(steps, parts):
    """Means of the parts over runs of steps: (first step, last step, values)."""
    size = max(1, math.ceil(len(steps) / MOST_BINS))
    runs = [steps[at:at + size] for at in range(0, len(steps), size)]
    return [(run[0]["step"], run[-1]["step"], means_of(run, parts)) for run in runs]


class Panel:
    """One pair of axes; collects SVG elements."""

    def __init__(self, top, height, x_range, y_range):
        self.top, self.height, self.x_range, self.y_range = top, height, x_range, y_range
        self.elements = []

    def x(self, value):
        low, high = self.x_range
        return MARGIN_LEFT + PANEL_WIDTH * (value - low) / max(high - low, 1e-9)

    def y(self, value):
        low, high = self.y_range
        return self.top + self.height * (1.0 - (value - low) / max(high - low, 1e-9))

    def text(self, x, y, words, attributes=""):
        self.elements.append(f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{html.escape(words)}</text>')

    def axes(self, title, unit):
        bottom = self.top + self.height
        for value in ticks(*self.y_range):
            y = self.y(value)
            self.elements.append(f'<path class="grid" d="M{MARGIN_LEFT} {y:.1f}h{PANEL_WIDTH}"/>')
            self.text(MARGIN_LEFT - 8, y + 4, f"{value:g}", 'text-anchor="end"')
        for value in ticks(*self.x_range, most=10):
            self.text(self.x(value), bottom + 18, f"{value:g}", 'text-anchor="middle"')
        self.elements.append(f'<path class="axis" d="M{MARGIN_LEFT} {bottom}h{PANEL_WIDTH}"/>')
        self.text(MARGIN_LEFT + PANEL_WIDTH, bottom + 34, "step", 'text-anchor="end"')
        self.text(MARGIN_LEFT - 60, self.top - 14, f"{title}, {unit}", 'class="title"')

    def line(self, points, colour, style=""):
        """Points whose value is not finite leave a gap."""
        path, pen_down = "", False
        for x, y in points:
            if not math.isfinite(y):
                pen_down = False
                continue
            inside = min(max(y, self.y_range[0]), self.y_range[1])
            path += f"{'L' if pen_down else 'M'}{self.x(x):.1f} {self.y(inside):.1f}"
            pen_down = True
        self.elements.append(f'<path fill="none" stroke="{colour}" {style} d="{path}"/>')

    def dots(self, points, colour):
        for x, y in points:
            self.elements.append(
                f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3.5" fill="{colour}">'
                f"<title>step {x}: {y:.4f}</title></circle>")

    def rectangle(self, x_range, y_range, colour, words):
        left, right = self.x(x_range[0]), self.x(x_range[1])
        top, bottom = self.y(y_range[1]), self.y(y_range[0])
        self.elements.append(
            f'<rect x="{left:.2f}" y="{top:.1f}" width="{max(right - left, 0.1):.2f}" '
            f'height="{bottom - top:.1f}" fill="{colour}"><title>{html.escape(words)}</title></rect>')

    def legend(self, entries):
        """Colours and words, two in a row."""
        for i, (colour, words) in enumerate(entries):
            x = MARGIN_LEFT + (i % 2) * 430
            y = self.top + self.height + 52 + (i // 2) * 20
            self.elements.append(
                f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
            self.text(x + 18, y, words)


def loss_of(step):
    return step["loss"] if isinstance(step["loss"], (int, float)) else math.nan


def loss_panel(logs, top):
    """`logs`: pairs of a name and its steps."""
    seen = [loss_of(s) for _, steps in logs for s in steps]
    seen += [s[key] for _, steps in logs for s in steps for key in ("held_out", "order2") if key in s]
    seen = [value for value in seen if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(seen), max(seen)
    room = 0.04 * max(high - low, 0.1)
    last = max(steps[-1]["step"] for _, steps in logs)
    panel = Panel(top, 300, (0, last), (max(0.0, low - room), high + room))
    panel.axes("loss", "nats")
    legend = []
    for (name, steps), colour in zip(logs, RUN_COLOURS * (1 + len(logs) // len(RUN_COLOURS))):
        finite = [s for s in steps if math.isfinite(loss_of(s))]
        panel.line([(s["step"], loss_of(s)) for s in steps], colour, 'opacity="0.3"')
        means = smooth([loss_of(s) for s in finite])
        panel.line([(s["step"], mean) for s, mean in zip(finite, means)], colour,
                   'stroke-width="2"')
        held_out = [(s["step"], s["held_out"]) for s in steps if "held_out" in s]
        panel.line(held_out, colour, 'stroke-dasharray="2 3"')
        panel.dots(held_out, colour)
        ending = f", held out {held_out[-1][1]:.4f} (dots)" if held_out else ""
        legend.append((colour, f"{name}{ending}"))
    baseline = [s["order2"] for _, steps in logs for s in steps if "order2" in s]
    if baseline:
        panel.line([(0, baseline[0]), (last, baseline[0])], "#555", 'stroke-dasharray="6 4"')
        legend.append(("#555", f"order-2 model {baseline[0]:.4f}"))
    panel.legend(legend)
    return panel


def time_panel(steps, top):
    parts = PARTS if all("split_ms" in s for s in steps) else WHOLE
    bins = bins_of(steps, parts)
    sums = sorted(sum(values) for _, _, values in bins)
    high = 1.1 * sums[min(len(sums) - 1, math.ceil(0.98 * len(sums)))] or 1.0
    panel = Panel(top, 240, (0, steps[-1]["step"]), (0.0, high))
    panel.axes("time of a step", "ms")
    for first, last, values in bins:
        bottom = 0.0
        for (_, words, colour), value in zip(parts, values):
            words = f"steps {first} to {last}: {words} {value:.2f} ms"
            ends = min(bottom, high), min(bottom + value, high)
            panel.rectangle((first - 1, last), ends, colour, words)
            bottom += value
    panel.legend([(colour, f"{words}: {mean:.1f} ms")
                  for (_, words, colour), mean in zip(parts, means_of(steps, parts))])
    return panel


def draw(logs):
    """The whole drawing as one SVG element."""
    loss = loss_panel(logs, 60)
    legend_rows = math.ceil((len(logs) + 1) / 2)
    time = time_panel(logs[0][1], 60 + 300 + 110 + 20 * legend_rows)
    height = time.top + time.height + 120
    style = ("text{font:13px system-ui,sans-serif;fill:#222}.title{font-weight:600}"
             ".grid{stroke:#e3e3e3}.axis{stroke:#444}rect{shape-rendering:crispEdges}")
    elements = "\n".join(loss.elements + time.elements)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}"><style>{style}</style>\n'
            f'<rect width="100%" height="100%" fill="#fff"/>\n{elements}\n</svg>\n')


def page(svg, title):
    return (f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}'
            f"</title>\n<body>\n{svg}</body></html>\n")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="+", help="what --log has written")
    parser.add_argument("-o", "--output", help="a name ending in .svg or .html")
    options = parser.parse_args(arguments)
    output = pathlib.Path(options.output or pathlib.Path(options.log[0]).with_suffix(".svg"))
    try:
        if output.suffix not in (".svg", ".html"):
            raise LogError(f"--output {output} must end in .svg or .html")
        logs = [(pathlib.Path(path).name, read_log(path)) for path in options.log]
        svg = draw(logs)
        output.write_text(page(svg, output.stem) if output.suffix == ".html" else svg,
                          encoding="utf-8")
    except (LogError, OSError) as error:
        print(f"plot_log.py: {error}", file=sys.stderr)
        return 1
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
