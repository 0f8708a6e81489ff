// The section on classes: confusion matrices, reliability and ROC curves of classifiers.

const classState = {
  run: null,  // the name of the run whose matrix and bins are shown; null: the first
  split: 'test',
  show: 'first',
  label: null  // of the ROC curve; null: the first that has one
};

const runOf = ({run}) => report.runs[run];
const classRunName = (one) => `${report.groups[runOf(one).group].name}, seed ${runOf(one).seed}`;
const chosenClassifier = () =>
    report.classifiers.find((one) => runOf(one).name === classState.run) ?? report.classifiers[0];

// The runs with curves: the first such run of every group, or all.
function classifiersWith(key) {
  const having = report.classifiers.filter((one) => one[key].length);
  const isFirst = (one) => having.find((other) => runOf(other).group === runOf(one).group) === one;
  return classState.show === 'first' ? having.filter(isFirst) : having;
}

// The splits of the curves, of which a run has one.
const curveSplits = () => [...new Set(report.classifiers.map(({split}) => split).filter(Boolean))];

const labelOf = (number) => {
  const named = report.classifiers.find(({labels}) => labels.length > number);
  return named ? named.labels[number] : `class ${number}`;
};

function classControls(draw) {
  const chosen = (key, title, options, value) => options.length < 2 ? null : choice(title, options, value, (text) => {
    classState[key] = text;
    draw();
  });
  const labels = [...new Set(report.classifiers.flatMap(({roc}) => roc.map(({label: number}) => number)))];
  if (!labels.includes(Number(classState.label ?? NaN))) classState.label = labels[0] ?? null;
  const runs = report.classifiers.map((one) => [runOf(one).name, classRunName(one)]);
  const splits = ['test', 'validation'].filter((split) => report.classifiers.some(({confusion}) => confusion[split]));
  if (!splits.includes(classState.split)) classState.split = splits[0];
  const several = report.classifiers.length > new Set(report.classifiers.map((one) => runOf(one).group)).size;
  return make(
      'div', {class: 'controls'}, chosen('run', 'matrix and counts of', runs, runOf(chosenClassifier()).name),
      chosen('split', 'confusion matrix of', splits.map((split) => [split, `the ${split} split`]), classState.split),
      chosen('label', 'ROC curve of', labels.map((number) => [number, labelOf(number)]), classState.label),
      several ?
          chosen(
              'show', 'curves of', [['first', 'the first run of each group'], ['all', 'every run']], classState.show) :
          null);
}

function drawConfusion(box, readout) {
  const one = chosenClassifier(), counts = one.confusion[classState.split], {labels} = one;
  if (!counts) {
    box.replaceChildren(soft(`${classRunName(one)} has none of the ${classState.split ?? 'validation'} split.`));
    return;
  }
  const sums = counts.map((row) => d3.sum(row)), size = labels.length;
  const share = (row, column) => (sums[row] ? counts[row][column] / sums[row] : 0);
  const values = Float64Array.from(d3.cross(d3.range(size), d3.range(size), share));
  const describe = (row, column) => `true ${labels[row]}, predicted ${labels[column]}: ${
      fixed(counts[row][column], 0)} of ${fixed(sums[row], 0)} texts, ${percent(share(row, column))}`;
  drawMap(
      box, {
        matrix: {rows: size, columns: size, values},
        name: `Confusion matrix of ${classRunName(one)}, ${classState.split} split`,
        scale: {kind: 'sequential', low: 0, high: 1},
        rowLabels: labels,
        columnLabels: labels,
        rowTitle: 'true class',
        columnTitle: 'predicted class',
        largest: 64,
        text: (row, column) => fixed(counts[row][column], 0),
        describe
      },
      readout);
}

// A square chart from 0 to 1 with the diagonal.
function unitChart(box, name, xTitle, yTitle, below = 0) {
  const size = Math.min(380, widthOf(box)), left = 48, bottom = size - 36, right = size - 12;
  const x = d3.scaleLinear().range([left, right]), y = d3.scaleLinear().range([bottom, 10]);
  const svg = chart(size, size + below, {'aria-label': name});
  drawAxis(svg, d3.axisBottom(x).ticks(5), 0, bottom, bottom - 10);
  drawAxis(svg, d3.axisLeft(y).ticks(5), left, 0, right - left);
  add(svg, 'line', {class: 'reference-line', x1: x(0), y1: y(0), x2: x(1), y2: y(1)});
  label(svg, (left + right) / 2, bottom + 32, xTitle, {'text-anchor': 'middle'});
  turnedLabel(svg, 12, bottom / 2, yTitle);
  return {svg, x, y, size};
}

const classLine = (one) => ({
  group: runOf(one).group,
  label: classRunName(one) + (curveSplits().length > 1 ? `, ${one.split} split` : ''),
  css: classState.show === 'all' ? 'single' : ''
});

// A dot for each bin of confidence; below, the number of texts in the bins of the chosen run.
function drawReliability(box) {
  const height = 96, histogram = 58;
  const {svg, x, y, size} = unitChart(box, 'Reliability: accuracy by confidence', 'confidence', 'accuracy', height);
  const lines = classifiersWith('reliability').map((one) => ({
                                                     ...classLine(one),
                                                     x: one.reliability.map(([, confidence]) => confidence),
                                                     y: one.reliability.map(([, , accuracy]) => accuracy)
                                                   }));
  drawLines(svg.append('g'), lines, x, y, Number.isFinite, 0, 0);
  classifiersWith('reliability').forEach((one) => one.reliability.forEach(([texts, confidence, accuracy]) => {
    add(svg, 'circle', {class: 'point', cx: x(confidence), cy: y(accuracy), r: 4})
        .style('fill', curveColor(runOf(one).group))
        .append('title')
        .text(`${classRunName(one)}: ${fixed(texts, 0)} texts with a confidence of ${percent(confidence)} on average, ${
            percent(accuracy)} right`);
  }));
  const chosen = chosenClassifier(), bins = 15, most = d3.max(chosen.reliability, ([texts]) => texts) ?? 1;
  const tall = d3.scaleLinear().domain([0, most]).range([size + height - 24, size + height - 24 - histogram]);
  drawAxis(svg, d3.axisLeft(tall).ticks(2, '~s'), x(0), 0, x(1) - x(0));
  for (const [texts, confidence] of chosen.reliability) {
    const bin = Math.min(bins - 1, Math.floor(confidence * bins));
    add(svg, 'rect', {
      class: 'bar',
      x: x(bin / bins) + 1,
      width: x(1 / bins) - x(0) - 2,
      y: tall(texts),
      height: tall(0) - tall(texts)
    })
        .style('fill', curveColor(runOf(chosen).group))
        .append('title')
        .text(`${fixed(texts, 0)} texts of ${classRunName(chosen)}`);
  }
  label(
      svg, (x(0) + x(1)) / 2, size + height - 6, shortenTo(`texts of ${classRunName(chosen)}`, size / 6.5),
      {'text-anchor': 'middle'});
  box.replaceChildren(svg.node());
}

function drawRoc(box, legend) {
  const number = Number(classState.label);
  const {svg, x, y} = unitChart(box, `ROC curves of ${labelOf(number)}`, 'false positives', 'true positives');
  const lines = classifiersWith('roc').flatMap((one) => {
    const curve = one.roc.find((other) => other.label === number);
    return curve ? {...classLine(one), x: curve.x, y: curve.y, area: curve.area} : [];
  });
  drawLines(svg.append('g'), lines, x, y, Number.isFinite, 0, 0);
  svg.selectAll('.curve').append('title').text((line) => `${line.label}: area ${shortNumber(line.area)}`);
  box.replaceChildren(svg.node());
  const items =
      lines.map((line) => make('li', {}, lineSwatch(line.group), ` ${line.label}: area ${line.area.toFixed(3)}`));
  legend.replaceChildren(...items);
}

// The runs without some of the results, a line for each reason.
function missingResults() {
  const reasons =
      d3.nest()
          .key(([, line]) => line)
          .entries(report.classifiers.flatMap((one) => one.missing.map((line) => [classRunName(one), line])));
  if (!reasons.length) return null;
  const text = ({key, values}) => `${values.map(([name]) => name).join('; ')}: ${key}.`;
  return make('ul', {class: 'note'}, ...reasons.map((reason) => make('li', {}, text(reason))));
}

function showClasses() {
  if (!report.classifiers.length) return null;
  const hasCurves = report.classifiers.some(({roc, reliability}) => roc.length + reliability.length > 0);
  const hasMatrix = report.classifiers.some(({confusion}) => Object.keys(confusion).length);
  const [map, reliability, roc] = ['map-box', 'reliability', 'roc'].map((name) => make('figure', {class: name}));
  const [mapCaption, rocCaption] = ['p', 'p'].map((name) => make(name, {class: 'on-paper'}));
  const readout = make('p', {class: 'readout', 'aria-live': 'polite'}), legend = make('ul', {class: 'legend'});
  const draw = () => {
    if (hasMatrix) drawConfusion(map, readout);
    mapCaption.textContent = `${classRunName(chosenClassifier())}, ${classState.split} split`;
    rocCaption.textContent = hasCurves ? `class ${labelOf(Number(classState.label))}` : '';
    if (hasCurves) drawReliability(reliability);
    if (hasCurves) drawRoc(roc, legend);
  };
  const part = (title, ...children) => make('div', {}, make('h3', {}, title), ...children);
  const splits = curveSplits().join(' or ');
  const parts = [
    hasMatrix ? part('Confusion matrix', mapCaption, map, readout) : null,
    hasCurves ? part(`Reliability on the ${splits} split`, reliability) : null,
    hasCurves ? part(`ROC curve on the ${splits} split`, rocCaption, roc, legend) : null
  ].filter(Boolean);
  keepDrawn(draw);
  const text =
      'The matrix has the number of texts by true and predicted class; colours are fractions of the true class. The ' +
      'reliability curve has the accuracy of the texts in 15 equal bins of confidence, and below it their numbers: on ' +
      'the dashed line confidence and accuracy are equal. The ROC curve has the fraction of the texts of a class that ' +
      'get it by the fraction of other texts that get it, for all thresholds of its probability.';
  return makeSection(
      'classes', 'Classes', soft(text), missingResults(), classControls(draw),
      make('div', {class: 'sides thirds'}, ...parts));
}
