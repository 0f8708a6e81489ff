// Builds the page, and draws it anew when its data, its width, the colour scheme or the medium changes.

// A section is made again when `uses` gives other data. `drawn`: data that its drawings read, for which they are only
// drawn again.
const sections = [
  {id: 'comparison', show: showComparison, uses: ({comparison, problems}) => [comparison, problems]}, {
    id: 'curves',
    show: showCurves,
    uses:
        ({curves: {views, description, axes},
          runs}) => [views, description, axes.some(({tokens}) => tokens), runs.some(({operations}) => operations)],
    drawn: ({curves}) => curves
  },
  {id: 'classes', show: showClasses, uses: ({classifiers}) => classifiers},
  {id: 'texts', show: showTexts, uses: ({texts}) => texts},
  {id: 'translations', show: showTranslations, uses: ({translations}) => translations},
  {id: 'attention', show: showAttention, uses: ({inspected, inspection_text: text}) => [inspected, text]},
  {id: 'forms', show: showForms, uses: ({inspected}) => inspected},
  {id: 'distances', show: showDistances, uses: ({inspected}) => inspected},
  {id: 'norms', show: showNorms, uses: ({inspected}) => inspected},
  {id: 'blocks', show: showBlocks, uses: ({blocks}) => blocks},
  {id: 'configs', show: showConfigs, uses: ({groups, differing_keys: keys}) => [groups, keys]},
  {id: 'environment', show: showEnvironment, uses: ({runs}) => runs}
];
// What every section shows of runs and groups.
const namesOf = ({
  runs,
  groups
}) => [runs.map(({name, seed, group}) => [name, seed, group]), groups.map(({id, name, runs: own}) => [id, name, own])];

const content = document.getElementById('content'), links = document.getElementById('sections');
content.replaceChildren();
for (const section of sections) {
  section.slot = make('div');
  section.link = make('li', {hidden: true});
  section.drawings = [];
  content.append(section.slot);
  links.append(section.link);
}

// Parts that the reader has opened or closed, by their titles without numbers in parentheses.
const titleOf = (part) => part.querySelector('summary').textContent.replace(/ \([^()]*\)$/, '');
function copyOpenParts(from, to) {
  const states = new Map([...from.querySelectorAll('details')].map((part) => [titleOf(part), part.open]));
  to.querySelectorAll('details').forEach((part) => {
    part.open = states.get(titleOf(part)) ?? part.open;
  });
}

function showSection(section) {
  newDrawings = [];
  const made = section.show();
  section.drawings = newDrawings;
  if (made) copyOpenParts(section.slot, made);
  replaceInside(section.slot, ...(made ? [made] : []));
  section.link.hidden = !made;
  if (made && !section.link.firstChild)
    section.link.append(make('a', {href: `#${section.id}`}, made.querySelector('h2').textContent));
  section.drawings.forEach((draw) => draw());
}

function showPage(isChanged = () => true, isDrawingChanged = () => false) {
  showOverview();
  for (const section of sections)
    if (isChanged(section))
      showSection(section);
    else if (isDrawingChanged(section))
      section.drawings.forEach((draw) => draw());
}

function redraw() {
  hideTooltip();
  for (const {drawings} of sections) drawings.forEach((draw) => draw());
}

// On paper the colours are those of light ground, at the width of a page.
function setPaper(isPaper) {
  document.documentElement.toggleAttribute('data-paper', isPaper);
  for (const part of document.querySelectorAll('#comparison details')) {  // all tables
    if (isPaper) part.dataset.wasOpen = part.open ? 'yes' : '';
    part.open = isPaper || part.dataset.wasOpen === 'yes';
  }
  redraw();
}

showPage();
let lastWidth = window.innerWidth, waiting = null;
window.addEventListener('resize', () => {
  if (window.innerWidth === lastWidth) return;
  lastWidth = window.innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(redraw, 120);
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
window.addEventListener('beforeprint', () => setPaper(true));
window.addEventListener('afterprint', () => setPaper(false));
window.addEventListener('scroll', hideTooltip, {passive: true});
if (report.watch) followRuns();
