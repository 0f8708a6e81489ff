// What differs between the configs, the whole configs, and where the runs were made.

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
