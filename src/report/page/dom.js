// Elements, numbers, colours, the tooltip, and drawings that follow the width and the colour scheme. Text from runs is
// only ever set as textContent.

let report = JSON.parse(document.getElementById('report-data').textContent);

// make('p', {class: 'note'}, 'text', otherElement). Names that start with "on" are event listeners; a null, false or
// missing attribute or child is left out.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on'))
      element.addEventListener(key.slice(2), value);
    else if (value != null && value !== false)
      element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

// A name that may break after these signs.
const breakable = (name) => name.split(/(?<=[_=./])/).flatMap((part, i) => (i ? [make('wbr'), part] : [part]));

const soft = (text) => make('p', {class: 'soft'}, text);

function makeSection(id, title, ...content) {
  const name = `${id}-title`;
  return make('section', {id, 'aria-labelledby': name}, make('h2', {id: name}, title), ...content);
}

// A labelled drop-down list; options are [value, text].
function choice(label, options, value, onchange) {
  const select = make('select', {onchange: () => onchange(select.value), 'data-place': label});
  select.append(...options.map(([value, text]) => make('option', {value}, text)));
  select.value = value;
  return make('label', {}, `${label} `, select);
}

// A slider with its value beside it.
function slider(label, {min, max, step}, value, oninput) {
  const shown = make('output', {}, value.toFixed(2));
  const input = make('input', {
    type: 'range',
    min,
    max,
    step,
    'data-place': label,
    oninput: () => {
      shown.textContent = Number(input.value).toFixed(2);
      oninput(Number(input.value));
    }
  });
  input.value = value;
  return make('label', {}, `${label} `, input, shown);
}

// Replaces the content of an element, and gives the keyboard's focus to the new element with the same data-place.
function replaceInside(element, ...children) {
  const active = document.activeElement, place = element.contains(active) && active.dataset.place;
  element.replaceChildren(...children);
  if (!place) return;
  const next = [...element.querySelectorAll('[data-place]')].find((other) => other.dataset.place === place);
  next?.focus({preventScroll: true});
}

const button = (label, onclick, attributes = {}) => make('button', {type: 'button', onclick, ...attributes}, label);

const minus = (text) => text.replace('-', '−');
const fixed = (value, most, least = most) =>
    minus(value.toLocaleString('en-US', {minimumFractionDigits: least, maximumFractionDigits: most}));

// Four significant digits; very small and very large numbers with an exponent.
function shortNumber(value) {
  if (!Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return minus(value.toExponential(2));
  const digits = Math.max(0, 3 - Math.floor(Math.log10(size)));
  return fixed(value, digits, Math.min(digits, 2));
}

const percent = (fraction) => (Number.isFinite(fraction) ? `${(100 * fraction).toFixed(1)}%` : null);

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

// Everything drawn with the current width and colours, of the section that is being made. It is drawn once the section
// is in the page, and again when these change.
let newDrawings = [];
const keepDrawn = (draw) => newDrawings.push(draw);

// Sets attributes of a d3 selection.
function set(selection, attributes) {
  for (const [key, value] of Object.entries(attributes)) selection.attr(key, value);
  return selection;
}
const add = (parent, name, attributes) => set(parent.append(name), attributes);
const label = (parent, x, y, text, attributes = {}) => add(parent, 'text', {x, y, ...attributes}).text(text);
// A label in the middle of a vertical axis.
const turnedLabel = (parent, x, y, text, attributes) => label(
    parent, null, null, text, {transform: `translate(${x},${y}) rotate(-90)`, 'text-anchor': 'middle', ...attributes});
// New elements of a class, one for each of the data.
const each = (parent, name, css, data) => parent.selectAll(`.${css}`).data(data).join(name).attr('class', css);

// An SVG that shrinks where it is given less room, as on paper.
const chart = (width, height, attributes = {}) =>
    set(d3.create('svg'), {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', ...attributes});

// An axis of d3 at x, y with grid lines of this length.
function drawAxis(svg, axis, x, y, gridLength) {
  const format = axis.tickFormat(), transform = `translate(${x},${y})`;
  add(svg, 'g', {class: 'grid', transform}).call(axis.tickSize(-gridLength).tickFormat(''));
  add(svg, 'g', {class: 'axis', transform}).call(axis.tickSize(6).tickFormat(format));
}

// Where the pointer is: in the coordinates of an SVG element, and in those of the window.
function pointer(element) {
  const event = d3.event.touches?.[0] ?? d3.event;
  return [...d3.clientPoint(element, event), event.clientX, event.clientY];
}

// Bands, lines and dots of {group, label, css, x, y, low, high, raw} in the colour of the group, where values are
// shown; raw: pale values behind a smoothed line. Lines of at most `dotted` points have dots.
function drawLines(layer, lines, x, y, isShown, dotted, radius) {
  const path = d3.line().defined((p) => isShown(p[1])).x((p) => x(p[0])).y((p) => y(p[1]));
  const area = d3.area().defined((p) => isShown(p[1]) && isShown(p[2]));
  area.x((p) => x(p[0])).y0((p) => y(p[1])).y1((p) => y(p[2]));
  const color = ({group}) => curveColor(group);
  each(layer, 'path', 'band', lines.filter(({low}) => low))
      .style('fill', color)
      .attr('d', (line) => area(d3.zip(line.x, line.low, line.high)));
  set(each(layer, 'path', 'raw', lines.filter(({raw}) => raw)), {
    d: (line) => path(d3.zip(line.x, line.raw))
  }).style('stroke', color);
  set(each(layer, 'path', 'curve', lines),
      {class: ({css}) => `curve ${css}`, d: (line) => path(d3.zip(line.x, line.y))})
      .style('stroke', color)
      .style('stroke-dasharray', ({group}) => curveDashes(group));
  const points = lines.filter((line) => line.x.length <= dotted).flatMap((line) => line.x.map((at, i) => {
    return {...line, at, value: line.y[i]};
  }));
  const dots = each(layer, 'circle', 'point', points.filter(({value}) => isShown(value))).style('fill', color);
  set(dots, {r: radius, cx: ({at}) => x(at), cy: ({value}) => y(value)});
  dots.append('title').text((point) => `${point.label}: ${shortNumber(point.value)}`);
}

// Which values an axis has a place for, and all values of lines that have one.
const isShownOn = (log) => (value) => Number.isFinite(value) && (!log || value > 0);
const valuesOf = (lines, isShown) =>
    lines.flatMap(({y, low, high, raw}) => [y, low, high, raw].flatMap((values) => values ?? [])).filter(isShown);

const widthOf = (element) => Math.max(240, Math.floor(element.getBoundingClientRect().width));

// Colours, from the CSS variables that hold them for light and dark ground, and dashes from the fourth line on.
const curveColors = 8, solidCurves = 3, dashKinds = 5;
const curveColor = (number) => `var(--curve-${number % curveColors})`;
const curveDashes = (number) => (number < solidCurves ? null : `var(--dash-${(number - solidCurves) % dashKinds})`);

// From a value to a colour; `scale` is {kind: 'sequential' | 'diverging', low, high}.
function colorScale({kind, low, high}) {
  const style = getComputedStyle(document.documentElement);
  const colors = d3.range(5).map((i) => style.getPropertyValue(`--${kind}-${i}`).trim());
  return d3.scaleSequential([low, high], d3.piecewise(d3.interpolateRgb, colors)).clamp(true);
}

// Probabilities and distances start at 0; scores and weights are symmetric about 0.
function scaleOf(kind, {low, high}) {
  const largest = Math.max(Math.abs(low), Math.abs(high)) || 1, start = Math.min(0, low);
  if (kind === 'diverging') return {kind, low: -largest, high: largest};
  return {kind, low: start, high: high > start ? high : low + 1};
}

const groupSwatch = (group) =>
    make('span', {class: 'swatch', style: `background:${curveColor(group)}`, 'aria-hidden': 'true'});

function lineSwatch(group) {
  const svg = chart(30, 10, {role: null, 'aria-hidden': 'true'});
  add(svg, 'line', {x1: 0, x2: 30, y1: 5, y2: 5, 'stroke-width': 2.5})
      .style('stroke', curveColor(group))
      .style('stroke-dasharray', curveDashes(group));
  return svg.node();
}
