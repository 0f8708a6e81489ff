// The curves of all runs: means over the seeds with bands, by step or by time, with zoom, hover and a legend that hides
// groups.

const curveState = {
  series: report.curves.views.length ? report.curves.views[0].name : '',
  axis: 'step',
  scale: 'linear',
  show: 'groups',
  hidden: new Set(),
  zoom: null,
  highlighted: null,
};

function curveControls(redrawChart) {
  const set = (key, keepsZoom) => (value) => {
    curveState[key] = value;
    if (!keepsZoom) curveState.zoom = null;
    redrawChart();
  };
  const zoomBy = (factor) => () => {
    const {x, y} = curveChart;
    const around =
        ([low,
          high]) => [(low + high) / 2 - ((high - low) * factor) / 2, (low + high) / 2 + ((high - low) * factor) / 2];
    curveState.zoom = {x: around(x.domain()), y: curveState.scale === 'log' ? y.domain() : around(y.domain())};
    redrawChart();
  };
  return make(
      'div', {class: 'controls'},
      choice(
          'show', report.curves.views.map(({name, title}) => ({value: name, label: title})), curveState.series,
          set('series')),
      choice('by', [{value: 'step', label: 'step'}, {value: 'time', label: 'training time'}], 'step', set('axis')),
      choice(
          'scale', [{value: 'linear', label: 'linear'}, {value: 'log', label: 'logarithmic'}], 'linear', set('scale')),
      choice(
          'as', [{value: 'groups', label: 'mean ± sd over seeds'}, {value: 'runs', label: 'every run'}], 'groups',
          set('show', true)),
      button('+', zoomBy(0.6), {'aria-label': 'zoom in'}), button('−', zoomBy(1 / 0.6), {'aria-label': 'zoom out'}),
      button('Reset zoom', () => {
        curveState.zoom = null;
        redrawChart();
      }, {id: 'reset-zoom'}));
}

// What is drawn: {group, x, y, low, high, kind}; kind is "validation", "train" or another series.
function visibleCurves() {
  const view = report.curves.views.find(({name}) => name === curveState.series);
  const curves = [];
  for (const name of view.series) {
    const series = report.curves.series[name];
    const list = curveState.show === 'runs' ? series.runs : series.groups;
    list.forEach((curve, i) => {
      if (!curve) return;
      const group = curveState.show === 'runs' ? report.runs[i].group : i;
      if (curveState.hidden.has(group)) return;
      const label = report.groups[group].name + (curveState.show === 'runs' ? `, seed ${report.runs[i].seed}` : '');
      curves.push({
        group,
        label,
        kind: view.series.length > 1 ? name.split(' ')[0] : 'validation',
        x: curve[curveState.axis],
        y: curve.value,
        low: curve.low,
        high: curve.high
      });
    });
  }
  return curves;
}

function curveLegend(redrawChart) {
  const list = make('ul', {class: `legend${report.groups.length > 16 ? ' many' : ''}`, 'aria-label': 'Groups'});
  report.groups.forEach((group, i) => {
    const highlight = (value) => () => {
      curveState.highlighted = value;
      fadeCurves();
    };
    const item = button('', () => {
      if (!curveState.hidden.delete(i)) curveState.hidden.add(i);
      item.setAttribute('aria-pressed', String(!curveState.hidden.has(i)));
      redrawChart();
    }, {
      'aria-pressed': 'true',
      title: 'show or hide',
      onmouseenter: highlight(i),
      onmouseleave: highlight(null),
      onfocus: highlight(i),
      onblur: highlight(null)
    });
    item.append(lineSwatch(i), `${group.name} (${group.runs.length})`);
    list.append(make('li', {}, item));
  });
  return list;
}

function fadeCurves() {
  d3.selectAll('#curve-chart .curve, #curve-chart .band')
      .classed('faded', (curve) => curveState.highlighted !== null && curve.group !== curveState.highlighted);
}

const curveChart = {};  // the scales and curves of the last drawing

function drawCurves(box, readout) {
  const curves = visibleCurves();
  const width = widthOf(box), height = width < 560 ? 300 : 420, margin = {left: 56, top: 10, right: 16, bottom: 40};
  const shownValues =
      curves.flatMap((curve) => [...curve.y, ...(curve.low || []), ...(curve.high || [])]).filter(Number.isFinite);
  const positive = curveState.scale === 'log' ? shownValues.filter((value) => value > 0) : shownValues;
  const zoom = curveState.zoom;
  const x = d3.scaleLinear().domain(zoom ? zoom.x : d3.extent(curves.flatMap((curve) => curve.x))).range([
    margin.left, width - margin.right
  ]);
  const y = (curveState.scale === 'log' ? d3.scaleLog() : d3.scaleLinear())
                .domain(zoom ? zoom.y : d3.extent(positive))
                .range([height - margin.bottom, margin.top]);
  if (!zoom && curveState.scale === 'linear') y.nice(6);
  Object.assign(curveChart, {x, y, curves});
  const svg = chart(width, height, {
    id: 'curve-chart',
    tabindex: 0,
    'aria-label': 'Curves of all runs. Arrow keys move along them, plus and minus zoom, 0 shows everything.'
  });
  drawAxes(svg, x, y, width, height, margin);
  const inner = {x: margin.left, y: 0, width: width - margin.left - margin.right, height: height - margin.bottom + 1};
  add(add(svg, 'clipPath', {id: 'curve-clip'}), 'rect', inner);
  drawLines(add(svg, 'g', {'clip-path': 'url(#curve-clip)'}), curves, x, y);
  add(svg, 'line', {class: 'cursor', y1: margin.top, y2: height - margin.bottom, visibility: 'hidden'});
  addZoom(
      svg, x, y, {left: margin.left, top: margin.top, right: width - margin.right, bottom: height - margin.bottom},
      readout);
  box.replaceChildren(svg.node());
}

function drawAxes(svg, x, y, width, height, margin) {
  const inner = {width: width - margin.left - margin.right, height: height - margin.top - margin.bottom};
  const bottom = d3.axisBottom(x).ticks(Math.max(3, inner.width / 110));
  if (curveState.axis === 'time') bottom.tickFormat((value) => shortDuration(value));
  drawAxis(svg, bottom, 0, height - margin.bottom, inner.height);
  const left = d3.axisLeft(y).ticks(6, curveState.scale === 'log' ? '~g' : undefined);
  drawAxis(svg, left, margin.left, 0, inner.width);
  const middle = {'text-anchor': 'middle'};
  label(svg, margin.left + inner.width / 2, height - 6, curveState.axis === 'time' ? 'training time' : 'step', middle);
  const view = report.curves.views.find(({name}) => name === curveState.series);
  label(
      svg, null, null, view.unit, {transform: `translate(13,${margin.top + inner.height / 2}) rotate(-90)`, ...middle});
}

function shortDuration(seconds) {
  if (seconds < 120) return `${Math.round(seconds * 10) / 10} s`;
  if (seconds < 7200) return `${Math.round(seconds / 6) / 10} min`;
  return `${Math.round(seconds / 360) / 10} h`;
}

function drawLines(layer, curves, x, y) {
  const visible = (value) => Number.isFinite(value) && (curveState.scale === 'linear' || value > 0);
  const line = d3.line().defined((p) => visible(p[1])).x((p) => x(p[0])).y((p) => y(p[1]));
  const area =
      d3.area().defined((p) => visible(p[1]) && visible(p[2])).x((p) => x(p[0])).y0((p) => y(p[1])).y1((p) => y(p[2]));
  const color = (curve) => curveColor(curve.group);
  const each = (name, css, shown) => layer.selectAll(`.${css}`).data(shown).join(name).attr('class', css);
  each('path', 'band', curves.filter((curve) => curve.low))
      .style('fill', color)
      .attr('d', (curve) => area(curve.x.map((value, i) => [value, curve.low[i], curve.high[i]])));
  set(each('path', 'curve', curves), {
    class: (curve) => `curve ${curve.kind}${curveState.show === 'runs' ? ' single' : ''}`,
    'stroke-dasharray': (curve) => curveDashes(curve.group),
    d: (curve) => line(curve.x.map((value, i) => [value, curve.y[i]]))
  }).style('stroke', color);
  set(each('circle', 'point', curves.filter((curve) => curve.x.length === 1)),
      {r: 4, cx: (curve) => x(curve.x[0]), cy: (curve) => y(curve.y[0])})
      .style('fill', color);
}

// Zoom by dragging, hover, and the same with the keyboard.

function addZoom(svg, x, y, area, readout) {
  const brush = d3.brush().extent([[area.left, area.top], [area.right, area.bottom]]).touchable(false).on('end', () => {
    const selection = d3.event.selection;
    if (!selection) return;
    const [[x0, y0], [x1, y1]] = selection;
    curveState.zoom = {x: [x.invert(x0), x.invert(x1)], y: [y.invert(y1), y.invert(y0)]};
    redraw();
  });
  const layer = svg.append('g').attr('class', 'brush').call(brush);
  layer.select('.selection').attr('stroke', null);
  const reset = () => {
    curveState.zoom = null;
    redraw();
  };
  svg.on('dblclick', reset)
      .on('mousemove touchstart touchmove',
          function() {
            const [mx, my] = d3.event.touches ? d3.touches(this)[0] : d3.mouse(this);
            const point = d3.event.touches ? d3.event.touches[0] : d3.event;
            if (mx >= area.left && mx <= area.right)
              showCurveValues(svg, x.invert(mx), y.invert(my), [point.clientX, point.clientY], readout);
          })
      .on('mouseleave', () => leaveCurves(svg))
      .on('blur', () => leaveCurves(svg))
      .on('keydown', () => moveByKey(svg, readout));
}

function leaveCurves(svg) {
  hideTooltip();
  svg.select('.cursor').attr('visibility', 'hidden');
}

let keyboardX = null;

function moveByKey(svg, readout) {
  const {x} = curveChart;
  const [low, high] = x.domain();
  const key = d3.event.key;
  if (key === 'ArrowLeft' || key === 'ArrowRight') {
    keyboardX = (keyboardX === null ? low : keyboardX) + ((key === 'ArrowLeft' ? -1 : 1) * (high - low)) / 40;
    keyboardX = Math.min(high, Math.max(low, keyboardX));
    const box = svg.node().getBoundingClientRect();
    showCurveValues(svg, keyboardX, null, [box.left + x(keyboardX), box.top + 60], readout);
  } else if (key === '+' || key === '=') {
    const middle = keyboardX === null ? (low + high) / 2 : keyboardX;
    curveState.zoom = {x: [middle - (high - low) * 0.3, middle + (high - low) * 0.3], y: curveChart.y.domain()};
    redraw();
  } else if (key === '-' || key === '0' || key === 'Escape') {
    curveState.zoom = null;
    redraw();
  } else {
    return;
  }
  d3.event.preventDefault();
  d3.select('#curve-chart').node().focus();
}

// The values of all curves at their points nearest to x; of more than 14 curves, those nearest to the pointer.
function showCurveValues(svg, atX, atY, [clientX, clientY], readout) {
  const most = 14;
  const {x, curves} = curveChart;
  const found = curves.filter((curve) => curve.x.length > 0)
                    .map((curve) => {
                      const right = d3.bisectLeft(curve.x, atX);
                      const i =
                          right > 0 && (right === curve.x.length || atX - curve.x[right - 1] < curve.x[right] - atX) ?
                          right - 1 :
                          right;
                      return {curve, i, value: curve.y[i]};
                    })
                    .filter(({value}) => Number.isFinite(value));
  if (!found.length) return;
  const nearest = found.reduce(
      (best, item) => (Math.abs(item.curve.x[item.i] - atX) < Math.abs(best.curve.x[best.i] - atX) ? item : best));
  const position = nearest.curve.x[nearest.i];
  if (atY !== null) found.sort((a, b) => Math.abs(a.value - atY) - Math.abs(b.value - atY));
  const rows = found.slice(0, most).sort((a, b) => b.value - a.value);
  const deviation = ({curve, i}) => (curve.low ? ` ± ${shortNumber((curve.high[i] - curve.low[i]) / 2)}` : '');
  const several = new Set(curves.map((curve) => curve.kind)).size > 1;
  const body = rows.map(
      (row) => make(
          'tr', {},
          make('td', {}, groupSwatch(row.curve.group), row.curve.label + (several ? ` (${row.curve.kind})` : '')),
          make('td', {style: 'white-space:nowrap'}, shortNumber(row.value) + deviation(row))));
  const heading = curveState.axis === 'time' ? duration(position) : `step ${fixed(position, 0)}`;
  svg.select('.cursor').attr('x1', x(position)).attr('x2', x(position)).attr('visibility', 'visible');
  showTooltip(clientX, clientY, make('strong', {}, heading), make('table', {}, make('tbody', {}, ...body)));
  readout.textContent =
      `${heading}: ` + rows.slice(0, 3).map((row) => `${row.curve.label} ${shortNumber(row.value)}`).join('; ');
}

function showCurves() {
  if (!report.curves.views.length) return;
  const section = addSection('curves', 'Curves');
  const box = make('figure', {style: 'margin:0'}), readout = make('p', {class: 'readout', 'aria-live': 'polite'});
  const draw = () => {
    drawCurves(box, readout);
    fadeCurves();
  };
  section.append(
      make('p', {class: 'soft'}, report.curves.description), curveControls(draw), curveLegend(draw), box, readout);
  keepDrawn(draw);
}
