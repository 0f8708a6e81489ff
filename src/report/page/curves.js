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
  const svg =
      chart(width, height)
          .attr('id', 'curve-chart')
          .attr('tabindex', 0)
          .attr('role', 'img')
          .attr(
              'aria-label', 'Curves of all runs. Arrow keys move along them, plus and minus zoom, 0 shows everything.');
  drawAxes(svg, x, y, width, height, margin);
  const clip = svg.append('clipPath').attr('id', 'curve-clip').append('rect');
  clip.attr('x', margin.left)
      .attr('y', 0)
      .attr('width', width - margin.left - margin.right)
      .attr('height', height - margin.bottom + 1);
  const layer = svg.append('g').attr('clip-path', 'url(#curve-clip)');
  drawLines(layer, curves, x, y);
  svg.append('line')
      .attr('class', 'cursor')
      .attr('y1', margin.top)
      .attr('y2', height - margin.bottom)
      .attr('visibility', 'hidden');
  addZoom(
      svg, x, y, {left: margin.left, top: margin.top, right: width - margin.right, bottom: height - margin.bottom},
      readout);
  box.replaceChildren(svg.node());
}

function drawAxes(svg, x, y, width, height, margin) {
  const inner = {width: width - margin.left - margin.right, height: height - margin.top - margin.bottom};
  const bottom = (axis) => axis.ticks(Math.max(3, inner.width / 110));
  const left = (axis) => axis.ticks(6, curveState.scale === 'log' ? '~g' : undefined);
  svg.append('g')
      .attr('class', 'grid')
      .attr('transform', `translate(0,${height - margin.bottom})`)
      .call(bottom(d3.axisBottom(x)).tickSize(-inner.height).tickFormat(''));
  svg.append('g')
      .attr('class', 'grid')
      .attr('transform', `translate(${margin.left},0)`)
      .call(left(d3.axisLeft(y)).tickSize(-inner.width).tickFormat(''));
  const bottomAxis = bottom(d3.axisBottom(x));
  if (curveState.axis === 'time') bottomAxis.tickFormat((value) => shortDuration(value));
  svg.append('g').attr('class', 'axis').attr('transform', `translate(0,${height - margin.bottom})`).call(bottomAxis);
  svg.append('g').attr('class', 'axis').attr('transform', `translate(${margin.left},0)`).call(left(d3.axisLeft(y)));
  const view = report.curves.views.find(({name}) => name === curveState.series);
  svg.append('text')
      .attr('x', margin.left + inner.width / 2)
      .attr('y', height - 6)
      .attr('text-anchor', 'middle')
      .text(curveState.axis === 'time' ? 'training time' : 'step');
  svg.append('text')
      .attr('transform', `translate(13,${margin.top + inner.height / 2}) rotate(-90)`)
      .attr('text-anchor', 'middle')
      .text(view.unit);
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
  layer.selectAll('.band')
      .data(curves.filter((curve) => curve.low))
      .join('path')
      .attr('class', 'band')
      .style('fill', (curve) => curveColor(curve.group))
      .attr('d', (curve) => area(curve.x.map((value, i) => [value, curve.low[i], curve.high[i]])));
  layer.selectAll('.curve')
      .data(curves)
      .join('path')
      .attr('class', (curve) => `curve ${curve.kind}${curveState.show === 'runs' ? ' single' : ''}`)
      .style('stroke', (curve) => curveColor(curve.group))
      .attr('stroke-dasharray', (curve) => curveDashes(curve.group))
      .attr('d', (curve) => line(curve.x.map((value, i) => [value, curve.y[i]])));
  layer.selectAll('.point')
      .data(curves.filter((curve) => curve.x.length === 1))
      .join('circle')
      .attr('class', 'point')
      .attr('r', 4)
      .style('fill', (curve) => curveColor(curve.group))
      .attr('cx', (curve) => x(curve.x[0]))
      .attr('cy', (curve) => y(curve.y[0]));
}
