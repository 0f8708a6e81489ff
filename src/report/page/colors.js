// Colours, from the CSS variables that hold them for light and dark ground.

const curveColors = 8;
const curveColor = (number) => `var(--curve-${number % curveColors})`;
// From the ninth group on colours repeat, with dashes.
const curveDashes = (number) => (Math.floor(number / curveColors) % 2 ? '6 4' : null);

function paletteStops(name) {
  const style = getComputedStyle(document.documentElement);
  return [0, 1, 2, 3, 4].map((i) => style.getPropertyValue(`--${name}-${i}`).trim());
}

// From a value to a colour; `scale` is {kind: 'sequential' | 'diverging', low, high}.
function colorScale(scale) {
  const stops = paletteStops(scale.kind);
  const positions = stops.map((_, i) => scale.low + ((scale.high - scale.low) * i) / (stops.length - 1));
  return d3.scaleLinear().domain(positions).range(stops).interpolate(d3.interpolateRgb).clamp(true);
}

// Probabilities and distances start at 0; scores and weights are symmetric about 0.
function scaleOf(kind, low, high) {
  if (kind === 'diverging') {
    const largest = Math.max(Math.abs(low), Math.abs(high)) || 1;
    return {kind, low: -largest, high: largest};
  }
  return {kind, low: Math.min(0, low), high: high > Math.min(0, low) ? high : low + 1};
}

const groupSwatch = (group) =>
    make('span', {class: 'swatch', style: `background:${curveColor(group)}`, 'aria-hidden': 'true'});

function lineSwatch(group) {
  const svg = chart(24, 10).attr('aria-hidden', 'true');
  svg.append('line')
      .attr('x1', 0)
      .attr('x2', 24)
      .attr('y1', 5)
      .attr('y2', 5)
      .attr('stroke-width', 2.5)
      .style('stroke', curveColor(group))
      .attr('stroke-dasharray', curveDashes(group));
  return svg.node();
}
