"""Line charts as SVG files: panels side by side with logarithmic axes, one line per series, a legend below."""
import math
import re
from html import escape
from pathlib import Path

# The colours and dashes of the program's own figures.
SOURCE = (Path(__file__).resolve().parents[2] / "src" / "report" / "figure.cpp").read_text(encoding="utf-8")
LIGHT, DARK = (re.findall("0x([0-9a-f]{6})", colours) for colours in re.findall(r"\.curves = \{([^}]*)\}", SOURCE))
DASHES = re.findall('"([0-9 ]+)"', re.search(r"> dashes = \{([^}]*)\}", SOURCE)[1])
SOLID = 3  # lines before the first dashed one
WIDTH, HEIGHT, LEFT, TOP, GAP = 250, 200, 76, 56, 92  # sizes of a panel, and the space around it


def ticks(low, high):
    """1, 2 and 5 times powers of ten between two numbers; only powers if these are more than six."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    return fine if len(fine) <= 6 else [t for t in fine if math.log10(t).is_integer()]


def text(x, y, words, anchor="middle", kind="label"):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def line(number, path):
    """A path in the colour and the dashes of a series."""
    dash = f" h{(number - SOLID) % len(DASHES)}" if number >= SOLID else ""
    return f'<path class="line c{number % len(LIGHT)}{dash}" d="{path}"/>'


def panel(left, title, unit, series, numbers):
    """`series`: {name: [(x, y), ...]}, all numbers above 0."""
    points = [point for points in series.values() for point in points]
    xs, ys = sorted({x for x, _ in points}), [y for _, y in points]
    low, high = min(ys) / 1.15, max(ys) * 1.15
    place_x = lambda x: left + WIDTH * math.log(x / xs[0]) / math.log(xs[-1] / xs[0])
    place_y = lambda y: TOP + HEIGHT * (1 - math.log(y / low) / math.log(high / low))
    parts = [text(left + WIDTH / 2, TOP - 14, title, kind="name")]
    for y in ticks(low, high):
        parts.append(f'<path class="grid" d="M{left} {place_y(y):.1f}h{WIDTH}"/>')
        parts.append(text(left - 6, place_y(y) + 4, f"{y:,.0f} {unit}", "end"))
    parts += [text(place_x(x), TOP + HEIGHT + 16, f"{x:,}") for x in xs]
    for name, points in series.items():
        parts.append(line(numbers[name], "M" + "L".join(f"{place_x(x):.1f} {place_y(y):.1f}" for x, y in sorted(points))))
        parts += [f'<circle class="p{numbers[name] % len(LIGHT)}" cx="{place_x(x):.1f}" cy="{place_y(y):.1f}" r="2.5"/>'
                  for x, y in points]
    return parts


def rules(colours, paper, label, title, grid):
    rules = f".paper{{fill:#{paper}}}.label{{fill:#{label}}}.title,.name{{fill:#{title}}}.grid{{stroke:#{grid}}}"
    return rules + "".join(f".c{i}{{stroke:#{colour}}}.p{i}{{fill:#{colour}}}" for i, colour in enumerate(colours))


def line_figure(title, x_name, panels):
    """The text of an SVG file. `panels`: [(title, unit, {series: [(x, y), ...]}), ...]."""
    names = list(dict.fromkeys(name for _, _, series in panels for name in series))
    numbers = {name: number for number, name in enumerate(names)}
    width = LEFT + len(panels) * (WIDTH + GAP)
    per_row = 3
    height = TOP + HEIGHT + 52 + 18 * math.ceil(len(names) / per_row)
    parts = [text(12, 20, title, "start", "title")]
    for number, (name, unit, series) in enumerate(panels):
        left = LEFT + number * (WIDTH + GAP)
        parts += panel(left, name, unit, series, numbers) + [text(left + WIDTH / 2, TOP + HEIGHT + 34, x_name)]
    for number, name in enumerate(names):
        x, y = LEFT + number % per_row * 200, TOP + HEIGHT + 56 + 18 * (number // per_row)
        parts += [line(number, f"M{x} {y - 4}h36"), text(x + 42, y, name, "start")]
    style = ('text{font-family:Helvetica,Arial,"DejaVu Sans",sans-serif;font-size:11px}.title{font-size:15px;font-weight:bold}'
             ".name{font-weight:bold}.line{fill:none;stroke-width:1.6}"
             + "".join(f".h{i}{{stroke-dasharray:{dash}}}" for i, dash in enumerate(DASHES))
             + rules(LIGHT, "ffffff", "55544f", "1b1b19", "e3e2dd")
             + "\n@media (prefers-color-scheme:dark){" + rules(DARK, "1a1a19", "b8b7b0", "f2f1ec", "383835") + "}")
    size = f'width="{width}" height="{height}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" role="img">',
                      f"<title>{escape(title)}</title>", f"<style>{style}</style>", f'<rect class="paper" {size}/>', *parts,
                      "</svg>", ""])
