// The sections on norms by depth, and on the blocks over a training.

// Mean norms of the residual stream and of both branches, by layer.
function showNorms() {
  const runs = report.inspected.filter((run) => run.norms && run.norms.after_feed_forward);
  if (!runs.length) return;
  const section = addSection(
      'norms', 'Norms by depth',
      make(
          'p', {class: 'soft'},
          'Mean Euclidean norm of the vectors of the tokens: of the residual stream after so many layers (0: ' +
              'the embeddings), and of what the mixer and the feed-forward network add to it.'));
  const sides = make('div', {class: 'sides thirds'});
  section.append(
      make(
          'ul', {class: 'legend'},
          ...runs.map((run) => make('li', {}, lineSwatch(report.runs[run.run].group), ` ${run.name}`))),
      sides);
  const charts = [
    ['residual stream', (norms) => [norms.embedding, ...norms.after_feed_forward], 'layers passed'],
    ['mixer branch', (norms) => norms.mixer_branch, 'layer'],
    ['feed-forward branch', (norms) => norms.feed_forward_branch, 'layer']
  ];
  const boxes = charts.map(() => make('figure', {style: 'margin:0'}));
  sides.append(...boxes.map((box, i) => make('div', {}, make('h3', {}, charts[i][0]), box)));
  for (const [i, [title, values, axis]] of charts.entries()) {
    keepDrawn(
        () => drawLineChart(boxes[i], title, axis, runs.map((run) => ({
                                                              color: report.runs[run.run].group,
                                                              name: run.name,
                                                              points: values(run.norms)
                                                                          .map((value, layer) => [layer, value])
                                                                          .filter(([, value]) => Number.isFinite(value))
                                                            }))));
  }
}

// Lines {color, name, points: [[x, y], ...], band: [[x, low, high], ...] or nothing}, from y = 0 on; few points have
// dots. With `log` y is logarithmic, and values up to 0 are left out.
function drawLineChart(box, title, axis, allLines, log = false) {
  const lines = log ? allLines.map((line) => ({
                                     ...line,
                                     points: line.points.filter((p) => p[1] > 0),
                                     band: line.band && line.band.filter((p) => p[1] > 0)
                                   })) :
                      allLines;
  const width = Math.min(520, widthOf(box)), height = 210, left = 48, bottom = 34;
  const points = lines.flatMap((line) => line.points), bands = lines.flatMap((line) => line.band || []);
  const [lowest = 1, highest = 1] = d3.extent([...points.map((p) => p[1]), ...bands.flatMap((p) => [p[1], p[2]])]);
  const x = d3.scaleLinear().domain(d3.extent(points, (p) => p[0])).range([left + 6, width - 14]);
  const y = (log ? d3.scaleLog().domain([lowest, highest]).nice() : d3.scaleLinear().domain([0, highest || 1]).nice(5))
                .range([height - bottom, 8]);
  const svg = chart(width, height, {'aria-label': `${title} by ${axis}`});
  drawAxis(svg, d3.axisLeft(y).ticks(5, '~g'), left, 0, width - left - 8);
  const bottomTicks = Math.min(8, x.domain()[1] - x.domain()[0]);
  add(svg, 'g', {class: 'axis', transform: `translate(0,${height - bottom})`})
      .call(d3.axisBottom(x).ticks(bottomTicks).tickFormat(d3.format('d')));
  label(svg, (left + width) / 2, height - 3, axis, {'text-anchor': 'middle'});
  const area = d3.area().x((p) => x(p[0])).y0((p) => y(p[1])).y1((p) => y(p[2]));
  for (const {color: number, name, points: own, band} of lines) {
    const color = curveColor(number);
    if (band) add(svg, 'path', {class: 'band', d: area(band)}).style('fill', color);
    const d = d3.line().x((p) => x(p[0])).y((p) => y(p[1]))(own);
    add(svg, 'path', {class: 'curve', 'stroke-dasharray': curveDashes(number), d}).style('stroke', color);
    const dots = svg.append('g').selectAll('circle').data(own.length <= 30 ? own : []).join('circle');
    set(dots, {r: 3.5, cx: (p) => x(p[0]), cy: (p) => y(p[1])}).style('fill', color);
    dots.append('title').text((p) => `${name}: ${shortNumber(p[1])}`);
  }
  box.replaceChildren(svg.node());
}

// The measurements of train.diagnostics_interval over a training.

const blockName = (block) => block.replace(/_/g, ' ');

function showBlocks() {
  const runs = report.blocks;
  if (!runs.length) return;
  const section = addSection(
      'blocks', 'Blocks in training',
      make(
          'p', {class: 'soft'},
          'Measured on a few sequences of the validation split: the mean norm of a token’s vector behind every block, the ' +
              'entropy of attention as a fraction of its maximum (0: one token, 1: all visible tokens alike), the ' +
              'standard deviation of the scores, and the gradient of the loss with respect to the stream. Lines are ' +
              'means over the heads, bands reach from the lowest to the highest head.'));
  const box = make('div');
  const label = ({run}) => `${report.groups[report.runs[run].group].name}, seed ${report.runs[run].seed}`;
  let shown = 0;
  const draw = () => drawBlocks(box, runs[shown]);
  if (runs.length > 1)
    section.append(make(
        'div', {class: 'controls'},
        choice('run', runs.map((run, i) => ({value: String(i), label: label(run)})), '0', (value) => {
          shown = Number(value);
          draw();
        })));
  section.append(box);
  keepDrawn(draw);
}

function drawBlocks(box, {panels}) {
  const names = [...new Set(panels.flatMap((panel) => panel.lines.map((line) => line.block)))];
  const sides = make('div', {class: 'sides thirds'});
  box.replaceChildren(
      make('ul', {class: 'legend'}, ...names.map((name, i) => make('li', {}, lineSwatch(i), ` ${blockName(name)}`))),
      sides);
  const figures = panels.map(() => make('figure', {style: 'margin:0'}));
  sides.append(...panels.map(({title}, i) => make('div', {}, make('h3', {}, title), figures[i])));
  panels.forEach(
      ({title, log, lines}, panel) => drawLineChart(
          figures[panel], title, 'step',
          lines.map((line) => ({
                      color: names.indexOf(line.block),
                      name: blockName(line.block),
                      points: line.step.map((step, i) => [step, line.value[i]]),
                      band: line.low ? line.step.map((step, i) => [step, line.low[i], line.high[i]]) : null
                    })),
          log));
}
