// One run's heads: thumbnails by layer and head, the chosen one large, and what belongs to it below. The sections on
// attention, forms and distances are made of such panels.

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
