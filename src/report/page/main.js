// Builds the page, and draws it anew when its width, the colour scheme or the medium changes.

const sections = [
  showOverview, showComparison, showCurves, showTexts, showAttention, showForms, showDistances, showNorms, showBlocks,
  showConfigs, showEnvironment
];
sections.forEach((show) => show());

let lastWidth = window.innerWidth, waiting = null;
window.addEventListener('resize', () => {
  if (window.innerWidth === lastWidth) return;
  lastWidth = window.innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(redraw, 120);
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
window.addEventListener('beforeprint', redraw);
window.addEventListener('afterprint', redraw);
window.addEventListener('scroll', hideTooltip, {passive: true});
