// Matrices of heads: decoding, thumbnails, and one large map with axes, hover and keyboard.

// {rows, columns, low, high, bits, layout, data}: whole numbers of 8 or 16 bits, little-endian, base64; 0 is low and
// the largest is high. Of a "lower" matrix (a causal mask hides the rest, which becomes NaN) and of a "symmetric" one
// only the lower triangle with the diagonal is there.
const decodedMatrices = new WeakMap();
function decodeMatrix(packed) {
  if (!decodedMatrices.has(packed)) decodedMatrices.set(packed, decoded(packed));
  return decodedMatrices.get(packed);
}

function decoded(packed) {
  const {rows, columns, low, high, bits, layout} = packed;
  const bytes = Uint8Array.from(atob(packed.data), (letter) => letter.charCodeAt(0));
  const numbers = bits === 16 ? new Uint16Array(bytes.buffer) : bytes, step = (high - low) / (2 ** bits - 1);
  const values = new Float64Array(rows * columns).fill(NaN);
  for (let row = 0, next = 0; row < rows; ++row)
    for (let column = 0; column < (layout === 'full' ? columns : Math.min(row + 1, columns)); ++column) {
      values[row * columns + column] = low + step * numbers[next++];
      if (layout === 'symmetric') values[column * columns + row] = values[row * columns + column];
    }
  return {...packed, values};
}

// The matrix as a canvas with one pixel for each cell; NaN is transparent.
function matrixCanvas({rows, columns, values}, scale) {
  const canvas = make('canvas', {width: columns, height: rows}), context = canvas.getContext('2d');
  const image = context.createImageData(columns, rows), color = colorScale(scale);
  const place = d3.scaleLinear().domain([scale.low, scale.high]).rangeRound([0, 255]).clamp(true);
  const table = d3.range(256).map((i) => d3.rgb(color(place.invert(i))));
  values.forEach((value, i) => {
    if (!Number.isFinite(value)) return;
    const {r, g, b} = table[place(value)];
    image.data.set([r, g, b, 255], i * 4);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

// The token with visible signs in place of white space.
const visibleToken = (token) => token.replace(/ /g, '␣').replace(/\n/g, '↵').replace(/\t/g, '⇥') || '∅';

const mostCellElements = 4900;  // larger maps are one image

// Draws a map into box. `map`: {matrix, rowLabels, columnLabels, rowTitle, columnTitle, scale, name, describe(row,
// column, value)}; also `largest`, the most pixels of a cell, and `text(row, column)`, which is written into cells that
// are large enough.
function drawMap(box, map, readout) {
  const {matrix, rowLabels} = map, labelled = rowLabels.length === matrix.rows;
  const longest = labelled ? Math.min(12, d3.max(rowLabels, (text) => text.length)) : 3;
  const left = 26 + longest * 7, bottomLabels = longest > 2 || !labelled ? 14 + (labelled ? longest * 6 : 0) : 16;
  const cell = Math.max(2, Math.min(map.largest ?? 24, (Math.min(widthOf(box), 560) - left - 62) / matrix.columns));
  const width = cell * matrix.columns, height = cell * matrix.rows, top = 6;
  const svg = chart(left + width + 62, top + height + bottomLabels + 24, {
    class: 'map',
    tabindex: 0,
    'aria-label': `${map.name}. Rows: ${map.rowTitle}; columns: ${map.columnTitle}. Arrow keys move from cell to cell.`
  });
  const area = {x: left, y: top, width, height};
  drawCells(svg, map, area, cell);
  if (map.text && cell >= 26) drawCellTexts(svg, map, area, cell);
  add(svg, 'rect', {class: 'frame', ...area});
  drawMapLabels(svg, map, area, cell, labelled, longest, bottomLabels);
  drawColorBar(svg, map.scale, left + width + 12, top, Math.min(160, height));
  followCells(svg, map, area, cell, readout);
  box.replaceChildren(svg.node());
}

function drawCells(svg, {matrix, scale}, area, cell) {
  const {columns, values} = matrix, color = colorScale(scale), cells = svg.append('g').attr('class', 'cells');
  if (values.length > mostCellElements) {
    add(cells, 'image', {href: matrixCanvas(matrix, scale).toDataURL(), ...area, preserveAspectRatio: 'none'});
    return;
  }
  values.forEach((value, i) => {
    const x = area.x + (i % columns) * cell, y = area.y + Math.floor(i / columns) * cell;
    if (Number.isFinite(value))
      add(cells, 'rect', {class: 'cell', x, y, width: cell, height: cell, fill: color(value)});
  });
}

// Dark text on light cells, light text on dark ones.
function drawCellTexts(svg, {matrix, scale, text}, area, cell) {
  const {columns, values} = matrix, color = colorScale(scale);
  values.forEach((value, i) => {
    const row = Math.floor(i / columns), column = i % columns;
    label(
        svg, area.x + (column + 0.5) * cell, area.y + (row + 0.5) * cell, text(row, column),
        {class: 'cell-text', 'text-anchor': 'middle', dy: '.35em', 'pointer-events': 'none'})
        .style('fill', d3.lab(color(value)).l > 50 ? '#111' : '#fff');
  });
}

function drawMapLabels(svg, map, area, cell, labelled, longest, bottomLabels) {
  const {rows, columns} = map.matrix, bottom = area.y + area.height;
  const every = labelled ? Math.ceil(8 / cell) : Math.max(1, d3.tickStep(0, columns, area.width / 45));
  const name = (labels, i) => (labelled ? shortenTo(labels[i], 12) : String(i));
  const small = cell < 11 ? 'small' : null, end = {dy: '.35em', 'text-anchor': 'end', class: small};
  for (let row = 0; row < rows; row += every)
    label(svg, area.x - 5, area.y + (row + 0.5) * cell, name(map.rowLabels, row), end);
  for (let column = 0; column < columns; column += every) {
    const x = area.x + (column + 0.5) * cell, text = name(map.columnLabels, column);
    if (labelled && longest > 2)
      turnedLabel(svg, x, bottom + 5, text, end);
    else
      label(svg, x, bottom + 13, text, {'text-anchor': 'middle', class: small});
  }
  turnedLabel(svg, 10, area.y + area.height / 2, map.rowTitle);
  label(svg, area.x + area.width / 2, bottom + bottomLabels + 16, map.columnTitle, {'text-anchor': 'middle'});
}

function drawColorBar(svg, scale, x, top, height) {
  const color = colorScale(scale), steps = 48, group = svg.append('g').attr('class', 'cells');
  const place = d3.scaleLinear().domain([scale.low, scale.high]).range([top + height, top]);
  for (let i = 0; i < steps; ++i) {
    const y = top + height - ((i + 1) * height) / steps;
    const fill = color(scale.low + ((i + 0.5) / steps) * (scale.high - scale.low));
    add(group, 'rect', {x, y, width: 11, height: height / steps + 0.5, fill});
  }
  for (const tick of place.ticks(Math.max(2, Math.min(5, height / 30))))
    label(svg, x + 15, place(tick), shortTick(tick), {dy: '.35em'});
}

const shortTick = (value) => minus(
    Math.abs(value) >= 1e4 || (value !== 0 && Math.abs(value) < 1e-3) ? d3.format('.1e')(value) :
                                                                        d3.format('~g')(value));

// Pointer and arrow keys choose a cell; its value is shown in the tooltip and in the line below the map.
function followCells(svg, {matrix, describe}, area, cell, readout) {
  const marker = add(svg, 'rect', {class: 'marker', width: cell, height: cell, visibility: 'hidden'});
  const {rows, columns, values} = matrix;
  let chosen = [-1, 0];
  const show = (row, column, clientX, clientY) => {
    chosen = [row, column];
    const text = describe(row, column, values[row * columns + column]);
    set(marker, {x: area.x + column * cell, y: area.y + row * cell, visibility: 'visible'});
    readout.textContent = text;
    showTooltip(clientX, clientY, text);
  };
  const hide = () => {
    marker.attr('visibility', 'hidden');
    hideTooltip();
  };
  const follow = () => {
    const [x, y, ...place] = pointer(svg.node());
    const column = Math.floor((x - area.x) / cell), row = Math.floor((y - area.y) / cell);
    if (row < 0 || column < 0 || row >= rows || column >= columns) return hide();
    show(row, column, ...place);
  };
  const move = () => {
    const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[d3.event.key];
    if (!step) return;
    d3.event.preventDefault();
    const [row, column] = [rows, columns].map((count, i) => Math.min(count - 1, Math.max(0, chosen[i] + step[i])));
    const box = svg.node().getBoundingClientRect();
    show(row, column, box.left + area.x + (column + 1) * cell, box.top + area.y + row * cell);
  };
  svg.on('mousemove touchstart touchmove', follow).on('mouseleave blur', hide).on('keydown', move);
}
