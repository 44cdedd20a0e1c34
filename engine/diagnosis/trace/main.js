// Shows the view that the address names after '#'. "#graph/3/all" is graph 3 of the list with everything opened, "#events/7" the events
// with record 7 selected.

function matches(graph, wanted) {
  if (graph_text(graph).toLowerCase().includes(wanted.toLowerCase())) return true;
  const quoted = JSON.stringify(wanted).slice(1, -1).replaceAll('<', '\\u003c');  // escaped as in the file
  return [graph.record, graph.groups].some((record) => raw_body_of(record).includes(quoted));
}

function graph_text(graph) {
  const parts = [counted(graph.record.nodes, 'node'), counted(graph.record.ops, 'op')];
  if (graph.groups) parts.push(counted(graph.groups.groups, 'kernel'));
  if (graph.last_times) parts.push(`${count(graph.runs)}× ${microseconds(graph.last_times.us)}`);
  parts.push(graph.record.first);
  return `${graph.title} ${graph.record.role} ${[...parts, ...graph.causes.map((cause) => cause.text)].filter((part) => part).join(' · ')}`;
}

function graph_row(graph) {
  const text = graph_text(graph).slice(graph.title.length + graph.record.role.length + 2);
  const is_chosen = location.hash.split('/')[0] === '#graph' && Number(location.hash.split('/')[1]) === graph.index;
  return h('a', {class: `row graph ${is_chosen ? 'chosen' : ''}`, href: `#graph/${graph.index}`, title: text, role: 'option'},
    h('div', null, h('b', null, graph.title), h('span', {class: 'quiet'}, ` ${graph.record.role}`)),
    h('div', {class: 'below'}, text));
}

function show_view(list) {
  const main = document.getElementById('main');
  const [view, number, all] = location.hash.slice(1).split('/');
  const graph = view === 'graph' ? run.graphs[Number(number)] : null;
  const made = graph ? graph_view(graph, all === 'all') : view === 'events' ? events_view(number) : overview();
  main.replaceChildren(...[made].flat(Infinity).filter((part) => part));
  main.scrollTop = 0;
  for (const link of document.querySelectorAll('nav a')) {
    link.classList.toggle('chosen', !graph && link.getAttribute('href') === `#${view || 'overview'}`);
  }
  list.draw();
  if (graph) list.reveal(graph);
}

function open_page() {
  read_run();
  document.title = `hindcast: ${run.start.program || 'trace'}`;
  document.getElementById('program').textContent = run.start.kind ? `process ${run.start.pid}, ${counted(run.records.length, 'record')}` : '';
  const list = new LongList(document.getElementById('graphs'), 53, graph_row);
  const search = document.getElementById('search');
  const filter = () => {
    const wanted = search.value.trim();
    const found = wanted ? run.graphs.filter((graph) => matches(graph, wanted)) : run.graphs;
    document.getElementById('found').textContent = wanted ? `${count(found.length)} of ${counted(run.graphs.length, 'graph')}` : counted(run.graphs.length, 'graph');
    list.show(found);
  };
  search.addEventListener('input', filter);
  window.addEventListener('hashchange', () => show_view(list));
  filter();
  show_view(list);
  document.body.dataset.graphs = run.graphs.length;
  document.body.dataset.records = run.records.length;
  document.body.dataset.broken = run.broken;
}

window.addEventListener('error', (event) => {
  document.body.dataset.error = event.message;
  document.getElementById('main').append(h('div', {class: 'notice'}, `The page has a fault, please report it: ${event.message}`));
});
document.addEventListener('DOMContentLoaded', open_page);
