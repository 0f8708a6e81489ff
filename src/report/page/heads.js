// The sections on attention, forms and distances, made of panels: one run's heads as thumbnails by layer and head, the
// chosen one large, and its facts below.

// `kinds`: the matrices that can be shown, {key, title, palette, map(run, matrix)}; a run is offered when it has one of
// them. `below(head, run, choice)`: nodes that are shown under the map.
class HeadPanel {
  constructor(kinds, run, kind, below) {
    Object.assign(this, {kinds, below, layer: 0, head: 0});
    this.root = make('div', {class: 'head-panel'});
    this.controls = make('div', {class: 'controls'});
    this.thumbnails = make('div', {class: 'heads', role: 'group', 'aria-label': 'Layers and heads'});
    this.mapBox = make('figure', {style: 'margin:0'});
    this.readout = make('p', {class: 'readout', 'aria-live': 'polite'});
    this.caption = make('p', {class: 'on-paper'});
    this.extra = make('div');
    this.root.append(this.controls, this.caption, this.thumbnails, this.mapBox, this.readout, this.extra);
    this.choose(run, kind);
  }

  static runsWith(kinds) {
    return report.inspected.filter((run) => kinds.some((kind) => HeadPanel.has(run, kind.key)));
  }
  static has(run, key) { return run.layers.some((layer) => layer.heads.some((head) => head[key])); }

  choose(run, kindKey) {
    this.run = run;
    const available = this.kinds.filter((kind) => HeadPanel.has(run, kind.key));
    this.kind = available.find((kind) => kind.key === kindKey) || available[0];
    if (!this.current()) this.selectFirst();
    const runs = HeadPanel.runsWith(this.kinds);
    const named = (candidate) => ({value: String(report.inspected.indexOf(candidate)), label: candidate.name});
    replaceInside(
        this.controls,
        choice(
            'run', runs.map(named), named(run).value,
            (value) => {
              this.choose(report.inspected[Number(value)], this.kind.key);
              this.draw();
            }),
        choice(
            'matrix', available.map(({key, title}) => ({value: key, label: title})), this.kind.key,
            (value) => {
              this.choose(this.run, value);
              this.draw();
            }),
        choice(
            'layer', this.layersWithKind().map((i) => ({value: String(i), label: String(i)})), String(this.layer),
            (value) => this.select(Number(value), this.head)),
        choice(
            'head', this.run.layers[this.layer].heads.map((_, i) => ({value: String(i), label: String(i)})),
            String(this.head), (value) => this.select(this.layer, Number(value))));
  }

  current() {
    const layer = this.run.layers[this.layer];
    return layer && layer.heads[this.head] && layer.heads[this.head][this.kind.key] ? layer.heads[this.head] : null;
  }
  layersWithKind() {
    return d3.range(this.run.layers.length).filter((i) => this.run.layers[i].heads.some((head) => head[this.kind.key]));
  }
  selectFirst() {
    [this.layer] = this.layersWithKind();
    this.head = this.run.layers[this.layer].heads.findIndex((head) => head[this.kind.key]);
  }

  select(layer, head) {
    Object.assign(this, {layer, head});
    if (!this.current()) this.head = this.run.layers[layer].heads.findIndex((candidate) => candidate[this.kind.key]);
    this.choose(this.run, this.kind.key);
    this.draw();
  }

  // One colour scale for all heads of a run where the matrices are probabilities, else for each head.
  scale(matrix) {
    return scaleOf(this.kind.palette, matrix.low, this.kind.highest === undefined ? matrix.high : this.kind.highest);
  }

  draw() {
    hideTooltip();
    this.drawThumbnails();
    const head = this.current(), matrix = decodeMatrix(head[this.kind.key]);
    const map = this.kind.map(this.run, matrix);
    this.caption.textContent = map.name =
        `${this.kind.title} of ${this.run.name}, layer ${this.layer}, head ${this.head}`;
    drawMap(this.mapBox, {matrix, scale: this.scale(matrix), ...map}, this.readout);
    this.readout.textContent = '';
    this.extra.replaceChildren(...this.below(head, this.run, this));
  }

  drawThumbnails() {
    const heads = d3.max(this.run.layers, (layer) => layer.heads.length);
    this.thumbnails.style.gridTemplateColumns = `auto repeat(${heads}, 60px)`;
    const cells = [make('span'), ...d3.range(heads).map((i) => make('span', {class: 'head-name'}, `head ${i}`))];
    this.run.layers.forEach((layer, l) => {
      cells.push(make('span', {}, `layer ${l}`));
      for (let h = 0; h < heads; ++h) cells.push(this.thumbnail(layer.heads[h], l, h));
    });
    replaceInside(this.thumbnails, ...cells);
  }

  thumbnail(head, layer, number) {
    if (!head || !head[this.kind.key]) return make('span');
    const matrix = decodeMatrix(head[this.kind.key]);
    const canvas = matrixCanvas(matrix, colorScale(this.scale(matrix)));
    const chosen = layer === this.layer && number === this.head;
    const item = button('', () => this.select(layer, number), {
      'aria-label': `layer ${layer}, head ${number}`,
      'aria-pressed': String(chosen),
      'data-place': `${layer}.${number}`
    });
    item.append(canvas);
    return item;
  }
}

// The two runs to begin with: of the preferred mixers where there are such, of different mixers, and otherwise with
// configs as equal as possible.
function choosePair(runs, mixers) {
  const settings = (run) => report.groups[report.runs[run.run].group].settings;
  const cost = (a, b) => (mixers[0] && a.mixer !== mixers[0] ? 1000 : 0) +
      (mixers[1] && b.mixer !== mixers[1] ? 1000 : 0) + (a.mixer === b.mixer ? 100 : 0) +
      report.differing_keys.filter((key) => settings(a)[key] !== settings(b)[key]).length;
  const pairs = d3.cross(runs, runs).filter(([a, b]) => a !== b);
  return pairs.length ? pairs[d3.scan(pairs, (p, q) => cost(...p) - cost(...q))] : runs;
}

// A section of panels beside each other, of two runs where there are several. `mixers`: of the runs that are shown
// first.
function addPanels(id, title, description, kinds, below, mixers, kindOf = () => kinds[0].key) {
  const runs = HeadPanel.runsWith(kinds);
  if (!runs.length) return;
  const section = addSection(id, title, make('p', {class: 'soft'}, description));
  const sides = make('div', {class: 'sides'});
  section.append(sides);
  const panels = choosePair(runs, mixers).map((run) => new HeadPanel(kinds, run, kindOf(run), below));
  sides.append(...panels.map((panel) => panel.root));  // first all, which decides how wide each is
  panels.forEach((panel) => keepDrawn(() => panel.draw()));
}

// Terms with their values; those without a value are left out.
function facts(...pairs) {
  const list = make('dl', {class: 'facts'});
  for (const [term, value] of pairs)
    if (value !== null && value !== undefined)
      list.append(make('dt', {}, term), make('dd', {}, typeof value === 'number' ? shortNumber(value) : value));
  return list;
}

// Attention: matrices, and two columns of tokens with lines between them.

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
  const svg = chart(width, top + longest * row + 6, {
    class: 'columns',
    tabindex: 0,
    'aria-label': `Attention of layer ${panel.layer}, head ${
        panel.head} as lines from queries to keys. Up and down choose a query, Escape shows all.`
  });
  const y = (i) => top + (i + 0.5) * row;
  label(svg, left - 8, 12, run.keys ? 'written' : 'queries', {'text-anchor': 'end'});
  label(svg, right + 8, 12, run.keys ? 'source' : 'keys');
  const links = [];
  matrix.values.forEach((value, i) => {
    if (value > 0.01) links.push({query: Math.floor(i / matrix.columns), key: i % matrix.columns, value});
  });
  const each = (name, css, data) => svg.append('g').selectAll(name).data(data).join(name).attr('class', css);
  const lines = set(each('line', 'link', links), {
    x1: left,
    x2: right,
    y1: (link) => y(link.query),
    y2: (link) => y(link.key),
    'stroke-width': 2,
    'stroke-opacity': (link) => link.value
  });
  const token = (x, anchor, labels) =>
      set(each('text', 'token', labels), {x, y: (_, i) => y(i), dy: '.35em', 'text-anchor': anchor})
          .text((text) => shortenTo(text, 14));
  const queries = token(left - 8, 'end', queryLabels);
  token(right + 8, 'start', keyLabels);
  let chosen = null;
  const choose = (query) => {
    chosen = query;
    lines.attr('visibility', (link) => (query === null || link.query === query ? 'visible' : 'hidden'));
    queries.classed('chosen', (_, i) => i === query);
  };
  add(svg, 'rect', {x: 0, y: top, width: left, height: count * row, fill: 'transparent', class: 'query-area'})
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

// The forms of the scores, and distances between tokens under them.

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
  const svg = chart(width, height, {
    'aria-label': `${values.length} eigenvalues from ${shortNumber(d3.min(values))} to ${shortNumber(d3.max(values))}`
  });
  drawAxis(svg, d3.axisLeft(y).ticks(4), left, 0, width - left);
  values.forEach((value, i) => {
    const bar = add(svg, 'rect', {
      class: `bar ${value < 0 ? 'bar-negative' : 'bar-positive'}`,
      x: x(i),
      width: x.bandwidth(),
      y: y(Math.max(0, value)),
      height: Math.max(0.5, Math.abs(y(value) - y(0)))
    });
    bar.append('title').text(`eigenvalue ${i}: ${shortNumber(value)}`);
  });
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
