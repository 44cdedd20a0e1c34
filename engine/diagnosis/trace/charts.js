// The chart of memory over a backward.

/// `behind`: steps; `held`: bytes held after each. Step -1 stands for the state before the first step.
function memory_chart(behind, held, steps) {
  const width = 860, height = 190, left = 74, right = 14, top = 16, bottom = 30;
  const most = Math.max(...held, 1);
  const x = (step) => left + (width - left - right) * (step + 1) / Math.max(steps, 1);
  const y = (value) => height - bottom - (height - top - bottom) * value / most;
  let path = `M${x(behind[0])},${y(0)}`;
  behind.forEach((step, i) => {
    const next = i + 1 < behind.length ? behind[i + 1] : Math.max(steps - 1, step);
    path += `L${x(step).toFixed(1)},${y(held[i]).toFixed(1)}L${x(next).toFixed(1)},${y(held[i]).toFixed(1)}`;
  });
  path += `L${x(Math.max(steps - 1, behind[behind.length - 1]))},${y(0)}Z`;
  const label = (at, value) => svg('text', {class: 'axis', x: left - 6, y: at + 4, 'text-anchor': 'end'}, value);
  const peak = held.indexOf(Math.max(...held));
  const to_right = x(behind[peak]) > width / 2;
  return svg('svg', {viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': 'memory over the backward'},
    [0, 0.5, 1].map((part) => svg('line', {class: 'rule', x1: left, x2: width - right, y1: y(most * part), y2: y(most * part)})),
    svg('path', {class: 'area', d: path}),
    label(y(0), '0'), label(y(most / 2), bytes(most / 2)), label(y(most), bytes(most)),
    svg('line', {class: 'peak', x1: x(behind[peak]), x2: x(behind[peak]), y1: top - 4, y2: height - bottom}),
    svg('text', {x: x(behind[peak]) + (to_right ? -6 : 6), y: top + 4, 'text-anchor': to_right ? 'end' : 'start'},
      `peak ${bytes(held[peak])}, behind ${behind[peak] < 0 ? 'nothing: it was given that much' : `step ${behind[peak]}`}`),
    svg('text', {class: 'axis', x: left, y: height - 10}, 'start'),
    svg('text', {class: 'axis', x: width - right, y: height - 10, 'text-anchor': 'end'}, `step ${count(steps)}`));
}
