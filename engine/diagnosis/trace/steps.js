// The table of a plan's steps: time and bytes moved.

const kBookkeeping = 'bookkeeping';

function step_rows(plan, groups) {
  const made = body_of(plan.record), times = body_of(plan.times);
  const kernels = new Map((groups || []).map((group, i) => [group.last, i]));
  return (made.names || []).map((name, i) => {
    const us = (times.us || [])[i] || 0, moved = (times.bytes || [])[i] || 0;
    return {number: i, name, us, bytes: moved, node: (made.nodes || [])[made.origins[i]] || '', origin: made.origins[i],
      kernel: plan.record.as_captured ? undefined : kernels.get(made.instrs[i])};
  });
}

function step_row(row, most_us, copy_rate) {
  const rate = row.us > 0 ? row.bytes / row.us : 0;
  return h('tr', null,
    h('td', {class: 'number quiet'}, row.number),
    h('td', null, row.kernel === undefined ? null :
      [h('span', {class: 'pill', style: `--kernel: ${kernel_colour(row.kernel)}`}, `k${row.kernel}`), ' '], row.name),
    h('td', {class: 'quiet node', title: row.node}, row.node, row.node && row.graph_is_backward ? ` (NodeCall ${row.origin + 1})` : ''),
    h('td', {class: 'number'}, microseconds(row.us)),
    h('td', {class: 'share'}, h('div', {class: 'bar', style: `width: ${(100 * row.us / most_us).toFixed(1)}%`})),
    h('td', {class: 'number'}, row.bytes ? bytes(row.bytes) : ''),
    h('td', {class: 'number'}, rate ? `${(rate / 1000).toFixed(1)} GB/s` : ''),
    h('td', {class: 'number'}, rate && copy_rate ? `${(100 * rate / copy_rate).toFixed(0)}%` : ''));
}

function step_table(plan, groups, graph_is_backward) {
  const kFirst = 200;
  const all = step_rows(plan, groups);
  all.forEach((row) => (row.graph_is_backward = graph_is_backward));
  const rows = all.filter((row) => row.name !== kBookkeeping);
  const most_us = Math.max(...rows.map((row) => row.us), 1e-9);
  const body = h('tbody');
  const show = (list) => body.replaceChildren(...list.map((row) => step_row(row, most_us, plan.record.copy_bytes_per_us)));
  const costliest = [...rows].sort((a, b) => b.us - a.us);
  const more = h('div', {class: 'buttons'});
  const buttons = choice(['in order', 'costliest first'], (name) => {
    const list = name === 'in order' ? rows : costliest;
    show(list.slice(0, kFirst));
    more.replaceChildren(...(list.length <= kFirst ? [] : [h('button', {onclick: () => (show(list), more.replaceChildren())},
      `show all ${count(list.length)} steps`)]));
  });
  const rest = all.filter((row) => row.name === kBookkeeping);
  const rest_us = rest.reduce((sum, row) => sum + row.us, 0);
  const head = [['#', 'number'], ['step', ''], ['of', ''], ['time', 'number'], ['', ''], ['read and written', 'number'], ['', 'number'], ['of a copy', 'number']];
  return [buttons, h('table', null, h('thead', null, h('tr', null, head.map(([text, name]) => h('th', {class: name}, text)))), body), more,
    rest.length ? h('p', {class: 'quiet small'}, `Not shown: ${counted(rest.length, 'step')} of bookkeeping, ${microseconds(rest_us)} together.`) : null];
}
