"""Line charts as SVG files: panels side by side with logarithmic axes, one line per series, a legend below."""
import math
from html import escape

COLOURS = ("#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#e87ba4", "#008300", "#4a3aa7", "#e34948")
WIDTH, HEIGHT, LEFT, TOP, GAP = 250, 200, 76, 56, 92  # sizes of a panel, and the space around it


def ticks(low, high):
    """1, 2 and 5 times powers of ten between two numbers; only powers if these are more than six."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    return fine if len(fine) <= 6 else [t for t in fine if math.log10(t).is_integer()]


def text(x, y, words, anchor="middle", kind="label"):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def panel(left, title, unit, series, colours):
    """`series`: {name: [(x, y), ...]}, all numbers above 0."""
    points = [point for line in series.values() for point in line]
    xs, ys = sorted({x for x, _ in points}), [y for _, y in points]
    low, high = min(ys) / 1.15, max(ys) * 1.15
    place_x = lambda x: left + WIDTH * math.log(x / xs[0]) / math.log(xs[-1] / xs[0])
    place_y = lambda y: TOP + HEIGHT * (1 - math.log(y / low) / math.log(high / low))
    parts = [text(left + WIDTH / 2, TOP - 14, title, kind="name")]
    for y in ticks(low, high):
        parts.append(f'<path class="grid" d="M{left} {place_y(y):.1f}h{WIDTH}"/>')
        parts.append(text(left - 6, place_y(y) + 4, f"{y:,.0f} {unit}", "end"))
    parts += [text(place_x(x), TOP + HEIGHT + 16, f"{x:,}") for x in xs]
    for name, line in series.items():
        path = "L".join(f"{place_x(x):.1f} {place_y(y):.1f}" for x, y in sorted(line))
        parts.append(f'<path class="line" stroke="{colours[name]}" d="M{path}"/>')
        parts += [f'<circle cx="{place_x(x):.1f}" cy="{place_y(y):.1f}" r="2.5" fill="{colours[name]}"/>' for x, y in line]
    return parts


def line_figure(title, x_name, panels):
    """The text of an SVG file. `panels`: [(title, unit, {series: [(x, y), ...]}), ...]."""
    names = list(dict.fromkeys(name for _, _, series in panels for name in series))
    colours = dict(zip(names, COLOURS))
    width = LEFT + len(panels) * (WIDTH + GAP)
    per_row = 3
    height = TOP + HEIGHT + 52 + 18 * math.ceil(len(names) / per_row)
    parts = [text(12, 20, title, "start", "title")]
    for number, (name, unit, series) in enumerate(panels):
        left = LEFT + number * (WIDTH + GAP)
        parts += panel(left, name, unit, series, colours) + [text(left + WIDTH / 2, TOP + HEIGHT + 34, x_name)]
    for number, name in enumerate(names):
        x, y = LEFT + number % per_row * 200, TOP + HEIGHT + 56 + 18 * (number // per_row)
        parts += [f'<rect x="{x}" y="{y - 8}" width="16" height="4" fill="{colours[name]}"/>', text(x + 22, y, name, "start")]
    style = ('text{font-family:Helvetica,Arial,"DejaVu Sans",sans-serif;font-size:11px}.title{font-size:15px;font-weight:bold}'
             ".name{font-weight:bold}.line{fill:none;stroke-width:1.6}.paper{fill:#ffffff}.label{fill:#55544f}.title,.name{fill:#1b1b19}"
             ".grid{stroke:#e3e2dd}@media (prefers-color-scheme:dark){.paper{fill:#1a1a19}.label{fill:#b8b7b0}.title,.name{fill:#f2f1ec}"
             ".grid{stroke:#383835}}")
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
                      f"<title>{escape(title)}</title>", f"<style>{style}</style>",
                      f'<rect class="paper" width="{width}" height="{height}"/>', *parts, "</svg>", ""])
