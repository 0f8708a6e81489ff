// Matrices of heads: decoding, thumbnails, and one large map with axes, hover and keyboard.

// {rows, columns, low, high, bits, layout, data}: whole numbers of 8 or 16 bits, little-endian, base64; 0 is low and
// the largest is high. Of a "lower" matrix (a causal mask hides the rest, which becomes NaN) and of a "symmetric" one
// only the lower triangle with the diagonal is there.
function decodeMatrix(packed) {
  if (packed.values) return packed;
  const text = atob(packed.data), bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  const numbers = packed.bits === 16 ? new Uint16Array(bytes.buffer) : bytes;
  const step = (packed.high - packed.low) / (2 ** packed.bits - 1);
  const values = new Float64Array(packed.rows * packed.columns).fill(NaN);
  let next = 0;
  for (let row = 0; row < packed.rows; ++row) {
    const end = packed.layout === 'full' ? packed.columns : Math.min(row + 1, packed.columns);
    for (let column = 0; column < end; ++column) {
      const value = packed.low + step * numbers[next++];
      values[row * packed.columns + column] = value;
      if (packed.layout === 'symmetric') values[column * packed.columns + row] = value;
    }
  }
  return Object.assign(packed, {values});
}

// The matrix as a canvas with one pixel for each cell; NaN is transparent.
function matrixCanvas(matrix, color) {
  const canvas = make('canvas', {width: matrix.columns, height: matrix.rows});
  const context = canvas.getContext('2d');
  const image = context.createImageData(matrix.columns, matrix.rows);
  const table =
      d3.range(256).map((i) => d3.rgb(color(color.domain()[0] + ((color.domain()[4] - color.domain()[0]) * i) / 255)));
  const [low, high] = [color.domain()[0], color.domain()[4]];
  matrix.values.forEach((value, i) => {
    if (!Number.isFinite(value)) return;
    const {r, g, b} = table[Math.max(0, Math.min(255, Math.round(((value - low) / (high - low)) * 255)))];
    image.data.set([r, g, b, 255], i * 4);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

// The token with visible signs in place of white space.
function visibleToken(token) {
  const shown = token.replace(/ /g, '␣').replace(/\n/g, '↵').replace(/\t/g, '⇥');
  return shown === '' ? '∅' : shown;
}

const mostCellElements = 4900;  // larger maps are one image

// Draws a map into box. `map`: {matrix, rowLabels, columnLabels, rowTitle, columnTitle, scale, name, describe(row,
// column, value)}.
function drawMap(box, map, readout) {
  const {matrix} = map;
  const labelled = map.rowLabels && map.rowLabels.length === matrix.rows;
  const longest = labelled ? Math.min(12, d3.max(map.rowLabels, (label) => label.length)) : 3;
  const left = 26 + longest * 7, bottomLabels = longest > 2 || !labelled ? 14 + (labelled ? longest * 6 : 0) : 16;
  const room = Math.min(widthOf(box), 560) - left - 62;
  const cell = Math.max(2, Math.min(24, room / matrix.columns));
  const width = cell * matrix.columns, height = cell * matrix.rows, top = 6;
  const svg = chart(left + width + 62, top + height + bottomLabels + 24, {
    class: 'map',
    tabindex: 0,
    'aria-label': `${map.name}. Rows: ${map.rowTitle}; columns: ${map.columnTitle}. Arrow keys move from cell to cell.`
  });
  const area = {left, top, width, height, cell};
  drawCells(svg, map, area);
  add(svg, 'rect', {class: 'frame', x: left, y: top, width, height});
  drawMapLabels(svg, map, area, labelled, longest, bottomLabels);
  drawColorBar(svg, map.scale, left + width + 12, top, Math.min(160, height));
  followCells(svg, map, area, readout);
  box.replaceChildren(svg.node());
}

function drawCells(svg, map, area) {
  const {matrix} = map, color = colorScale(map.scale);
  const cells = svg.append('g').attr('class', 'cells');
  if (matrix.values.length > mostCellElements) {
    const {left: x, top: y, width, height} = area;
    const href = matrixCanvas(matrix, color).toDataURL();
    add(cells, 'image', {href, x, y, width, height, preserveAspectRatio: 'none'});
    return;
  }
  matrix.values.forEach((value, i) => {
    if (!Number.isFinite(value)) return;
    add(cells, 'rect', {
      class: 'cell',
      x: area.left + (i % matrix.columns) * area.cell,
      y: area.top + Math.floor(i / matrix.columns) * area.cell,
      width: area.cell,
      height: area.cell,
      fill: color(value)
    });
  });
}

function drawMapLabels(svg, map, area, labelled, longest, bottomLabels) {
  const small = area.cell < 11 ? 'small' : null;
  const every = labelled ? Math.ceil(8 / area.cell) : Math.max(1, d3.tickStep(0, map.matrix.columns, area.width / 45));
  const name = (labels, i) => (labelled ? shortenTo(labels[i], 12) : String(i));
  const middle = (i) => (i + 0.5) * area.cell, bottom = area.top + area.height;
  for (let row = 0; row < map.matrix.rows; row += every)
    label(
        svg, area.left - 5, area.top + middle(row), name(map.rowLabels, row),
        {dy: '.35em', 'text-anchor': 'end', class: small});
  for (let column = 0; column < map.matrix.columns; column += every) {
    const x = area.left + middle(column), text = name(map.columnLabels, column);
    if (labelled && longest > 2)
      label(
          svg, null, null, text,
          {transform: `translate(${x},${bottom + 5}) rotate(-90)`, dy: '.35em', 'text-anchor': 'end', class: small});
    else
      label(svg, x, bottom + 13, text, {'text-anchor': 'middle', class: small});
  }
  const turned = `translate(10,${area.top + area.height / 2}) rotate(-90)`;
  label(svg, null, null, map.rowTitle, {transform: turned, 'text-anchor': 'middle'});
  label(svg, area.left + area.width / 2, bottom + bottomLabels + 16, map.columnTitle, {'text-anchor': 'middle'});
}

function drawColorBar(svg, scale, x, y, height) {
  const color = colorScale(scale), steps = 48, group = svg.append('g').attr('class', 'cells');
  const place = d3.scaleLinear().domain([scale.low, scale.high]).range([y + height, y]);
  for (let i = 0; i < steps; ++i)
    add(group, 'rect', {
      x,
      y: y + height - ((i + 1) * height) / steps,
      width: 11,
      height: height / steps + 0.5,
      fill: color(scale.low + ((i + 0.5) / steps) * (scale.high - scale.low))
    });
  for (const tick of place.ticks(Math.max(2, Math.min(5, height / 30))))
    label(svg, x + 15, place(tick), shortTick(tick), {dy: '.35em'});
}

const shortTick = (value) => minus(
    Math.abs(value) >= 1e4 || (value !== 0 && Math.abs(value) < 1e-3) ? d3.format('.1e')(value) :
                                                                        d3.format('~g')(value));

// Pointer and arrow keys choose a cell; its value is shown in the tooltip and in the line below the map.
function followCells(svg, map, area, readout) {
  const marker = add(svg, 'rect', {class: 'marker', width: area.cell, height: area.cell, visibility: 'hidden'});
  const {rows, columns, values} = map.matrix;
  let chosen = null;
  const show = (row, column, clientX, clientY) => {
    chosen = [row, column];
    const text = map.describe(row, column, values[row * columns + column]);
    set(marker, {x: area.left + column * area.cell, y: area.top + row * area.cell, visibility: 'visible'});
    readout.textContent = text;
    showTooltip(clientX, clientY, text);
  };
  const hide = () => {
    marker.attr('visibility', 'hidden');
    hideTooltip();
  };
  svg.on('mousemove touchstart touchmove', function() {
       const touch = d3.event.touches && d3.event.touches[0], event = touch || d3.event;
       const [x, y] = touch ? d3.touches(this)[0] : d3.mouse(this);
       const column = Math.floor((x - area.left) / area.cell), row = Math.floor((y - area.top) / area.cell);
       if (row < 0 || column < 0 || row >= rows || column >= columns) return hide();
       show(row, column, event.clientX, event.clientY);
     }).on('mouseleave', hide).on('blur', hide).on('keydown', () => {
    const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[d3.event.key];
    if (!step) return;
    d3.event.preventDefault();
    const row = Math.min(rows - 1, Math.max(0, (chosen ? chosen[0] : -1) + step[0])),
          column = Math.min(columns - 1, Math.max(0, (chosen ? chosen[1] : 0) + step[1]));
    const box = svg.node().getBoundingClientRect();
    show(row, column, box.left + area.left + (column + 1) * area.cell, box.top + area.top + row * area.cell);
  });
}
