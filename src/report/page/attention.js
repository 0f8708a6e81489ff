// The section on attention: matrices, and two columns of tokens with lines between them.

const keysOf = (run) => run.keys || run.tokens;

const betweenTokens = (unit) => (run, matrix) => {
  const queries = run.tokens.map(visibleToken), keys = keysOf(run).map(visibleToken);
  const [query, key] = run.keys ? ['written', 'source'] : ['query', 'key'];
  return {
    rowLabels: queries,
    columnLabels: keys,
    rowTitle: query,
    columnTitle: key,
    describe: (row, column, value) => `${query} ${row} “${queries[row]}” → ${key} ${column} “${keys[column]}”: ${
        Number.isFinite(value) ? `${unit} ${shortNumber(value)}` : 'hidden by the causal mask'}`
  };
};

function showAttention() {
  const kinds = [
    {key: 'attention', title: 'attention (after the softmax)', palette: 'sequential', map: betweenTokens('attention')},
    {key: 'scores', title: 'scores (before the softmax)', palette: 'diverging', map: betweenTokens('score')}
  ];
  const below = (head, run, panel) => {
    const nodes = [facts(
        [
          'mean attention distance',
          typeof head.mean_attention_distance === 'number' ? `${shortNumber(head.mean_attention_distance)} tokens` :
                                                             null
        ],
        ['negative scores', percent(head.negative_scores)])];
    if (head.attention) nodes.push(tokenColumns(head, run, panel));
    return nodes;
  };
  addPanels(
      'attention', 'Attention',
      `Rows are queries, columns are keys. Cells that a causal mask hides are blank. ${report.inspection_text}`, kinds,
      below, []);
}

// Two columns of tokens: queries on the left, keys on the right, and lines as strong as the attention between them.
// Pointing at a query, or choosing it with the keyboard, shows its lines only.
function tokenColumns(head, run, panel) {
  const matrix = decodeMatrix(head.attention), row = 16;
  const queryLabels = run.tokens.map(visibleToken), keyLabels = keysOf(run).map(visibleToken);
  const count = queryLabels.length, longest = Math.max(count, keyLabels.length);
  const width = Math.min(380, widthOf(panel.root)), left = width * 0.32, right = width * 0.68, top = 24;
  const svg = chart(width, top + longest * row + 6)
                  .attr('class', 'columns')
                  .attr('tabindex', 0)
                  .attr('role', 'img')
                  .attr(
                      'aria-label',
                      `Attention of layer ${panel.layer}, head ${
                          panel.head} as lines from queries to keys. Up and down choose a query, Escape shows all.`);
  const y = (i) => top + (i + 0.5) * row;
  svg.append('text')
      .attr('x', left - 8)
      .attr('y', 12)
      .attr('text-anchor', 'end')
      .text(run.keys ? 'written' : 'queries');
  svg.append('text').attr('x', right + 8).attr('y', 12).text(run.keys ? 'source' : 'keys');
  const links = [];
  matrix.values.forEach((value, i) => {
    if (value > 0.01) links.push({query: Math.floor(i / matrix.columns), key: i % matrix.columns, value});
  });
  const lines = svg.append('g')
                    .selectAll('line')
                    .data(links)
                    .join('line')
                    .attr('class', 'link')
                    .attr('x1', left)
                    .attr('x2', right)
                    .attr('y1', (link) => y(link.query))
                    .attr('y2', (link) => y(link.key))
                    .attr('stroke-width', 2)
                    .attr('stroke-opacity', (link) => link.value);
  const token = (x, anchor, labels) => svg.append('g')
                                           .selectAll('text')
                                           .data(labels)
                                           .join('text')
                                           .attr('class', 'token')
                                           .attr('x', x)
                                           .attr('y', (_, i) => y(i))
                                           .attr('dy', '.35em')
                                           .attr('text-anchor', anchor)
                                           .text((label) => shortenTo(label, 14));
  const queries = token(left - 8, 'end', queryLabels);
  token(right + 8, 'start', keyLabels);
  let chosen = null;
  const choose = (query) => {
    chosen = query;
    lines.attr('visibility', (link) => (query === null || link.query === query ? 'visible' : 'hidden'));
    queries.classed('chosen', (_, i) => i === query);
  };
  svg.append('rect')
      .attr('x', 0)
      .attr('y', top)
      .attr('width', left)
      .attr('height', count * row)
      .attr('fill', 'transparent')
      .attr('class', 'query-area')
      .on('mousemove',
          function() { choose(Math.min(count - 1, Math.max(0, Math.floor((d3.mouse(this)[1] - top) / row)))); })
      .on('mouseleave', () => choose(null));
  svg.on('keydown', () => {
    const {key} = d3.event;
    if (key === 'Escape')
      choose(null);
    else if (key === 'ArrowDown')
      choose(Math.min(count - 1, (chosen === null ? -1 : chosen) + 1));
    else if (key === 'ArrowUp')
      choose(Math.max(0, (chosen === null ? count : chosen) - 1));
    else
      return;
    d3.event.preventDefault();
  });
  return make('div', {}, make('h3', {}, 'From queries to keys'), svg.node());
}
