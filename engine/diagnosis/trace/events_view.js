// The view of all events, in chronological order.

const kEventKinds = {all: null, graphs: ['graph', 'joint'], kernels: ['pass', 'groups', 'kernel'], runs: ['plan', 'times'], sentences: ['log']};

function tag_of(record) {
  const level = record.level === 'warning' || record.level === 'error' ? record.level : '';
  return h('span', {class: `tag ${record.kind} ${level}`}, record.kind === 'log' ? level || record.channel.replace('compiled_', '') : record.kind);
}

/// The graph that a record refers to by number, at the time of the record.
function graph_of(record) {
  const named = record.graph === undefined || record.kind === 'joint' ? /\bgraph (\d+)\b/.exec(record.text || '') : [null, record.graph];
  const id = named ? Number(named[1]) : record.forward;
  return run.graphs.findLast((graph) => graph.id === id && graph.record.number <= record.number) || null;
}

/// `number`: of the record that is selected at first, if any.
function events_view(number) {
  const shown = h('div', {class: 'chosen-event'}), rows = h('div', {class: 'list'});
  let chosen = null;
  const list = new LongList(rows, 29, (record) => h('div', {class: `row event ${record === chosen ? 'chosen' : ''}`, onclick: () => choose(record)},
    h('span', {class: 'when'}, `${record.t.toFixed(1)} ms`), h('span', {class: 'kind'}, tag_of(record)), h('span', {class: 'what'}, text_of(record))));
  function choose(record) {
    chosen = record;
    const graph = graph_of(record);
    shown.replaceChildren(h('span', {class: 'quiet'}, `thread ${record.thread}  `), text_of(record),
      graph ? h('div', null, h('a', {href: `#graph/${graph.index}`}, `to ${graph.title.toLowerCase()}`)) : '',
      record.kind === 'kernel' ? kernel_text(record.kernel) : '');
    list.draw();
  }
  const buttons = choice(Object.keys(kEventKinds), (name) => {
    const kinds = kEventKinds[name];
    list.show(run.records.filter((record) => !kinds || kinds.includes(record.kind)));
  });
  if (run.records[number]) choose(run.records[number]);
  return h('div', {class: 'events'}, buttons, rows, shown);
}
