// Zoom by dragging, hover, and the same with the keyboard, for the chart of curves.

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
