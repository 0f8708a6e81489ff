// The section on norms by depth.

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
// dots. With `log` y is logarithmic, and what is not above 0 is left out.
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
  const svg = chart(width, height).attr('role', 'img').attr('aria-label', `${title} by ${axis}`);
  svg.append('g')
      .attr('class', 'grid')
      .attr('transform', `translate(${left},0)`)
      .call(d3.axisLeft(y).ticks(5).tickSize(left - width + 8).tickFormat(''));
  svg.append('g').attr('class', 'axis').attr('transform', `translate(${left},0)`).call(d3.axisLeft(y).ticks(5, '~g'));
  svg.append('g')
      .attr('class', 'axis')
      .attr('transform', `translate(0,${height - bottom})`)
      .call(d3.axisBottom(x).ticks(Math.min(8, x.domain()[1] - x.domain()[0])).tickFormat(d3.format('d')));
  svg.append('text').attr('x', (left + width) / 2).attr('y', height - 3).attr('text-anchor', 'middle').text(axis);
  const area = d3.area().x((p) => x(p[0])).y0((p) => y(p[1])).y1((p) => y(p[2]));
  for (const {color: number, name, points: own, band} of lines) {
    const color = curveColor(number);
    if (band) svg.append('path').attr('class', 'band').style('fill', color).attr('d', area(band));
    svg.append('path')
        .attr('class', 'curve')
        .style('stroke', color)
        .attr('stroke-dasharray', curveDashes(number))
        .attr('d', d3.line().x((p) => x(p[0])).y((p) => y(p[1]))(own));
    const dots = svg.append('g')
                     .selectAll('circle')
                     .data(own.length <= 30 ? own : [])
                     .join('circle')
                     .attr('r', 3.5)
                     .style('fill', color)
                     .attr('cx', (p) => x(p[0]))
                     .attr('cy', (p) => y(p[1]));
    dots.append('title').text((p) => `${name}: ${shortNumber(p[1])}`);
  }
  box.replaceChildren(svg.node());
}
