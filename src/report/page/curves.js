// The curves of all runs: means over the seeds with bands, by step, time, tokens or operations, smoothed or not, with
// zoom, hover and a legend that hides groups.

const curveState = {
  series: '',
  axis: 'step',
  scale: 'linear',
  show: 'groups',
  smoothing: 0,       // weight of the values before
  hidden: new Set(),  // ids of groups
  zoom: null,         // {x: [low, high], y: [low, high]}
  highlighted: null,
};

const curveView = () => report.curves.views.find(({name}) => name === curveState.series) ?? report.curves.views[0];

const curveBox = make('figure'), curveReadout = make('p', {class: 'readout', 'aria-live': 'polite'}),
      curveNote = make('p', {class: 'soft'}), curveCaption = make('p', {class: 'on-paper'});

// What the curves may be drawn by: the ticks of the axis, and a position in words.
const curveAxes = {
  step: {name: 'step', title: 'step', format: null, words: (x) => `step ${fixed(x, 0)}`},
  time: {name: 'training time', title: 'training time', format: shortDuration, words: duration},
  tokens: {
    name: 'tokens',
    title: 'tokens of training',
    format: d3.format('~s'),
    words: (x) => `${d3.format('.3~s')(x)} tokens`
  },
  operations: {
    name: 'operations',
    title: 'operations of training: multiplications and additions of matrix products',
    format: d3.format('~s'),
    words: (x) => `${d3.format('.3~s')(x)} operations`
  }
};

// The positions of a curve's points on the chosen axis; nothing if they are not known.
function positionsOf(curve, run) {
  const axis = report.curves.axes[curve.axis];
  if (curveState.axis !== 'operations') return axis[curveState.axis];
  return axis.tokens && run.operations &&
      axis.tokens.map((tokens) => (tokens === null ? null : tokens * run.operations));
}

// The exponential moving average, unbiased at its start. Values that are not finite stay gaps.
function smoothed(values, weight) {
  let sum = 0, total = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

function redrawCurves(zoom = curveState.zoom) {
  curveState.zoom = zoom;
  hideTooltip();
  drawCurves();
  fadeCurves();
}

// The ends of a scale, nearer together or farther apart.
const zoomed = (scale, factor, middle = d3.mean(scale.domain())) => {
  const [low, high] = scale.domain(), half = ((high - low) * factor) / 2;
  return [middle - half, middle + half];
};

function curveControls() {
  const chosen = (key, title, options) => choice(title, options, curveState[key], (value) => {
    curveState[key] = value;
    redrawCurves(key === 'show' ? curveState.zoom : null);
  });
  const zoomBy = (factor) => () => {
    const {x, y} = curveChart;
    redrawCurves({x: zoomed(x, factor), y: curveState.scale === 'log' ? y.domain() : zoomed(y, factor)});
  };
  curveState.series = curveView().name;
  const axes = report.curves.axes, knowsTokens = axes.some(({tokens}) => tokens);
  const isKnown = {
    step: true,
    time: true,
    tokens: knowsTokens,
    operations: knowsTokens && report.runs.some((run) => run.operations)
  };
  if (!isKnown[curveState.axis]) curveState.axis = 'step';
  const byAxes = Object.entries(curveAxes).filter(([key]) => isKnown[key]).map(([key, {name}]) => [key, name]);
  const smooth = (value) => {
    curveState.smoothing = value;
    redrawCurves();
  };
  return make(
      'div', {class: 'controls'}, chosen('series', 'show', report.curves.views.map(({name, title}) => [name, title])),
      chosen('axis', 'by', byAxes), chosen('scale', 'scale', [['linear', 'linear'], ['log', 'logarithmic']]),
      chosen('show', 'as', [['groups', 'mean ± sd over seeds'], ['runs', 'every run']]),
      slider('smoothing', {min: 0, max: 0.99, step: 0.01}, curveState.smoothing, smooth),
      button('+', zoomBy(0.6), {'aria-label': 'zoom in'}), button('−', zoomBy(1 / 0.6), {'aria-label': 'zoom out'}),
      button('Reset zoom', () => redrawCurves(null), {id: 'reset-zoom'}));
}

// What is drawn, as drawLines() takes it; kind is "validation", "train" or another series.
function visibleCurves() {
  const {series: names} = curveView(), runs = curveState.show === 'runs';
  return names.flatMap((name) => report.curves.series[name][curveState.show].flatMap((curve, i) => {
    const group = runs ? report.runs[i].group : i, {smoothing} = curveState;
    if (!curve || curveState.hidden.has(report.groups[group].id)) return [];
    const run = report.runs[runs ? i : report.groups[group].runs.find((one) => report.runs[one].operations)];
    const x = positionsOf(curve, run ?? {});
    if (!x) return [];
    const label = report.groups[group].name + (runs ? `, seed ${report.runs[i].seed}` : '');
    const kind = names.length > 1 ? name.split(' ')[0] : 'validation', css = kind + (runs ? ' single' : '');
    const at = d3.range(x.length).filter((point) => x[point] !== null),
          pick = (values) => values && at.map((i) => values[i]);
    const smooth = (values) => (smoothing && values ? smoothed(values, smoothing) : values);
    const [value, low, high] = [curve.value, curve.low, curve.high].map(pick);
    return {
      group,
      label,
      kind,
      css,
      x: pick(x),
      y: smooth(value),
      low: smooth(low),
      high: smooth(high),
      raw: smoothing ? value : null
    };
  }));
}

function curveLegend() {
  const highlight = (group) => () => fadeCurves(group);
  const items = report.groups.map((group, i) => {
    const {id} = group, isShown = () => String(!curveState.hidden.has(id));
    const toggle = () => {
      if (!curveState.hidden.delete(id)) curveState.hidden.add(id);
      item.setAttribute('aria-pressed', isShown());
      redrawCurves();
    };
    const [over, out] = [highlight(i), highlight(null)];
    const events = {onmouseenter: over, onmouseleave: out, onfocus: over, onblur: out};
    const item = button('', toggle, {'aria-pressed': isShown(), title: 'show or hide', 'data-place': id, ...events});
    item.append(lineSwatch(i), `${group.name} (${group.runs.length})`);
    return make('li', {}, item);
  });
  return make('ul', {class: `legend${items.length > 16 ? ' many' : ''}`, 'aria-label': 'Groups'}, ...items);
}

function fadeCurves(group = curveState.highlighted) {
  curveState.highlighted = group;
  d3.selectAll('#curve-chart .curve, #curve-chart .band, #curve-chart .raw')
      .classed('faded', (curve) => group !== null && curve.group !== group);
}

const curveChart = {};  // the scales and curves of the last drawing

function drawCurves() {
  const curves = visibleCurves(), {zoom} = curveState, log = curveState.scale === 'log';
  const width = widthOf(curveBox), height = width < 560 ? 300 : 420;
  const area = {left: 56, top: 10, right: width - 16, bottom: height - 40};
  const isShown = isShownOn(log);
  const x = d3.scaleLinear().domain(zoom ? zoom.x : d3.extent(curves.flatMap((curve) => curve.x)));
  const y = (log ? d3.scaleLog() : d3.scaleLinear()).domain(zoom ? zoom.y : d3.extent(valuesOf(curves, isShown)));
  x.range([area.left, area.right]);
  y.range([area.bottom, area.top]);
  if (!zoom && !log) y.nice(6);
  Object.assign(curveChart, {x, y, curves});
  const svg = chart(width, height, {
    id: 'curve-chart',
    tabindex: 0,
    'aria-label': 'Curves of all runs. Arrow keys move along them, plus and minus zoom, 0 shows everything.'
  });
  drawAxes(svg, x, y, height, area);
  const inner = {x: area.left, y: 0, width: area.right - area.left, height: area.bottom + 1};
  add(add(svg, 'clipPath', {id: 'curve-clip'}), 'rect', inner);
  drawLines(add(svg, 'g', {'clip-path': 'url(#curve-clip)'}), curves, x, y, isShown, 1, 4);
  add(svg, 'line', {class: 'cursor', y1: area.top, y2: area.bottom, visibility: 'hidden'});
  addZoom(svg, x, y, area);
  curveBox.replaceChildren(svg.node());
  const {smoothing} = curveState;
  curveCaption.textContent =
      `${curveView().title} by ${curveAxes[curveState.axis].name}${smoothing ? `, smoothing ${smoothing}` : ''}`;
  noteMissingCurves();
}

function drawAxes(svg, x, y, height, area) {
  const width = area.right - area.left, {format, title} = curveAxes[curveState.axis];
  const bottom = d3.axisBottom(x).ticks(Math.max(3, width / 110));
  if (format) bottom.tickFormat(format);
  drawAxis(svg, bottom, 0, area.bottom, area.bottom - area.top);
  const largest = d3.max(y.domain(), Math.abs),
        yFormat = largest >= 1e4 ? '~s' :
      curveState.scale === 'log' ? '~g' :
                                   undefined;
  drawAxis(svg, d3.axisLeft(y).ticks(6, yFormat), area.left, 0, width);
  label(svg, area.left + width / 2, height - 6, width < 400 ? title.split(':')[0] : title, {'text-anchor': 'middle'});
  turnedLabel(svg, 13, (area.top + area.bottom) / 2, curveView().unit);
}

function shortDuration(seconds) {
  if (seconds < 120) return `${Math.round(seconds * 10) / 10} s`;
  if (seconds < 7200) return `${Math.round(seconds / 6) / 10} min`;
  return `${Math.round(seconds / 360) / 10} h`;
}

// Zoom by dragging, hover, and the same with the keyboard.

function addZoom(svg, x, y, {left, top, right, bottom}) {
  const brush = d3.brush().extent([[left, top], [right, bottom]]).touchable(false).on('end', () => {
    if (!d3.event.selection) return;
    const [[x0, y0], [x1, y1]] = d3.event.selection;
    redrawCurves({x: [x.invert(x0), x.invert(x1)], y: [y.invert(y1), y.invert(y0)]});
  });
  svg.append('g').attr('class', 'brush').call(brush).select('.selection').attr('stroke', null);
  const follow = () => {
    const [mx, my, ...place] = pointer(svg.node());
    if (mx >= left && mx <= right) showCurveValues(svg, x.invert(mx), y.invert(my), place);
  };
  const leave = () => {
    hideTooltip();
    svg.select('.cursor').attr('visibility', 'hidden');
  };
  svg.on('dblclick', () => redrawCurves(null))
      .on('mousemove touchstart touchmove', follow)
      .on('mouseleave blur', leave)
      .on('keydown', () => moveByKey(svg));
}

let keyboardX = null;

function moveByKey(svg) {
  const {x, y} = curveChart, [low, high] = x.domain(), {key} = d3.event;
  if (key === 'ArrowLeft' || key === 'ArrowRight') {
    const moved = (keyboardX ?? low) + ((key === 'ArrowLeft' ? -1 : 1) * (high - low)) / 40;
    keyboardX = Math.min(high, Math.max(low, moved));
    const box = svg.node().getBoundingClientRect();
    showCurveValues(svg, keyboardX, null, [box.left + x(keyboardX), box.top + 60]);
  } else if (key === '+' || key === '=') {
    redrawCurves({x: zoomed(x, 0.6, keyboardX ?? undefined), y: y.domain()});
  } else if (key === '-' || key === '0' || key === 'Escape') {
    redrawCurves(null);
  } else {
    return;
  }
  d3.event.preventDefault();
  d3.select('#curve-chart').node().focus();
}

// The values of all curves at their points nearest to x; of more than 14 curves, those nearest to the pointer.
function showCurveValues(svg, atX, atY, place) {
  const most = 14, {x, curves} = curveChart;
  const found = curves.filter((curve) => curve.x.length > 0)
                    .map((curve) => {
                      const i = d3.scan(curve.x, (a, b) => Math.abs(a - atX) - Math.abs(b - atX));
                      const deviation = curve.low ? ` ± ${shortNumber((curve.high[i] - curve.low[i]) / 2)}` : '';
                      const more = curve.raw ? ` (not smoothed: ${shortNumber(curve.raw[i])})` : deviation;
                      return {...curve, x: curve.x[i], value: curve.y[i], more};
                    })
                    .filter(({value}) => Number.isFinite(value));
  if (!found.length) return;
  const position = found[d3.scan(found, (a, b) => Math.abs(a.x - atX) - Math.abs(b.x - atX))].x;
  if (atY !== null) found.sort((a, b) => Math.abs(a.value - atY) - Math.abs(b.value - atY));
  const rows = found.slice(0, most).sort((a, b) => b.value - a.value);
  const several = new Set(curves.map(({kind}) => kind)).size > 1;
  const body = rows.map(({group, label: name, kind, value, more}) => row('td', [
                          make('td', {}, groupSwatch(group), name + (several ? ` (${kind})` : '')),
                          make('td', {class: 'value'}, shortNumber(value) + more)
                        ]));
  const heading = curveAxes[curveState.axis].words(position);
  set(svg.select('.cursor'), {x1: x(position), x2: x(position), visibility: 'visible'});
  showTooltip(...place, make('strong', {}, heading), make('table', {}, make('tbody', {}, ...body)));
  const values = rows.slice(0, 3).map(({label: name, value}) => `${name} ${shortNumber(value)}`);
  curveReadout.textContent = `${heading}: ${values.join('; ')}`;
}

// Names the groups without a curve of the chosen kind and axis.
function noteMissingCurves() {
  const found = new Set(curveChart.curves.map(({group}) => group));
  const missing = report.groups.filter(({id}, i) => !found.has(i) && !curveState.hidden.has(id)).map(({name}) => name);
  const by = curveState.axis === 'step' ? '' : ` by ${curveAxes[curveState.axis].name}`;
  curveNote.textContent = missing.length ? `Without ${curveView().title}${by}: ${missing.join(', ')}.` : '';
  curveNote.hidden = !missing.length;
}

function showCurves() {
  if (!report.curves.views.length) return null;
  keepDrawn(() => redrawCurves());
  const text = soft(report.curves.description);
  return makeSection(
      'curves', 'Curves', text, curveControls(), curveLegend(), curveCaption, curveBox, curveNote, curveReadout);
}
