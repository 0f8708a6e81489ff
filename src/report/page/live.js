// New data for a page that `report --watch` serves. What the reader has chosen stays.

const live = {
  etag: null,
  isPaused: false,
  isPressed: false  // a mouse button or a finger, which may be drawing a selection
};
const liveStatus = make('span');

// Shows the data. Sections whose data are the same stay as they are, and the place that the reader sees stays in place.
function update(next) {
  const textOf = (of, data) => JSON.stringify([of(data), namesOf(data)]), last = report;
  const differs = (of) => Boolean(of) && textOf(of, last) !== textOf(of, next);
  const changed = new Set(sections.filter(({uses}) => differs(uses)));
  const redrawn = new Set(sections.filter(({drawn}) => differs(drawn)));
  const anchor = sections.find(({slot}) => slot.getBoundingClientRect().bottom > 60)?.slot;
  const before = anchor?.getBoundingClientRect().top;
  report = next;
  hideTooltip();
  showPage((section) => changed.has(section), (section) => redrawn.has(section));
  if (window.scrollY > 0 && anchor)
    window.scrollBy({top: anchor.getBoundingClientRect().top - before, behavior: 'instant'});
}

function tell(text) {
  if (liveStatus.textContent !== text) liveStatus.textContent = text;
}

async function lookForData() {
  if (live.isPaused || live.isPressed || document.hidden) return;
  try {
    const known = live.etag ? {'If-None-Match': live.etag} : {};
    const response = await fetch('data', {cache: 'no-store', headers: known});
    if (response.status === 200) {
      const next = await response.json();
      if (live.isPaused || live.isPressed) return;
      live.etag = response.headers.get('ETag');
      update(next);
      tell(`Follows the runs; last change at ${new Date().toLocaleTimeString()}. `);
    } else if (response.status === 304 && liveStatus.dataset.lost) {
      tell('Follows the runs. ');
    }
    delete liveStatus.dataset.lost;
  } catch (error) {
    liveStatus.dataset.lost = '';
    tell('The program that served this page has ended; these are its last data. ');
  }
}

function followRuns() {
  const pause = button('Pause', () => {
    live.isPaused = !live.isPaused;
    pause.textContent = live.isPaused ? 'Continue' : 'Pause';
    tell(live.isPaused ? 'Does not follow the runs. ' : 'Follows the runs. ');
  });
  const line = document.getElementById('live');
  line.replaceChildren(liveStatus, pause);
  line.hidden = false;
  tell('Follows the runs. ');
  const press = (isPressed) => () => {
    live.isPressed = isPressed;
  };
  window.addEventListener('pointerdown', press(true), {capture: true});
  for (const end of ['pointerup', 'pointercancel', 'blur']) window.addEventListener(end, press(false), {capture: true});
  setInterval(lookForData, 1000 * report.watch.seconds);
}
