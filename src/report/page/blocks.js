// The section on the blocks over a training: what train.diagnostics_interval has measured.

const blockName = (block) => block.replace(/_/g, ' ');

function showBlocks() {
  const runs = report.blocks;
  if (!runs.length) return;
  const section = addSection(
      'blocks', 'Blocks in training',
      make(
          'p', {class: 'soft'},
          'Measured on a few sequences of the validation split: the mean norm of a token’s vector behind every block, the ' +
              'entropy of attention as a fraction of its maximum (0: one token, 1: all visible tokens alike), the ' +
              'standard deviation of the scores, and the gradient of the loss with respect to the stream. Lines are ' +
              'means over the heads, bands reach from the lowest to the highest head.'));
  const box = make('div');
  const label = ({run}) => `${report.groups[report.runs[run].group].name}, seed ${report.runs[run].seed}`;
  let shown = 0;
  const draw = () => drawBlocks(box, runs[shown]);
  if (runs.length > 1)
    section.append(make(
        'div', {class: 'controls'},
        choice('run', runs.map((run, i) => ({value: String(i), label: label(run)})), '0', (value) => {
          shown = Number(value);
          draw();
        })));
  section.append(box);
  keepDrawn(draw);
}

function drawBlocks(box, {panels}) {
  const names = [...new Set(panels.flatMap((panel) => panel.lines.map((line) => line.block)))];
  const sides = make('div', {class: 'sides thirds'});
  box.replaceChildren(
      make('ul', {class: 'legend'}, ...names.map((name, i) => make('li', {}, lineSwatch(i), ` ${blockName(name)}`))),
      sides);
  const figures = panels.map(() => make('figure', {style: 'margin:0'}));
  sides.append(...panels.map(({title}, i) => make('div', {}, make('h3', {}, title), figures[i])));
  panels.forEach(
      ({title, log, lines}, panel) => drawLineChart(
          figures[panel], title, 'step',
          lines.map((line) => ({
                      color: names.indexOf(line.block),
                      name: blockName(line.block),
                      points: line.step.map((step, i) => [step, line.value[i]]),
                      band: line.low ? line.step.map((step, i) => [step, line.low[i], line.high[i]]) : null
                    })),
          log));
}
