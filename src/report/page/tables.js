// The overview, the comparison's tables and charts of differences, the configs, where the runs were made, their texts.

function table(head, rows, attributes = {}) {
  const cell = (name, content) =>
      (content instanceof Node && /^T[DH]$/.test(content.tagName) ? content : make(name, {}, content));
  return make(
      'div', {class: 'table-box'},
      make(
          'table', attributes, make('thead', {}, make('tr', {}, ...head.map((title) => cell('th', title)))),
          make(
              'tbody', {},
              ...rows.map(
                  (row) => (row instanceof Node ? row : make('tr', {}, ...row.map((item) => cell('td', item))))))));
}

const groupName = (group) => make('th', {scope: 'row'}, groupSwatch(group), report.groups[group].name);

function showOverview() {
  const runs = report.runs.length, groups = report.groups.length;
  const tasks = [...new Set(report.groups.map((group) => group.task))].join(', ').replace(/_/g, ' ');
  document.getElementById('overview').textContent = `${
      runs === 1 ?
          '1 run' :
          `${runs} runs in ${
              groups === 1 ? '1 group' :
                             `${groups} groups`}; runs of a group differ only in their seed`}. Task: ${tasks}.`;
  document.getElementById('origin').textContent = report.origin;
}

const isReference = (entry) => entry.reference === entry.name;
const entryName = (entry) => make(
    'th', {scope: 'row', title: entry.name}, entry.color === null ? null : groupSwatch(entry.color), entry.short_name);
const entryColor = (entry) => (entry.color === null ? 'var(--soft-ink)' : curveColor(entry.color));

const shownValue = (measure, value) => fixed(value * measure.scale, measure.digits);

function differenceText(measure, difference) {
  if (!difference || difference.mean === null || difference.mean === undefined) return '';
  const signed = (value) => (value > 0 ? '+' : '') + shownValue(measure, value);
  const mean = signed(difference.mean);
  if (typeof difference.low !== 'number') return mean;
  return make(
      'td', {}, `${mean} `,
      make('span', {class: 'interval'}, `(${signed(difference.low)} to ${signed(difference.high)})`));
}

function measureRow(measure, entry) {
  const result = entry.metrics[measure.name];
  const difference = result.difference;
  const seeds = result.n;
  const mean =
      shownValue(measure, result.mean) + (typeof result.sd === 'number' ? ` ± ${shownValue(measure, result.sd)}` : '');
  const p = difference && typeof difference.p === 'number' ?
      (difference.p < 0.0001 ? '< 0.0001' : difference.p.toFixed(4)) :
      '';
  const cells = [
    entryName(entry), String(seeds), mean, isReference(entry) ? 'reference' : differenceText(measure, difference), p
  ];
  if (report.comparison.margin !== null && report.comparison.margin !== undefined)
    cells.push(difference && typeof difference.equivalent === 'boolean' ? (difference.equivalent ? 'yes' : 'no') : '');
  for (const cost of report.comparison.costs) {
    const value = entry.metrics[cost.name];
    cells.push(value ? shownValue(cost, value.mean) : '');
  }
  return make(
      'tr', {class: isReference(entry) ? 'reference' : null},
      ...cells.map((cell) => (cell instanceof Node ? cell : make('td', {}, cell))));
}

function showComparison() {
  const {comparison, problems} = report;
  if (!comparison && !problems.length) return;
  const section = addSection('comparison', 'Comparison');
  if (comparison) showMeasures(section, comparison);
  if (problems.length)
    section.append(make(
        'details', {open: problems.length <= 6},
        make('summary', {}, `Left out, or compared in part (${problems.length})`),
        make('ul', {class: 'note'}, ...problems.map((problem) => make('li', {}, problem)))));
}

function showMeasures(section, comparison) {
  section.append(make(
      'p', {class: 'soft'},
      'Mean ± standard deviation over the seeds. Differences to the reference are paired by seed; ' +
          'intervals are those of Student’s t at 95%.'));
  for (const measure of comparison.metrics) {
    const entries =
        comparison.groups.filter((entry) => entry.metrics[measure.name] && entry.metrics[measure.name].n > 0);
    if (!entries.length) continue;
    const head = ['group', 'seeds', measure.title, 'difference (95% interval)', 'p'];
    if (comparison.margin !== null && comparison.margin !== undefined) head.push('equivalent');
    const first = measure === comparison.metrics[0];
    const box = first ? section : make('details', {ontoggle: redraw}, make('summary', {}, measure.title));
    if (first)
      section.append(make('h3', {}, measure.title));
    else
      section.append(box);
    box.append(table(
        [...head, ...comparison.costs.map((cost) => cost.title)], entries.map((entry) => measureRow(measure, entry))));
    showDifferences(box, measure, entries.filter((entry) => entry.metrics[measure.name].difference));
  }
  showMcNemar(section, comparison);
}

function showMcNemar(section, comparison) {
  const rows = comparison.groups.flatMap(
      (entry) => (entry.mcnemar || [])
                     .map(
                         (test) =>
                             [entryName(entry), String(test.seed), String(test.only_reference), String(test.only_this),
                              shortNumber(test.p_exact)]));
  if (!rows.length) return;
  section.append(
      make('h3', {}, 'McNemar’s test'),
      make('p', {class: 'soft'}, 'On the same test texts, by seed: texts that only one of both classifies correctly.'),
      table(['group', 'seed', 'only the reference', 'only this one', 'p (exact)'], rows));
}

// A dot with its interval for each group, and a line at no difference.
function showDifferences(section, measure, entries) {
  if (!entries.length) return;
  const box = make('figure', {style: 'margin:0'});
  section.append(box);
  const value = (entry, key) => {
    const number = entry.metrics[measure.name].difference[key];
    return (typeof number === 'number' ? number : entry.metrics[measure.name].difference.mean) * measure.scale;
  };
  keepDrawn(() => {
    const width = Math.min(widthOf(box), 760), left = Math.min(250, width * 0.42), row = 24,
          ticks = width < 500 ? 3 : 5, height = entries.length * row;
    const ends = entries.flatMap((entry) => [value(entry, 'low'), value(entry, 'high'), 0]);
    const x = d3.scaleLinear().domain(d3.extent(ends)).nice(5).range([left, width - 24]);
    const svg = chart(
        width, height + 44, {'aria-label': `Differences of ${measure.title} to the reference, with 95% intervals`});
    drawAxis(svg, d3.axisBottom(x).ticks(ticks), 0, height + 4, height);
    add(svg, 'line', {class: 'reference-line', x1: x(0), x2: x(0), y1: 0, y2: height + 4});
    label(svg, (left + width) / 2, height + 40, `difference of ${measure.title}`, {'text-anchor': 'middle'});
    entries.forEach((entry, i) => {
      const color = entryColor(entry);
      const group = add(svg, 'g', {class: 'difference', transform: `translate(0,${(i + 0.5) * row + 4})`});
      label(group, left - 12, null, shortenTo(entry.short_name, left / 6.8), {'text-anchor': 'end', dy: '.35em'});
      add(group, 'line', {x1: x(value(entry, 'low')), x2: x(value(entry, 'high')), 'stroke-width': 2.5})
          .style('stroke', color);
      add(group, 'circle', {cx: x(value(entry, 'mean')), r: 4.5}).style('fill', color);
    });
    box.replaceChildren(svg.node());
  });
}

const shortenTo = (text, letters) => (text.length <= letters ? text : `${text.slice(0, Math.max(1, letters - 1))}…`);

function showConfigs() {
  const section = addSection('configs', 'Configs');
  const keys = report.differing_keys;
  if (report.groups.length > 1) {
    section.append(
        make('h3', {}, 'What differs'),
        table(
            ['group', ...keys.map((key) => make('th', {}, make('code', {}, key)))],
            report.groups.map(
                (group,
                 i) => [groupName(i), ...keys.map((key) => (key in group.settings ? group.settings[key] : '–'))]),
            {class: 'text'}));
  }
  section.append(make('h3', {}, 'Whole configs'));
  report.groups.forEach((group, i) => {
    const seeds = group.runs.map((run) => report.runs[run].seed).join(', ');
    section.append(make(
        'details', {}, make('summary', {}, groupSwatch(i), `${group.name} (train.seed ${seeds})`),
        make('pre', {}, group.config)));
  });
}

function stateOf(run) {
  const collapse = run.attention_collapse;
  if (!collapse) return run.state;
  const kind = collapse.kind === 'one_token' ? 'to one token' : 'to the mean of all visible tokens';
  return `${run.state}; attention collapsed ${kind} by step ${collapse.step}`;
}

function showEnvironment() {
  const section = addSection('environment', 'Environment');
  const fields = ['commit', 'device', 'threads', 'torch', 'compiler', 'host', 'started'].filter(
      (field) => report.runs.some((run) => run.environment[field]));
  const rows = report.runs.map(
      (run) =>
          [make('th', {scope: 'row'}, groupSwatch(run.group), run.name), stateOf(run),
           run.time === null ? '–' : duration(run.time), ...fields.map((field) => run.environment[field] || '–')]);
  section.append(table(['run', 'state', 'training', ...fields], rows, {class: 'text'}));
  const commands =
      report.runs.filter((run) => run.environment.command)
          .map(
              (run) =>
                  make('div', {}, make('dt', {}, run.name), make('dd', {}, make('code', {}, run.environment.command))));
  if (commands.length)
    section.append(make('details', {}, make('summary', {}, 'Commands'), make('dl', {class: 'commands'}, ...commands)));
}

function showTexts() {
  const {texts} = report;
  if (!texts || !texts.samples.length) return;
  const section = addSection('texts', 'Texts');
  section.append(make('p', {class: 'soft'}, texts.description));
  const card = (sample) => {
    const run = report.runs[sample.run];
    const content = sample.error ?
        make('p', {class: 'soft'}, sample.error) :
        make('pre', {tabindex: '0'}, make('span', {class: 'prompt'}, sample.prompt), sample.text);
    return make(
        'article', {}, make('h3', {}, groupSwatch(run.group), `${report.groups[run.group].name}, seed ${run.seed}`),
        content);
  };
  const most = 12;  // of more texts, one of each group is shown at once
  const isFirst = (sample) => report.groups[report.runs[sample.run].group].runs[0] === sample.run;
  const shown = texts.samples.filter((sample) => texts.samples.length <= most || isFirst(sample));
  const rest = texts.samples.filter((sample) => !shown.includes(sample));
  section.append(make('div', {class: 'texts'}, ...shown.map(card)));
  if (rest.length)
    section.append(make(
        'details', {}, make('summary', {}, `The other seeds (${rest.length} texts)`),
        make('div', {class: 'texts'}, ...rest.map(card))));
}
