// The sections on norms by depth, and on the blocks over a training.

// Draws a legend of {color, name}, and charts {title, axis, log, lines} beside each other. Lines are {color, name,
// points: [[x, y], ...], band: [[x, low, high], ...] or nothing}.
function drawCharts(box, legend, charts) {
  const figures = charts.map(() => make('figure'));
  const items = legend.map(({color, name}) => make('li', {}, lineSwatch(color), ` ${name}`));
  const sides = charts.map(({title}, i) => make('div', {}, make('h3', {}, title), figures[i]));
  box.replaceChildren(make('ul', {class: 'legend'}, ...items), make('div', {class: 'sides thirds'}, ...sides));
  charts.forEach((lines, i) => drawLineChart(figures[i], lines));
}

// From y = 0 on; few points have dots. With `log` y is logarithmic, and values up to 0 are left out.
function drawLineChart(box, {title, axis, log, lines}) {
  const shown = (list) => list.filter((p) => (log ? p[1] > 0 : Number.isFinite(p[1])));
  const width = Math.min(520, widthOf(box)), height = 210, left = 48, bottom = 34;
  const points = lines.flatMap((line) => shown(line.points)), bands = lines.flatMap((line) => shown(line.band || []));
  const [lowest = 1, highest = 1] = d3.extent([...points.map((p) => p[1]), ...bands.flatMap((p) => [p[1], p[2]])]);
  const x = d3.scaleLinear().domain(d3.extent(points, (p) => p[0])).range([left + 6, width - 14]);
  const y = log ? d3.scaleLog().domain([lowest, highest]).nice() : d3.scaleLinear().domain([0, highest || 1]).nice(5);
  y.range([height - bottom, 8]);
  const svg = chart(width, height, {'aria-label': `${title} by ${axis}`});
  drawAxis(svg, d3.axisLeft(y).ticks(5, '~g'), left, 0, width - left - 8);
  const bottomTicks = Math.min(8, x.domain()[1] - x.domain()[0]);
  add(svg, 'g', {class: 'axis', transform: `translate(0,${height - bottom})`})
      .call(d3.axisBottom(x).ticks(bottomTicks).tickFormat(d3.format('d')));
  label(svg, (left + width) / 2, height - 3, axis, {'text-anchor': 'middle'});
  const area = d3.area().x((p) => x(p[0])).y0((p) => y(p[1])).y1((p) => y(p[2]));
  const path = d3.line().x((p) => x(p[0])).y((p) => y(p[1]));
  for (const line of lines) {
    const own = shown(line.points), color = curveColor(line.color), dashes = curveDashes(line.color);
    if (line.band) add(svg, 'path', {class: 'band', d: area(shown(line.band))}).style('fill', color);
    add(svg, 'path', {class: 'curve', 'stroke-dasharray': dashes, d: path(own)}).style('stroke', color);
    const dots = svg.append('g').selectAll('circle').data(own.length <= 30 ? own : []).join('circle');
    set(dots, {r: 3.5, cx: (p) => x(p[0]), cy: (p) => y(p[1])}).style('fill', color);
    dots.append('title').text((p) => `${line.name}: ${shortNumber(p[1])}`);
  }
  box.replaceChildren(svg.node());
}

// Mean norms of the residual stream and of both branches, by layer.
function showNorms() {
  const runs = report.inspected.filter((run) => run.norms && run.norms.after_feed_forward)
                   .map(({run, name, norms}) => ({color: report.runs[run].group, name, norms}));
  if (!runs.length) return;
  const of = (title, axis, values) => ({
    title,
    axis,
    lines: runs.map((run) => ({...run, points: values(run.norms).map((value, layer) => [layer, value])}))
  });
  const charts = [
    of('residual stream', 'layers passed', (norms) => [norms.embedding, ...norms.after_feed_forward]),
    of('mixer branch', 'layer', (norms) => norms.mixer_branch),
    of('feed-forward branch', 'layer', (norms) => norms.feed_forward_branch)
  ];
  const box = make('div');
  const text =
      'Mean Euclidean norm of the vectors of the tokens: of the residual stream after so many layers (0: the ' +
      'embeddings), and of what the mixer and the feed-forward network add to it.';
  addSection('norms', 'Norms by depth', soft(text), box);
  keepDrawn(() => drawCharts(box, runs, charts));
}

// The measurements of train.diagnostics_interval over a training.
function showBlocks() {
  const runs = report.blocks;
  if (!runs.length) return;
  const box = make('div');
  let shown = 0;
  const draw = () => drawBlocks(box, runs[shown].panels);
  const names = runs.map(({run}) => `${report.groups[report.runs[run].group].name}, seed ${report.runs[run].seed}`);
  const controls = choice('run', [...names.entries()], 0, (value) => {
    shown = Number(value);
    draw();
  });
  const text =
      'Measured on a few sequences of the validation split: the mean norm of a token’s vector behind every block, the ' +
      'entropy of attention as a fraction of its maximum (0: one token, 1: all visible tokens alike), the standard ' +
      'deviation of the scores, and the gradient of the loss with respect to the stream. Lines are means over the ' +
      'heads, bands reach from the lowest to the highest head.';
  const choices = runs.length > 1 ? make('div', {class: 'controls'}, controls) : null;
  addSection('blocks', 'Blocks in training', soft(text), choices, box);
  keepDrawn(draw);
}

function drawBlocks(box, panels) {
  const names = [...new Set(panels.flatMap((panel) => panel.lines.map(({block}) => block.replace(/_/g, ' '))))];
  const lineOf = ({block, step, value, low, high}) => {
    const name = block.replace(/_/g, ' ');
    return {color: names.indexOf(name), name, points: d3.zip(step, value), band: low && d3.zip(step, low, high)};
  };
  const charts = panels.map((panel) => ({...panel, axis: 'step', lines: panel.lines.map(lineOf)}));
  drawCharts(box, names.map((name, color) => ({color, name})), charts);
}
