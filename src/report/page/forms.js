// The sections on the forms of the scores, and on distances between tokens under them.

const betweenFeatures = (run, matrix) => ({
  rowLabels: [],
  columnLabels: [],
  rowTitle: 'feature',
  columnTitle: 'feature',
  describe: (row, column, value) => `row ${row}, column ${column}: ${shortNumber(value)}`
});
const betweenVocabulary = (run) => {
  const labels = run.vocabulary.map(visibleToken);
  return {
    rowLabels: labels,
    columnLabels: labels,
    rowTitle: 'token',
    columnTitle: 'token',
    describe: (row, column, value) => `“${labels[row]}” – “${labels[column]}”: ${
        value < 0 ? `d² is negative (−${shortNumber(value * value)})` : `distance ${shortNumber(value)}`}`
  };
};

const verdicts = {
  metric: 'yes',
  pseudometric: 'a pseudometric: some different vectors have distance 0',
  no_metric: 'no: some eigenvalues are negative',
  unknown: null
};

function showForms() {
  const kinds = [
    {key: 'form', title: 'form of the head (k × k)', palette: 'diverging', map: betweenFeatures},
    {key: 'input_form', title: 'form between inputs (d × d)', palette: 'diverging', map: betweenFeatures}
  ];
  const below = (head, run) => {
    const nodes = [facts(
        ['is a metric', verdicts[head.verdict]], ['negative eigenvalues', percent(head.negative_eigenvalues)],
        ['asymmetry', head.asymmetry])];
    if (head.eigenvalues && head.eigenvalues.length)
      nodes.push(make('h3', {}, 'Eigenvalues of the symmetric part'), eigenvalueBars(head.eigenvalues));
    return nodes;
  };
  addPanels(
      'forms', 'Forms of the scores',
      'The matrix between two vectors in a score: M of metric attention, W or U of quadratic attention, and, between inputs of ' +
          'the layer, W_q W_kᵀ/√k of scaled dot product beside P M Pᵀ/√k. Colours are symmetric about 0.',
      kinds, below, ['metric', 'scaled_dot_product'],
      (run) => (run.mixer === 'scaled_dot_product' ? 'input_form' : 'form'));
}

function eigenvalueBars(values) {
  const width = 400, height = 130, left = 46;
  const y = d3.scaleLinear().domain([Math.min(0, d3.min(values)), Math.max(0, d3.max(values))]).nice(4).range([
    height - 8, 8
  ]);
  const x = d3.scaleBand()
                .domain(d3.range(values.length))
                .range([left, width - 4])
                .paddingInner(values.length > 80 ? 0 : 0.25);
  const svg =
      chart(width, height)
          .attr('role', 'img')
          .attr(
              'aria-label',
              `${values.length} eigenvalues from ${shortNumber(d3.min(values))} to ${shortNumber(d3.max(values))}`);
  svg.append('g')
      .attr('class', 'grid')
      .attr('transform', `translate(${left},0)`)
      .call(d3.axisLeft(y).ticks(4).tickSize(left - width).tickFormat(''));
  svg.append('g').attr('class', 'axis').attr('transform', `translate(${left},0)`).call(d3.axisLeft(y).ticks(4));
  const bars = svg.selectAll('.bar').data(values).join('rect').attr(
      'class', (value) => `bar ${value < 0 ? 'bar-negative' : 'bar-positive'}`);
  bars.attr('x', (_, i) => x(i))
      .attr('width', x.bandwidth())
      .attr('y', (value) => y(Math.max(0, value)))
      .attr('height', (value) => Math.max(0.5, Math.abs(y(value) - y(0))));
  bars.append('title').text((value, i) => `eigenvalue ${i}: ${shortNumber(value)}`);
  return svg.node();
}

function showDistances() {
  const kinds =
      [{key: 'distances', title: 'distance between embeddings', palette: 'diverging', map: betweenVocabulary}];
  const below = (head) => [facts(
      ['rank correlation with |i − j|', head.distance_rank_correlation],
      ['pairs of the text without a distance', percent(head.negative_pairs)],
      ['triangles of the text that break the inequality', percent(head.violated_triples)])];
  addPanels(
      'distances', 'Distances between tokens',
      'The distance √((x − y) F (x − y)) between the embeddings of tokens under the form F of a head. Where (x − y) F (x − y) is ' +
          'negative there is no distance; the map then shows −√|…|, in blue.',
      kinds, below, ['metric']);
}
