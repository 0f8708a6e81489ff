// Elements, numbers, colours, the tooltip, and drawings that follow the width and the colour scheme. Text from runs is
// only ever set as textContent.

const report = JSON.parse(document.getElementById('report-data').textContent);

// make('p', {class: 'note'}, 'text', otherElement). Names that start with "on" are event listeners.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on'))
      element.addEventListener(key.slice(2), value);
    else
      element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function addSection(id, title, ...content) {
  const section =
      make('section', {id, 'aria-labelledby': `${id}-title`}, make('h2', {id: `${id}-title`}, title), ...content);
  document.getElementById('content').append(section);
  document.getElementById('sections').append(make('li', {}, make('a', {href: `#${id}`}, title)));
  return section;
}

// A labelled drop-down list; options are {value, label}.
function choice(label, options, value, onchange) {
  const select = make('select', {onchange: () => onchange(select.value), 'data-place': label});
  for (const option of options) select.append(make('option', {value: option.value}, option.label));
  select.value = value;
  return make('label', {}, `${label} `, select);
}

// Replaces the content of an element, and gives the keyboard's focus to the new element with the same data-place.
function replaceInside(element, ...children) {
  const active = document.activeElement, place = element.contains(active) ? active.dataset.place : undefined;
  element.replaceChildren(...children);
  const next = place && [...element.querySelectorAll('[data-place]')].find((found) => found.dataset.place === place);
  if (next) next.focus();
}

const button = (label, onclick, attributes = {}) => make('button', {type: 'button', onclick, ...attributes}, label);

// Four significant digits; very small and very large numbers with an exponent.
function shortNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(2).replace('-', '−');
  const digits = Math.max(0, 3 - Math.floor(Math.log10(size)));
  return value.toLocaleString('en-US', {maximumFractionDigits: digits, minimumFractionDigits: Math.min(digits, 2)})
      .replace('-', '−');
}

const minus = (text) => text.replace('-', '−');
const fixed = (value, digits) =>
    minus(value.toLocaleString('en-US', {minimumFractionDigits: digits, maximumFractionDigits: digits}));

const percent = (fraction) => (typeof fraction === 'number' ? `${(100 * fraction).toFixed(1)}%` : null);

function duration(seconds) {
  if (!Number.isFinite(seconds)) return '–';
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

const tooltip = document.getElementById('tooltip');

// Shows content next to a point of the window, inside the window.
function showTooltip(x, y, ...content) {
  tooltip.replaceChildren(...content);
  tooltip.hidden = false;
  const box = tooltip.getBoundingClientRect();
  const left = x + 16 + box.width > window.innerWidth ? x - 16 - box.width : x + 16;
  const top = Math.min(Math.max(6, y - box.height / 2), window.innerHeight - box.height - 6);
  tooltip.style.left = `${Math.max(6, left)}px`;
  tooltip.style.top = `${top}px`;
}
function hideTooltip() { tooltip.hidden = true; }

// Everything drawn with the current width and colours. Redrawn when they change.
const drawings = [];
function keepDrawn(draw) {
  drawings.push(draw);
  draw();
}
function redraw() {
  hideTooltip();
  drawings.forEach((draw) => draw());
}

// Sets attributes of a d3 selection.
function set(selection, attributes) {
  for (const [key, value] of Object.entries(attributes)) selection.attr(key, value);
  return selection;
}
const add = (parent, name, attributes) => set(parent.append(name), attributes);
const label = (parent, x, y, text, attributes = {}) => add(parent, 'text', {x, y, ...attributes}).text(text);

// An SVG that shrinks where it is given less room, as on paper.
const chart = (width, height, attributes = {}) =>
    set(d3.create('svg'), {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', ...attributes});

// An axis of d3 at x, y with grid lines of this length.
function drawAxis(svg, axis, x, y, gridLength) {
  const format = axis.tickFormat();
  add(svg, 'g', {class: 'grid', transform: `translate(${x},${y})`}).call(axis.tickSize(-gridLength).tickFormat(''));
  add(svg, 'g', {class: 'axis', transform: `translate(${x},${y})`}).call(axis.tickSize(6).tickFormat(format));
}

const widthOf = (element) => Math.max(240, Math.floor(element.getBoundingClientRect().width));

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
  const svg = chart(24, 10, {role: null, 'aria-hidden': 'true'});
  add(svg, 'line', {x1: 0, x2: 24, y1: 5, y2: 5, 'stroke-width': 2.5, 'stroke-dasharray': curveDashes(group)})
      .style('stroke', curveColor(group));
  return svg.node();
}
