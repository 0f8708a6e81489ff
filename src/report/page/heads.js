// The sections on attention, forms and distances, made of panels: one run's heads as thumbnails by layer and head, the
// chosen one large, and its facts below.

const hasMatrix = (run, key) => run.layers.some((layer) => layer.heads.some((head) => head[key]));
const runsWith = (kinds) => report.inspected.filter((run) => kinds.some(({key}) => hasMatrix(run, key)));

// `kinds`: the matrices that can be shown, {key, title, palette, map(run, matrix)}; a run is offered when it has one of
// them. `below(head, run, panel)`: nodes that are shown under the map.
class HeadPanel {
  // `state` keeps the choice of a panel, as choose() takes it, when the section is made again.
  constructor(kinds, state, below) {
    Object.assign(this, {kinds, below, state, layer: 0, head: 0});
    this.controls = make('div', {class: 'controls'});
    this.caption = make('p', {class: 'on-paper'});
    this.thumbnails = make('div', {class: 'heads', role: 'group', 'aria-label': 'Layers and heads'});
    this.mapBox = make('figure');
    this.readout = make('p', {class: 'readout', 'aria-live': 'polite'});
    this.extra = make('div');
    const parts = [this.controls, this.caption, this.thumbnails, this.mapBox, this.readout, this.extra];
    this.root = make('div', {class: 'head-panel'}, ...parts);
    this.choose(state.choice);
  }

  // Matrices of the chosen kind in a layer, by head.
  matrices(layer) { return (this.run.layers[layer] || {heads: []}).heads.map((head) => head[this.kind.key]); }

  // Changes some of run, kind (its key), layer and head; the others stay as far as there is such a matrix.
  choose({run = this.run, kind = this.kind && this.kind.key, layer = this.layer, head = this.head}) {
    const kinds = this.kinds.filter(({key}) => hasMatrix(run, key));
    Object.assign(this, {run, kind: kinds.find(({key}) => key === kind) || kinds[0]});
    const layers = d3.range(run.layers.length).filter((i) => this.matrices(i).some(Boolean));
    this.layer = layers.includes(layer) ? layer : layers[0];
    const heads = this.matrices(this.layer);
    this.head = heads[head] ? head : heads.findIndex(Boolean);
    this.state.choice = {run, kind: this.kind.key, layer: this.layer, head: this.head};
    const chosen = (key, options, value, parse = Number) =>
        choice(key, options, value, (text) => this.show({[key === 'matrix' ? 'kind' : key]: parse(text)}));
    const runs = runsWith(this.kinds).map((one) => [report.inspected.indexOf(one), one.name]);
    replaceInside(
        this.controls, chosen('run', runs, report.inspected.indexOf(run), (text) => report.inspected[text]),
        chosen('matrix', kinds.map(({key, title}) => [key, title]), this.kind.key, String),
        chosen('layer', layers.map((i) => [i, i]), this.layer), chosen('head', heads.map((_, i) => [i, i]), this.head));
  }

  show(choices) {
    this.choose(choices);
    this.draw();
  }

  draw() {
    hideTooltip();
    this.drawThumbnails();
    const {kind, run, layer, head} = this, matrix = decodeMatrix(this.matrices(layer)[head]);
    const name = `${kind.title} of ${run.name}, layer ${layer}, head ${head}`;
    this.caption.textContent = name;
    drawMap(this.mapBox, {matrix, name, scale: scaleOf(kind.palette, matrix), ...kind.map(run)}, this.readout);
    this.readout.textContent = '';
    this.extra.replaceChildren(...this.below(run.layers[layer].heads[head], run, this));
  }

  drawThumbnails() {
    const heads = d3.range(d3.max(this.run.layers, (layer) => layer.heads.length));
    this.thumbnails.style.setProperty('--heads', heads.length);
    const rows = this.run.layers.map((_, layer) => {
      const matrices = this.matrices(layer);
      return [make('span', {}, `layer ${layer}`), ...heads.map((head) => this.thumbnail(matrices[head], layer, head))];
    });
    const names = heads.map((head) => make('span', {class: 'head-name'}, `head ${head}`));
    replaceInside(this.thumbnails, make('span'), ...names, ...rows.flat());
  }

  thumbnail(packed, layer, head) {
    if (!packed) return make('span');
    const matrix = decodeMatrix(packed);
    return button(matrixCanvas(matrix, scaleOf(this.kind.palette, matrix)), () => this.show({layer, head}), {
      'aria-label': `layer ${layer}, head ${head}`,
      'aria-pressed': String(layer === this.layer && head === this.head),
      'data-place': `${layer}.${head}`
    });
  }
}

// The two runs to begin with: of the preferred mixers where there are such, of different mixers, and otherwise with
// configs as equal as possible.
function choosePair(runs, mixers) {
  const settings = (run) => report.groups[report.runs[run.run].group].settings;
  const cost = ([a, b]) => (mixers[0] && a.mixer !== mixers[0] ? 1000 : 0) +
      (mixers[1] && b.mixer !== mixers[1] ? 1000 : 0) + (a.mixer === b.mixer ? 100 : 0) +
      report.differing_keys.filter((key) => settings(a)[key] !== settings(b)[key]).length;
  const pairs = d3.cross(runs, runs).filter(([a, b]) => a !== b);
  return pairs.length ? pairs[d3.scan(pairs, (p, q) => cost(p) - cost(q))] : runs;
}

// The choices of the panels by section. A choice whose run is gone is dropped.
const panelStates = {};
function panelStatesOf(id, runs, choices) {
  const known = (panelStates[id] ??= []);
  return choices.map((choice, i) => {
    const old = known[i]?.choice, run = old && runs.find(({name}) => name === old.run.name);
    return (known[i] = {choice: run ? {...old, run} : choice});
  });
}

// A section of panels beside each other, of two runs where there are several. `mixers`: of the runs that are shown
// first.
function makePanels(id, title, description, kinds, below, mixers, kindOf = () => kinds[0].key) {
  const runs = runsWith(kinds);
  if (!runs.length) return null;
  const choices = choosePair(runs, mixers).map((run) => ({run, kind: kindOf(run)}));
  const panels = panelStatesOf(id, runs, choices).map((state) => new HeadPanel(kinds, state, below));
  panels.forEach((panel) => keepDrawn(() => panel.draw()));
  return makeSection(id, title, soft(description), make('div', {class: 'sides'}, ...panels.map((panel) => panel.root)));
}

// Terms with their values; those without a value are left out.
function facts(...pairs) {
  const known = pairs.filter(([, value]) => value != null).flatMap(([term, value]) => {
    return [make('dt', {}, term), make('dd', {}, typeof value === 'number' ? shortNumber(value) : value)];
  });
  return make('dl', {class: 'facts'}, ...known);
}

// Attention: matrices, and two columns of tokens with lines between them.

const keysOf = (run) => run.keys || run.tokens;

const betweenTokens = (unit) => (run) => {
  const rowLabels = run.tokens.map(visibleToken), columnLabels = keysOf(run).map(visibleToken);
  const [rowTitle, columnTitle] = run.keys ? ['written', 'source'] : ['query', 'key'];
  const describe = (row, column, value) =>
      `${rowTitle} ${row} “${rowLabels[row]}” → ${columnTitle} ${column} “${columnLabels[column]}”: ${
          Number.isFinite(value) ? `${unit} ${shortNumber(value)}` : 'hidden by the causal mask'}`;
  return {rowLabels, columnLabels, rowTitle, columnTitle, describe};
};

function showAttention() {
  const kinds = [
    {key: 'attention', title: 'attention (after the softmax)', palette: 'sequential', map: betweenTokens('attention')},
    {key: 'scores', title: 'scores (before the softmax)', palette: 'diverging', map: betweenTokens('score')}
  ];
  const below = (head, run, panel) => {
    const distance = head.mean_attention_distance;
    const known = facts(
        ['mean attention distance', distance == null ? null : `${shortNumber(distance)} tokens`],
        ['negative scores', percent(head.negative_scores)]);
    return head.attention ? [known, tokenColumns(head, run, panel)] : [known];
  };
  const text =
      `Rows are queries, columns are keys. Cells that a causal mask hides are blank. ${report.inspection_text}`;
  return makePanels('attention', 'Attention', text, kinds, below, []);
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
  const links =
      [...matrix.values].map((value, i) => ({query: Math.floor(i / matrix.columns), key: i % matrix.columns, value}));
  const lines = set(each(svg.append('g'), 'line', 'link', links.filter(({value}) => value > 0.01)), {
    x1: left,
    x2: right,
    y1: (link) => y(link.query),
    y2: (link) => y(link.key),
    'stroke-width': 2,
    'stroke-opacity': (link) => link.value
  });
  const tokens = (x, anchor, labels) =>
      set(each(svg.append('g'), 'text', 'token', labels), {x, y: (_, i) => y(i), dy: '.35em', 'text-anchor': anchor})
          .text((text) => shortenTo(text, 14));
  const queries = tokens(left - 8, 'end', queryLabels);
  tokens(right + 8, 'start', keyLabels);
  let chosen = null;
  const choose = (query) => {
    chosen = query === null ? null : Math.min(count - 1, Math.max(0, query));
    lines.attr('visibility', (link) => (chosen === null || link.query === chosen ? 'visible' : 'hidden'));
    queries.classed('chosen', (_, i) => i === chosen);
  };
  add(svg, 'rect', {x: 0, y: top, width: left, height: count * row, fill: 'transparent', class: 'query-area'})
      .on('mousemove', () => choose(Math.floor((pointer(svg.node())[1] - top) / row)))
      .on('mouseleave', () => choose(null));
  svg.on('keydown', () => {
    const next = {Escape: null, ArrowDown: (chosen ?? -1) + 1, ArrowUp: (chosen ?? count) - 1}[d3.event.key];
    if (next === undefined) return;
    choose(next);
    d3.event.preventDefault();
  });
  return make('div', {}, make('h3', {}, 'From queries to keys'), svg.node());
}

// The forms of the scores, and distances between tokens under them.

const betweenFeatures = () => ({
  rowLabels: [],
  columnLabels: [],
  rowTitle: 'feature',
  columnTitle: 'feature',
  describe: (row, column, value) => `row ${row}, column ${column}: ${shortNumber(value)}`
});
const betweenVocabulary = (run) => {
  const labels = run.vocabulary.map(visibleToken);
  const distance = (value) =>
      value < 0 ? `d² is negative (−${shortNumber(value * value)})` : `distance ${shortNumber(value)}`;
  const describe = (row, column, value) => `“${labels[row]}” – “${labels[column]}”: ${distance(value)}`;
  return {rowLabels: labels, columnLabels: labels, rowTitle: 'token', columnTitle: 'token', describe};
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
  const below = ({verdict, negative_eigenvalues: negative, asymmetry, eigenvalues}) => {
    const known = facts(
        ['is a metric', verdicts[verdict]], ['negative eigenvalues', percent(negative)], ['asymmetry', asymmetry]);
    if (!eigenvalues || !eigenvalues.length) return [known];
    return [known, make('h3', {}, 'Eigenvalues of the symmetric part'), eigenvalueBars(eigenvalues)];
  };
  const text =
      'The matrix between two vectors in a score: M of metric attention, W or U of quadratic attention, and, between ' +
      'inputs of the layer, W_q W_kᵀ/√k of scaled dot product beside P M Pᵀ/√k. Colours are symmetric about 0.';
  return makePanels(
      'forms', 'Forms of the scores', text, kinds, below, ['metric', 'scaled_dot_product'],
      (run) => (run.mixer === 'scaled_dot_product' ? 'input_form' : 'form'));
}

function eigenvalueBars(values) {
  const width = 400, height = 130, left = 46, numbers = d3.range(values.length);
  const [low, high] = d3.extent(values);
  const y = d3.scaleLinear().domain(d3.extent([0, low, high])).nice(4).range([height - 8, 8]);
  const x = d3.scaleBand().domain(numbers).range([left, width - 4]).paddingInner(values.length > 80 ? 0 : 0.25);
  const name = `${values.length} eigenvalues from ${shortNumber(low)} to ${shortNumber(high)}`;
  const svg = chart(width, height, {'aria-label': name});
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
  const text =
      'The distance √((x − y) F (x − y)) between the embeddings of tokens under the form F of a head. Where (x − y) F ' +
      '(x − y) is negative there is no distance; the map then shows −√|…|, in blue.';
  return makePanels('distances', 'Distances between tokens', text, kinds, below, ['metric']);
}
