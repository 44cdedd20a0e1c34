// The overview of the whole run.

function card(number, text) { return h('div', {class: 'card'}, h('b', null, number), h('span', null, text)); }

/// Each sentence once, with its count.
function by_sentence(logs) {
  const times = new Map();
  for (const log of logs) times.set(log.text, Math.max(times.get(log.text) || 0, log.times || 1));
  return [...times].sort((a, b) => b[1] - a[1]);
}

function sentence_table(title, logs) {
  const kMost = 200;
  const rows = by_sentence(logs);
  if (rows.length === 0) return null;
  return [h('h3', null, title), h('table', {class: 'sentences'}, rows.slice(0, kMost).map(([text, times]) =>
    h('tr', null, h('td', {class: 'number'}, `${count(times)}×`), h('td', null, sentence(text))))),
  rows.length > kMost ? h('p', {class: 'quiet'}, `${count(rows.length - kMost)} more are among the events.`) : null];
}

/// Limited to the graphs that took the most time, since each graph's times must be parsed for it.
function costliest_steps() {
  const kGraphs = 40, kSteps = 12;
  const graphs = [...run.graphs].sort((a, b) => b.total_us - a.total_us).slice(0, kGraphs);
  const steps = [];
  for (const graph of graphs) {
    for (const plan of graph.plans.values()) {
      if (!plan.times) continue;
      const groups = graph.groups ? body_of(graph.groups).groups : null;
      for (const row of step_rows(plan, groups)) steps.push({...row, graph, runs: plan.times.runs, total: row.us * plan.times.runs});
    }
  }
  return steps.filter((step) => step.total > 0).sort((a, b) => b.total - a.total).slice(0, kSteps);
}

function costliest_table() {
  const steps = costliest_steps();
  if (steps.length === 0) return null;
  return [h('h3', null, 'Costliest steps'), h('table', null,
    h('tr', null, ['graph', 'step', 'time', '', 'runs', 'each'].map((text, i) => h('th', {class: i > 1 && i !== 3 ? 'number' : ''}, text))),
    steps.map((step) => h('tr', null,
      h('td', null, h('a', {href: `#graph/${step.graph.index}`}, step.graph.title)),
      h('td', null, step.name, h('span', {class: 'quiet'}, step.node ? ` of ${step.node}, step ${step.number}` : '')),
      h('td', {class: 'number'}, microseconds(step.total)),
      h('td', {class: 'share'}, h('div', {class: 'bar', style: `width: ${(100 * step.total / steps[0].total).toFixed(1)}%`})),
      h('td', {class: 'number'}, count(step.runs)), h('td', {class: 'number'}, microseconds(step.us)))))];
}

/// The first sentence of each; the graph's view has the others.
function captures_table() {
  const kMost = 200;
  if (run.graphs.length === 0) return null;
  return [h('h3', null, 'Why graphs were captured'), h('table', null, run.graphs.slice(0, kMost).map((graph) => h('tr', null,
    h('td', {class: 'name'}, h('a', {href: `#graph/${graph.index}`}, graph.title)),
    h('td', null, graph.causes.length ? graph.causes[0].text : graph.record.role,
      graph.causes.length > 1 ? h('span', {class: 'quiet'}, `, and ${counted(graph.causes.length - 1, 'other reason')}`) : null)))),
  run.graphs.length > kMost ? h('p', {class: 'quiet'}, `The list on the left has ${count(run.graphs.length - kMost)} more.`) : null];
}

function overview() {
  const of_channel = (channel) => run.logs.filter((log) => log.channel === channel);
  const opaque = of_channel('fallbacks').filter((log) => log.text.includes('is called as itself'));
  const fallbacks = of_channel('fallbacks').filter((log) => !opaque.includes(log));
  const warnings = run.logs.filter((log) => log.level === 'warning' || log.level === 'error').filter((log) => !fallbacks.includes(log));
  const runs = run.graphs.reduce((sum, graph) => sum + graph.runs, 0);
  const total = (logs) => by_sentence(logs).reduce((sum, [, times]) => sum + times, 0);
  return [
    h('h2', null, run.start.program || 'A run'),
    h('div', {class: 'quiet'}, run.start.kind ? text_of(run.start) : 'The first record is not here.'),
    run.end ? h('div', {class: 'notice'}, run.end.text) : null,
    run.broken ? h('div', {class: 'notice'}, `${counted(run.broken, 'record')} cut off: the program ended while it was written.`) : null,
    h('div', {class: 'cards'}, card(count(run.graphs.length), 'graphs captured'), card(count(runs), 'runs of them, about'),
      card(microseconds(run.graphs.reduce((sum, graph) => sum + graph.total_us, 0)), 'in these runs'),
      card(count(run.kernels.size), 'kernels'), card(count(total(fallbacks)), 'fallbacks'),
      card(count(warnings.length), 'warnings and errors')),
    run.graphs.length === 0 ? h('p', null, 'No graph was captured. Is a guard from hindcast::enable() alive on the thread that calls backward()?') : null,
    sentence_table('Warnings and errors', warnings),
    sentence_table('Calls that the stock engine ran', fallbacks),
    sentence_table('Nodes that run as themselves', opaque),
    costliest_table(),
    captures_table()];
}
