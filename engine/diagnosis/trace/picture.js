// The picture of a graph, from the text that hindcast writes for Graphviz (Graph::dot()).

/// {boxes: [{id, lines, colour}], edges: [[from, to]]}
function read_dot(dot) {
  const boxes = [], edges = [], by_id = new Map();
  for (const line of dot.split('\n')) {
    const box = /^ {2}(?:"(.*)"|(\w+)) \[label="(.*?)"(?:, style=filled, fillcolor=(\w+))?\];$/.exec(line);
    const edge = box ? null : /^ {2}"(.*)" -> (\w+);$/.exec(line);
    if (box) {
      const id = box[1] === undefined ? box[2] : box[1];
      by_id.set(id, boxes.length);
      boxes.push({id, lines: box[3].split('\\n'), colour: box[4] || ''});
    } else if (edge && by_id.has(edge[1]) && by_id.has(edge[2])) {
      const pair = [by_id.get(edge[1]), by_id.get(edge[2])];
      if (!edges.some((other) => other[0] === pair[0] && other[1] === pair[1])) edges.push(pair);
    }
  }
  return {boxes, edges};
}

function shortened(text) {
  const short = text.replace('torch::autograd::', '');
  return short.length > 36 ? `${short.slice(0, 35)}…` : short;
}

function curve(points) {
  let path = `M${points[0].x.toFixed(1)},${points[0].y.toFixed(1)}`;
  for (let i = 1; i < points.length; ++i) {
    const from = points[i - 1], to = points[i], middle = (from.y + to.y) / 2;
    path += `C${from.x.toFixed(1)},${middle.toFixed(1)} ${to.x.toFixed(1)},${middle.toFixed(1)} ${to.x.toFixed(1)},${to.y.toFixed(1)}`;
  }
  return path;
}

function box_element(box, colour) {
  const names = `${box.colour} ${colour ? 'fused' : ''}`.trim();
  const top = box.y - box.height / 2;
  return svg('g', {class: names, style: colour ? `--kernel: ${colour}` : ''},
    svg('title', null, box.lines.join('\n')),
    svg('rect', {class: `box ${names}`, x: box.x - box.width / 2, y: top, width: box.width, height: box.height, rx: 4}),
    box.lines.map((line, i) => svg('text', {x: box.x, y: top + 15 + 14 * i, 'text-anchor': 'middle'}, shortened(line))));
}

/// `colour_of(instr)`: the colour of the instr's kernel, or undefined.
function picture(dot, colour_of) {
  const kMostBoxes = 3000;
  const {boxes, edges} = read_dot(dot);
  if (boxes.length === 0) return h('p', {class: 'quiet'}, 'The graph has nothing to draw.');
  if (boxes.length > kMostBoxes) {
    return h('p', {class: 'quiet'}, `The graph has ${count(boxes.length)} boxes, too many for a picture. The listing has all of them.`);
  }
  for (const box of boxes) {
    box.width = Math.max(...box.lines.map((line) => shortened(line).length)) * 6.7 + 18;
    box.height = 14 * box.lines.length + 10;
  }
  const {width, height, paths} = lay_out(boxes, edges);
  const drawing = svg('svg', {viewBox: `0 0 ${width} ${height}`, width, height},
    svg('defs', null, svg('marker', {id: 'tip', viewBox: '0 0 8 8', refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: 'auto'},
      svg('path', {d: 'M0,0L8,4L0,8Z', fill: 'currentColor'}))),
    paths.map((points) => svg('path', {class: 'edge', d: curve(points), 'marker-end': 'url(#tip)'})),
    boxes.map((box) => box_element(box, /^i\d+$/.test(box.id) ? colour_of(Number(box.id.slice(1))) : null)));
  const zoom = (factor) => {
    drawing.setAttribute('width', drawing.getAttribute('width') * factor);
    drawing.setAttribute('height', drawing.getAttribute('height') * factor);
  };
  zoom(Math.min(1, Math.max(0.6, 1040 / width)));
  return [h('div', {class: 'buttons'}, h('button', {onclick: () => zoom(1.25)}, 'larger'), h('button', {onclick: () => zoom(0.8)}, 'smaller')),
    h('div', {class: 'picture'}, drawing)];
}
