// The overview, the comparison's tables and charts of differences, the configs, where the runs were made, their texts.

const row = (name, cells, attributes) => make(
    'tr', attributes, ...cells.map((cell) => (cell instanceof HTMLTableCellElement ? cell : make(name, {}, cell))));

// Rows are lists of cells or made with row().
const table = (head, rows, attributes) => {
  const body = rows.map((cells) => (cells instanceof Element ? cells : row('td', cells)));
  return make(
      'div', {class: 'table-box'},
      make('table', attributes, make('thead', {}, row('th', head)), make('tbody', {}, ...body)));
};

// A part that is folded away.
const fold = (title, content, attributes) => make('details', attributes, make('summary', {}, ...title), ...content);

function showOverview() {
  const runs = report.runs.length, groups = report.groups.length;
  const tasks = [...new Set(report.groups.map((group) => group.task))].join(', ').replace(/_/g, ' ');
  const several = `${runs} runs in ${groups} group${groups === 1 ? '' : 's'}`;
  document.getElementById('overview').textContent =
      `${runs === 1 ? '1 run' : several}; runs of a group differ only in their seed. Task: ${tasks}.`;
  document.getElementById('origin').textContent = report.origin;
}

const isReference = (entry) => entry.reference === entry.name;
const entryName = (entry) => make(
    'th', {scope: 'row', title: entry.name}, entry.color === null ? null : groupSwatch(entry.color),
    ...breakable(entry.short_name));

const shownValue = (measure, value) => fixed(value * measure.scale, measure.digits);

function differenceText(measure, difference) {
  if (!difference) return '';
  const signed = (value) => (value > 0 ? '+' : '') + shownValue(measure, value);
  if (difference.low === null) return signed(difference.mean);
  const interval = `(${signed(difference.low)} to ${signed(difference.high)})`;
  return make('td', {}, `${signed(difference.mean)} `, make('span', {class: 'interval'}, interval));
}

function measureRow(measure, entry) {
  const {n, mean, sd, difference} = entry.metrics[measure.name], {p, equivalent} = difference || {};
  const cells = [
    entryName(entry), String(n), shownValue(measure, mean) + (sd === null ? '' : ` ± ${shownValue(measure, sd)}`),
    isReference(entry) ? 'reference' : differenceText(measure, difference),
    p == null ? '' : (p < 0.0001 ? '< 0.0001' : p.toFixed(4))
  ];
  if (report.comparison.margin !== null) cells.push(equivalent == null ? '' : (equivalent ? 'yes' : 'no'));
  for (const cost of report.comparison.costs) {
    const value = entry.metrics[cost.name];
    cells.push(value ? shownValue(cost, value.mean) : '');
  }
  return row('td', cells, {class: isReference(entry) ? 'reference' : null});
}

function showComparison() {
  const {comparison, problems} = report;
  if (!comparison && !problems.length) return null;
  const section = makeSection('comparison', 'Comparison');
  if (comparison) showMeasures(section, comparison);
  const list = make('ul', {class: 'note'}, ...problems.map((problem) => make('li', {}, problem)));
  if (problems.length)
    section.append(fold([`Left out, or compared in part (${problems.length})`], [list], {open: problems.length <= 6}));
  return section;
}

function showMeasures(section, comparison) {
  section.append(soft(
      'Mean ± standard deviation over the seeds. Differences to the reference are paired by seed; ' +
      'intervals are those of Student’s t at 95%.'));
  comparison.metrics.forEach((measure, i) => {
    const entries = comparison.groups.filter((entry) => entry.metrics[measure.name]);
    if (!entries.length) return;
    const head = ['group', 'seeds', measure.title, 'difference (95% interval)', 'p'];
    if (comparison.margin !== null) head.push('equivalent');
    const box = i === 0 ? section : fold([measure.title], [], {ontoggle: redraw});
    section.append(i === 0 ? make('h3', {}, measure.title) : box);
    box.append(table(
        [...head, ...comparison.costs.map((cost) => cost.title)], entries.map((entry) => measureRow(measure, entry))));
    showDifferences(box, measure, entries.filter((entry) => entry.metrics[measure.name].difference));
  });
  showFrontier(section, comparison);
  showMcNemar(section, comparison);
}

// Marks the groups that no other beats in two measures: as a table and as points on logarithmic axes.
function showFrontier(section, {groups, frontier}) {
  if (!frontier) return;
  const [x, y] = frontier.measures, missing = frontier.left_out;
  const points = frontier.points.map((point) => {
    const entry = groups.find(({name}) => name === point.group);
    const [atX, atY] = [x, y].map(({name}) => entry.metrics[name]);
    return {...point, entry, atX, atY};
  });
  const shown = (measure, {mean, sd}) => shownValue(measure, mean) + (sd ? ` ± ${shownValue(measure, sd)}` : '');
  const rows = points.map(
      ({entry, front, verdict, atX, atY}) =>
          row('td', [entryName(entry), String(atY.n), shown(x, atX), shown(y, atY), verdict],
              {class: front ? 'reference' : null}));
  const box = make('figure');
  section.append(
      make('h3', {}, `Frontier of ${x.title} and ${y.title}`),
      table(['group', 'seeds', x.title, y.title, 'frontier'], rows), box,
      soft('The dashed line joins the groups that no other beats in both. Bars are 95% intervals of the means.'));
  if (missing.length) section.append(soft(`Left out, without ${x.name} or ${y.name}: ${missing.join(', ')}.`));
  keepDrawn(() => box.replaceChildren(drawnFrontier(x, y, points, Math.min(widthOf(box), 760)).node()));
}

function drawnFrontier(x, y, points, width) {
  const height = 380, right = width - 24, bottom = height - 44, left = 64, top = 12;
  const scaleOf = (measure, values, range) => {
    const ends = d3.extent(values, (value) => value * measure.scale);
    return (ends[0] > 0 ? d3.scaleLog() : d3.scaleLinear()).domain(ends).range(range);
  };
  const toX = scaleOf(x, points.map(({atX}) => atX.mean), [left + 12, right - 12]);
  const toY = scaleOf(
      y, points.flatMap(({atY: {mean}, low, high}) => [low ?? mean, mean, high ?? mean]), [bottom - 12, top + 12]);
  // Within a decade a logarithmic axis would name one value.
  const withTicks = (axis, scale, count) => {
    const [low, high] = scale.domain(), format = d3.format('.3~r');
    return high < 10 * low ? axis.tickValues(d3.ticks(low, high, count)).tickFormat(format) : axis.ticks(count, '.3~r');
  };
  const svg =
      chart(width, height, {'aria-label': `Frontier of ${x.title} and ${y.title}; its values are in the table`});
  drawAxis(svg, withTicks(d3.axisBottom(toX), toX, 4), 0, bottom, bottom - top);
  drawAxis(svg, withTicks(d3.axisLeft(toY), toY, 5), left, 0, right - left);
  label(svg, (left + right) / 2, height - 6, x.title, {'text-anchor': 'middle'});
  turnedLabel(svg, 13, (top + bottom) / 2, y.title);
  const placed = points.map((point) => {
    const {entry, atX, atY} = point;
    const color = entry.color === null ? 'var(--soft-ink)' : curveColor(entry.color);
    const [low, high] = [point.low, point.high].map((value) => toY((value ?? atY.mean) * y.scale));
    return {...point, color, low, high, px: toX(atX.mean * x.scale), py: toY(atY.mean * y.scale)};
  });
  const front = placed.filter((point) => point.front).map(({px, py}) => [px, py]);
  add(svg, 'path', {class: 'reference-line', fill: 'none', 'stroke-dasharray': '4 4', d: d3.line()(front)});
  for (const {entry, verdict, color, px, py, low, high} of placed) {
    const group = add(svg, 'g', {class: 'frontier-point'});
    add(group, 'line', {x1: px, x2: px, y1: low, y2: high, 'stroke-width': 2}).style('stroke', color);
    add(group, 'circle', {cx: px, cy: py, r: 4.5})
        .style('fill', color)
        .append('title')
        .text(`${entry.short_name}: ${verdict}`);
    const isLeft = px > (left + right) / 2, name = entry.short_name;  // names differ at their ends
    const end = name.length <= 26 ? name : `…${name.slice(-25)}`;
    label(group, px + (isLeft ? -8 : 8), py - 6, end, {'text-anchor': isLeft ? 'end' : null});
  }
  return svg;
}

function showMcNemar(section, comparison) {
  const rows = comparison.groups.flatMap((entry) => (entry.mcnemar || []).map((test) => {
    return [entryName(entry), test.seed, test.only_reference, test.only_this, shortNumber(test.p_exact)];
  }));
  if (!rows.length) return;
  section.append(
      make('h3', {}, 'McNemar’s test'),
      soft('On the same test texts, by seed: texts that only one of both classifies correctly.'),
      table(['group', 'seed', 'only the reference', 'only this one', 'p (exact)'], rows));
}

// A dot with its interval for each group, and a line at no difference.
function showDifferences(section, measure, entries) {
  if (!entries.length) return;
  const box = make('figure');
  section.append(box);
  const rows = entries.map((entry) => {
    const {mean, low, high} = entry.metrics[measure.name].difference;
    const [value, from, to] = [mean, low ?? mean, high ?? mean].map((number) => number * measure.scale);
    return {entry, value, from, to, color: entry.color === null ? 'var(--soft-ink)' : curveColor(entry.color)};
  });
  keepDrawn(() => {
    const width = Math.min(widthOf(box), 760), left = Math.min(250, width * 0.42), step = 24,
          ticks = width < 500 ? 3 : 5, height = rows.length * step;
    const ends = d3.extent([0, ...rows.flatMap(({from, to}) => [from, to])]);
    const x = d3.scaleLinear().domain(ends).nice(5).range([left, width - 24]);
    const svg = chart(
        width, height + 44, {'aria-label': `Differences of ${measure.title} to the reference, with 95% intervals`});
    drawAxis(svg, d3.axisBottom(x).ticks(ticks), 0, height + 4, height);
    add(svg, 'line', {class: 'reference-line', x1: x(0), x2: x(0), y1: 0, y2: height + 4});
    label(svg, (left + width) / 2, height + 40, `difference of ${measure.title}`, {'text-anchor': 'middle'});
    rows.forEach(({entry, value, from, to, color}, i) => {
      const group = add(svg, 'g', {class: 'difference', transform: `translate(0,${(i + 0.5) * step + 4})`});
      label(group, left - 12, null, shortenTo(entry.short_name, left / 6.8), {'text-anchor': 'end', dy: '.35em'});
      add(group, 'line', {x1: x(from), x2: x(to), 'stroke-width': 2.5}).style('stroke', color);
      add(group, 'circle', {cx: x(value), r: 4.5}).style('fill', color);
    });
    box.replaceChildren(svg.node());
  });
}

const shortenTo = (text, letters) => (text.length <= letters ? text : `${text.slice(0, Math.max(1, letters - 1))}…`);

// The groups are the rows, or the columns if there are fewer of them than keys.
function differingSettings(keys) {
  const {groups} = report,
        nameOf = ({name}, i) =>
            make('th', {scope: groups.length >= keys.length ? 'row' : 'col'}, groupSwatch(i), ...breakable(name));
  const valueOf = ({settings}, key) => settings[key] ?? '–', code = (key) => make('code', {}, ...breakable(key));
  if (groups.length >= keys.length)
    return table(
        ['group', ...keys.map(code)],
        groups.map((group, i) => [nameOf(group, i), ...keys.map((key) => valueOf(group, key))]), {class: 'text'});
  return table(
      ['key', ...groups.map(nameOf)],
      keys.map((key) => [make('th', {scope: 'row'}, code(key)), ...groups.map((group) => valueOf(group, key))]),
      {class: 'text'});
}

function showConfigs() {
  const section = makeSection('configs', 'Configs'), keys = report.differing_keys;
  if (report.groups.length > 1) section.append(make('h3', {}, 'What differs'), differingSettings(keys));
  section.append(make('h3', {}, 'Whole configs'), ...report.groups.map(({name, runs, config}, i) => {
    const seeds = runs.map((run) => report.runs[run].seed).join(', ');
    return fold([groupSwatch(i), `${name} (train.seed ${seeds})`], [make('pre', {}, config)]);
  }));
  return section;
}

function stateOf({state, attention_collapse: collapse}) {
  if (!collapse) return state;
  const kind = collapse.kind === 'one_token' ? 'to one token' : 'to the mean of all visible tokens';
  return `${state}; attention collapsed ${kind} by step ${collapse.step}`;
}

function showEnvironment() {
  const fields = ['commit', 'device', 'threads', 'torch', 'compiler', 'host', 'started'].filter(
      (field) => report.runs.some((run) => run.environment[field]));
  const rows = report.runs.map(
      (run) =>
          [make('th', {scope: 'row'}, groupSwatch(run.group), ...breakable(run.name)), stateOf(run),
           duration(run.time ?? NaN), ...fields.map((field) => run.environment[field] || '–')]);
  const section =
      makeSection('environment', 'Environment', table(['run', 'state', 'training', ...fields], rows, {class: 'text'}));
  const commands = report.runs.filter((run) => run.environment.command).map(({name, environment}) => {
    return make('div', {}, make('dt', {}, name), make('dd', {}, make('code', {}, environment.command)));
  });
  if (commands.length) section.append(fold(['Commands'], [make('dl', {class: 'commands'}, ...commands)]));
  return section;
}

function showTexts() {
  const {samples, description} = report.texts;
  if (!samples.length) return null;
  const cards = (list) => make('div', {class: 'texts'}, ...list.map(({run: number, prompt, text, error}) => {
    const {group, seed} = report.runs[number];
    const title = make('h3', {}, groupSwatch(group), `${report.groups[group].name}, seed ${seed}`);
    const answer = error ? soft(error) : make('pre', {tabindex: 0}, make('span', {class: 'prompt'}, prompt), text);
    return make('article', {}, title, answer);
  }));
  const most = 12;  // of more texts, one of each group is shown at once
  const isShown = ({run}) => samples.length <= most || report.groups[report.runs[run].group].runs[0] === run;
  const rest = samples.filter((sample) => !isShown(sample));
  const section = makeSection('texts', 'Texts', soft(description), cards(samples.filter(isShown)));
  if (rest.length) section.append(fold([`The other seeds (${rest.length})`], [cards(rest)]));
  return section;
}

// Held-out sources with the targets of the data and those of the first run of every group.
function showTranslations() {
  if (!report.translations.length) return null;
  const nameOf = (run) => report.groups[report.runs[run].group].name;
  const articles = report.translations.flatMap(({sources, answers}) => sources.map(({source, target}, i) => {
    const rows = answers.flatMap(({run, texts}) => {
      const same = texts[i] === target ? ' (equal to the reference)' : '';
      return [make('dt', {}, groupSwatch(report.runs[run].group), nameOf(run)), make('dd', {}, texts[i] + same)];
    });
    const reference = target === null ? [] : [make('dt', {}, 'reference'), make('dd', {class: 'reference'}, target)];
    return make('article', {}, make('p', {class: 'prompt'}, source), make('dl', {}, ...reference, ...rows));
  }));
  const text =
      'Sources of the validation split from long to short, and with --prompt the given text first; references are the ' +
      'targets of the data. The first run of every group writes by greedy search.';
  return makeSection('translations', 'Translations', soft(text), make('div', {class: 'translations'}, ...articles));
}
