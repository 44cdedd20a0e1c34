// Layered graph layout: each box is below the boxes that it reads. An edge across several layers gets a virtual node in each.

const kLayout = {gap: 18, layer_gap: 44, place: 10, sweeps: 8, most_places: 8000};

/// `boxes`: {width, height}; `edges`: [from, to], where `from` comes before `to` in `boxes`. Adds x, y (of the centre) to each box; returns
/// {width, height, paths}, with the points of each edge.
function lay_out(boxes, edges) {
  const layers = layers_of(boxes, edges);
  const {nodes, chains} = with_places(boxes, edges, layers);
  const rows = [];
  nodes.forEach((node) => (rows[node.layer] = rows[node.layer] || []).push(node));
  order_rows(rows);
  place_rows(rows);
  let y = kLayout.layer_gap / 2;
  for (const row of rows) {
    const height = Math.max(...row.map((node) => node.height));
    row.forEach((node) => (node.y = y + height / 2));
    y += height + kLayout.layer_gap;
  }
  const left = Math.min(...nodes.map((node) => node.x - node.width / 2));
  nodes.forEach((node) => (node.x += kLayout.gap - left));
  const width = Math.max(...nodes.map((node) => node.x + node.width / 2)) + kLayout.gap;
  boxes.forEach((box, i) => Object.assign(box, {x: nodes[i].x, y: nodes[i].y}));
  const paths = chains.map((chain) => [
    {x: chain[0].x, y: chain[0].y + chain[0].height / 2}, ...chain.slice(1, -1),
    {x: chain[chain.length - 1].x, y: chain[chain.length - 1].y - chain[chain.length - 1].height / 2}]);
  return {width, height: y, paths};
}

/// A box without inputs is placed directly above its first reader.
function layers_of(boxes, edges) {
  const layers = boxes.map(() => 0), has_source = boxes.map(() => false), lowest = boxes.map(() => Infinity);
  const into = boxes.map(() => []);
  for (const [from, to] of edges) into[to].push(from);
  into.forEach((sources, to) => {
    for (const from of sources) {
      has_source[to] = true;
      layers[to] = Math.max(layers[to], layers[from] + 1);
    }
  });
  for (const [from, to] of edges) lowest[from] = Math.min(lowest[from], layers[to]);
  return layers.map((layer, i) => (has_source[i] || lowest[i] === Infinity ? layer : lowest[i] - 1));
}

function with_places(boxes, edges, layers) {
  const nodes = boxes.map((box, i) => ({width: box.width, height: box.height, layer: layers[i], above: [], below: []}));
  const join = (upper, lower) => {
    upper.below.push(lower);
    lower.above.push(upper);
  };
  const chains = edges.map(([from, to]) => {
    const chain = [nodes[from]];
    if (nodes.length < boxes.length + kLayout.most_places) {
      for (let layer = layers[from] + 1; layer < layers[to]; ++layer) {
        const place = {width: kLayout.place, height: 0, layer, above: [], below: []};
        nodes.push(place);
        chain.push(place);
      }
    }
    chain.push(nodes[to]);
    for (let i = 0; i + 1 < chain.length; ++i) join(chain[i], chain[i + 1]);
    return chain;
  });
  return {nodes, chains};
}

function mean(numbers) { return numbers.reduce((sum, number) => sum + number, 0) / numbers.length; }

function order_rows(rows) {
  const number = (row) => row.forEach((node, i) => (node.place = i));
  rows.forEach(number);
  for (let sweep = 0; sweep < kLayout.sweeps; ++sweep) {
    const down = sweep % 2 === 0;
    for (const row of down ? rows : [...rows].reverse()) {
      for (const node of row) {
        const beside = down ? node.above : node.below;
        node.wish = beside.length ? mean(beside.map((other) => other.place)) : node.place;
      }
      row.sort((a, b) => a.wish - b.wish || a.place - b.place);
      number(row);
    }
  }
}

/// Moves nodes towards the mean position of their neighbours in other rows, keeping each row's order and spacing.
function place_rows(rows) {
  for (const row of rows) {
    let x = 0;
    for (const node of row) {
      node.x = x + node.width / 2;
      x += node.width + kLayout.gap;
    }
    row.forEach((node) => (node.x -= x / 2));
  }
  for (let sweep = 0; sweep < kLayout.sweeps; ++sweep) {
    for (const row of sweep % 2 === 0 ? rows : [...rows].reverse()) {
      const wishes = row.map((node) => {
        const beside = node.above.concat(node.below).map((other) => other.x);
        return beside.length ? mean(beside) : node.x;
      });
      const apart = (i) => (row[i].width + row[i - 1].width) / 2 + kLayout.gap;
      const from_left = [...wishes], from_right = [...wishes];
      for (let i = 1; i < row.length; ++i) from_left[i] = Math.max(from_left[i], from_left[i - 1] + apart(i));
      for (let i = row.length - 1; i > 0; --i) from_right[i - 1] = Math.min(from_right[i - 1], from_right[i] - apart(i));
      row.forEach((node, i) => (node.x = (from_left[i] + from_right[i]) / 2));
    }
  }
}
