// The sections on norms by depth, and on the blocks over a training.

// Draws a legend of {group, label}, and charts {title, axis, log, lines} beside each other.
function drawCharts(box, legend, charts) {
  const figures = charts.map(() => make('figure'));
  const items = legend.map(({group, label}) => make('li', {}, lineSwatch(group), ` ${label}`));
  const sides = charts.map(({title}, i) => make('div', {}, make('h3', {}, title), figures[i]));
  box.replaceChildren(make('ul', {class: 'legend'}, ...items), make('div', {class: 'sides thirds'}, ...sides));
  charts.forEach((lines, i) => drawLineChart(figures[i], lines));
}

// From y = 0 on; few points have dots. With `log` y is logarithmic, and values up to 0 are left out.
function drawLineChart(box, {title, axis, log, lines}) {
  const isShown = isShownOn(log);
  const width = Math.min(520, widthOf(box)), height = 210, left = 48, bottom = 34;
  const [lowest = 1, highest = 1] = d3.extent(valuesOf(lines, isShown));
  const x = d3.scaleLinear().domain(d3.extent(lines.flatMap((line) => line.x))).range([left + 6, width - 14]);
  const y = log ? d3.scaleLog().domain([lowest, highest]).nice() : d3.scaleLinear().domain([0, highest || 1]).nice(5);
  y.range([height - bottom, 8]);
  const svg = chart(width, height, {'aria-label': `${title} by ${axis}`});
  drawAxis(svg, d3.axisLeft(y).ticks(5, '~g'), left, 0, width - left - 8);
  const bottomTicks = Math.min(8, x.domain()[1] - x.domain()[0]);
  add(svg, 'g', {class: 'axis', transform: `translate(0,${height - bottom})`})
      .call(d3.axisBottom(x).ticks(bottomTicks).tickFormat(d3.format('d')));
  label(svg, (left + width) / 2, height - 3, axis, {'text-anchor': 'middle'});
  drawLines(svg.append('g'), lines, x, y, isShown, 30, 3.5);
  box.replaceChildren(svg.node());
}

// Mean norms of the residual stream and of both branches, by layer.
function showNorms() {
  const runs = report.inspected.filter((run) => run.norms && run.norms.after_feed_forward)
                   .map(({run, name, norms}) => ({group: report.runs[run].group, label: name, norms}));
  if (!runs.length) return null;
  const of = (title, axis, values) => {
    const lines = runs.map((run) => ({...run, css: '', x: d3.range(values(run.norms).length), y: values(run.norms)}));
    return {title, axis, lines};
  };
  const charts = [
    of('residual stream', 'layers passed', (norms) => [norms.embedding, ...norms.after_feed_forward]),
    of('mixer branch', 'layer', (norms) => norms.mixer_branch),
    of('feed-forward branch', 'layer', (norms) => norms.feed_forward_branch)
  ];
  const box = make('div');
  const text =
      'Mean Euclidean norm of the vectors of the tokens: of the residual stream after so many layers (0: the ' +
      'embeddings), and of what the mixer and the feed-forward network add to it.';
  keepDrawn(() => drawCharts(box, runs, charts));
  return makeSection('norms', 'Norms by depth', soft(text), box);
}

const blocksState = {
  run: null  // the name of the shown run; null: the first
};

// The measurements of train.diagnostics_interval over a training.
function showBlocks() {
  const runs = report.blocks;
  if (!runs.length) return null;
  const box = make('div');
  const nameOf = ({run}) => report.runs[run].name;
  const chosen = () => runs.find((one) => nameOf(one) === blocksState.run) ?? runs[0];
  const draw = () => drawBlocks(box, chosen().panels);
  const title = ({run}) => `${report.groups[report.runs[run].group].name}, seed ${report.runs[run].seed}`;
  const controls = choice('run', runs.map((one) => [nameOf(one), title(one)]), nameOf(chosen()), (value) => {
    blocksState.run = value;
    draw();
  });
  const text =
      'Measured on a few sequences of the validation split: the mean norm of a token’s vector behind every block, the ' +
      'entropy of attention as a fraction of its maximum (0: one token, 1: all visible tokens alike), the standard ' +
      'deviation of the scores, and the gradient of the loss with respect to the stream. Lines are means over the ' +
      'heads, bands reach from the lowest to the highest head.';
  const choices = runs.length > 1 ? make('div', {class: 'controls'}, controls) : null;
  keepDrawn(draw);
  return makeSection('blocks', 'Blocks in training', soft(text), choices, box);
}

function drawBlocks(box, panels) {
  const blocks = [...new Set(panels.flatMap((panel) => panel.lines.map(({block}) => block)))];
  const legend = blocks.map((block, group) => ({group, label: block.replace(/_/g, ' ')}));
  const lineOf = ({block, step, value, low, high}) =>
      ({...legend[blocks.indexOf(block)], css: '', x: step, y: value, low, high});
  drawCharts(box, legend, panels.map((panel) => ({...panel, axis: 'step', lines: panel.lines.map(lineOf)})));
}
