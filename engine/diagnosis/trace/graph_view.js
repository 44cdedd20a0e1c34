// The view of one graph.

function sentences(records) {
  const kFirst = 8;
  const list = (some) => h('ul', null, some.map((record) => h('li', null, sentence(text_of(record)))));
  if (records.length <= kFirst) return list(records);
  return [list(records.slice(0, kFirst - 2)), h('details', null, h('summary', null, `${counted(records.length - kFirst + 2, 'more sentence')}`),
    list(records.slice(kFirst - 2)))];
}

function kernel_text(key) {
  const record = run.kernels.get(key);
  if (!record) return null;
  const details = h('details', null, h('summary', {class: 'small'}, `Text of kernel ${key.slice(0, 8)}, ${record.text}`));
  details.addEventListener('toggle', () => {
    if (details.open && details.children.length === 1) details.append(h('pre', null, body_of(record).source || 'It is cut off.'));
  });
  return details;
}

function group_card(group, i) {
  return h('div', {class: 'group', id: `k${i}`, style: `--kernel: ${kernel_colour(i)}`},
    h('div', null, h('span', {class: 'pill'}, `k${i}`), ' ', group.sentence.replace(/^graph \d+: /, ''), '.'),
    h('div', {class: 'ops mono'}, group.ops.map((op) => h('span', null, `${op.op} `, h('span', {class: 'quiet'}, `→ ${op.makes}`)))),
    h('div', {class: 'quiet small'}, `Over [${group.domain.join(', ')}].` +
      (group.leaves ? ` Gradients of ${counted(group.leaves, 'leaf').replace('leafs', 'leaves')} are among its results.` : '')),
    group.kernel ? kernel_text(group.kernel) : null);
}

function kernels_section(graph, is_open) {
  const record = graph.groups;
  if (!record) {
    return section('Kernels', is_open, () => h('p', {class: 'quiet'},
      'The compiler has not come to this graph, or was not asked to: ATen runs all of it. What was said of it may tell why.'));
  }
  return section('Kernels', is_open, () => {
    const body = body_of(record);
    const left = Object.entries((body.left || [{}])[0]);
    return [
      h('p', null, record.groups === 0 ? 'Nothing in this graph could be fused: ATen runs all of it.' : `${text_of(record)}.` +
        (record.kernels ? '' : ' The groups run op by op through ATen.')),
      graph.passes.length ? h('div', {class: 'small'}, 'Before that, passes changed the graph:', sentences(graph.passes)) : null,
      (body.groups || []).map(group_card),
      left.length ? h('p', {class: 'small'}, h('span', {class: 'quiet'}, 'Left to ATen: '),
        left.map(([name, number]) => `${name}${number > 1 ? ` ×${number}` : ''}`).join(', ')) : null];
  });
}

function runs_section(graph, is_open) {
  const plans = [...graph.plans.values()].filter((plan) => plan.times).reverse();
  if (plans.length === 0) {
    return section('Runs', is_open, () => h('p', {class: 'quiet'}, 'No run of this graph was recorded: it was captured and did not come again.'));
  }
  return section('Runs: times, bytes, memory', is_open, () => {
    const groups = graph.groups ? body_of(graph.groups).groups : null;
    const shown = h('div');
    const names = plans.map((plan, i) => `${plan.record.as_captured ? 'as captured' : 'with kernels'}${i === 0 ? ', latest' : `, plan ${plan.record.plan}`}`);
    const buttons = choice(names, (name) => {
      const plan = plans[names.indexOf(name)];
      const times = body_of(plan.times);
      shown.replaceChildren(...[
        h('p', null, `${counted(plan.times.runs, 'run')}, ${microseconds(plan.times.us)} on average, ${microseconds(plan.times.least_us)} at least. ` +
          'Each step was timed by itself, which costs some time too.'),
        (times.held || []).length ? [h('h3', null, 'Memory over the run'),
          h('p', {class: 'quiet small'}, 'What the run holds behind each step: what it was given, and what its steps made. What is shared counts once.'),
          memory_chart(times.held_behind, times.held, plan.record.steps)] : null,
        h('h3', null, 'Steps'), step_table(plan, groups, graph.record.role === 'backward')].flat(Infinity).filter((part) => part));
    });
    return [buttons, shown];
  });
}

function guards_section(graph, is_open) {
  return section('Guards', is_open, () => {
    const body = body_of(graph.record);
    const inputs = (body.listing || '').split('\n').map((line) => /^\s+([A-Za-z_]\w*): "(.*)" = inputs\[/.exec(line)).filter((found) => found);
    const symbols = (body.listing || '').split('\n').map((line) => /^\s+([sf]\d+) = (sizes|scalars)\[/.exec(line)).filter((found) => found);
    return [
      h('p', null, 'This graph is used where the structure is the same, and these tensors have the same dtype, device, kind of strides and sizes.',
        symbols.length ? ` ${symbols.map((found) => found[1]).join(', ')} may be any ${symbols.length > 1 ? 'numbers' : 'number'}` +
          ((body.guards || []).length ? ' for which these relations hold:' : '.') : ' No size and no scalar is dynamic.'),
      (body.guards || []).length ? h('ul', {class: 'mono'}, body.guards.map((guard) => h('li', null, guard))) : null,
      h('table', {class: 'mono'}, inputs.map((found) => h('tr', null, h('td', null, found[1]), h('td', null, found[2]))))];
  });
}

/// The texts of a graph: {name, listing, dot, groups}
function versions_of(graph) {
  const versions = [];
  const add = (name, record, groups) => {
    const body = body_of(record);
    if (body.listing) versions.push({name, listing: body.listing, dot: body.dot, groups});
  };
  if (graph.groups) add('as it runs', graph.groups, body_of(graph.groups).groups || []);
  add('as it was captured', graph.record, []);
  if (graph.joint) add('forward and backward as one', graph.joint, []);
  return versions;
}

function versions_section(title, graph, is_open, show) {
  return section(title, is_open, () => {
    const shown = h('div');
    const versions = versions_of(graph);
    if (versions.length === 0) return h('p', {class: 'quiet'}, 'It is cut off.');
    const buttons = choice(versions.map((version) => version.name), (name) => {
      shown.replaceChildren(...[show(versions.find((version) => version.name === name))].flat(Infinity));
    });
    return [buttons, shown];
  });
}

function show_listing(version) {
  const kernels = new Map();
  version.groups.forEach((group, i) => group.ops.forEach((op) => op.makes.split(', ').forEach((name) => kernels.set(name, i))));
  return listing(version.listing, kernels);
}

function show_picture(version) {
  const kernels = new Map();
  version.groups.forEach((group, i) => group.ops.forEach((op) => kernels.set(op.instr, kernel_colour(i))));
  return picture(version.dot, (instr) => kernels.get(instr));
}

function graph_view(graph, is_all_open) {
  const record = graph.record;
  const backward = record.role === 'backward';
  return [
    h('h2', null, graph.title, h('span', {class: 'quiet'}, `, ${record.role}`)),
    h('div', {class: 'quiet'}, `${counted(record.nodes, backward ? 'autograd node' : 'origin')}${record.first ? `, first ${record.first}` : ''}; ` +
      `${counted(record.ops, 'op')}, ${counted(record.values, 'value')}, ${counted(record.symbols, 'symbol')}. ` +
      `Captured ${(record.t / 1000).toFixed(3)} s after the start, on thread ${record.thread}.`),
    backward || graph.causes.length ? [h('h3', null, 'Why it was captured'),
      graph.causes.length ? sentences(graph.causes) : h('p', {class: 'quiet'}, 'The record of its miss is not here.')] : null,
    graph.said.length ? [h('h3', null, 'What else was said of it'), sentences(graph.said)] : null,
    kernels_section(graph, true),
    runs_section(graph, true),
    guards_section(graph, is_all_open),
    versions_section('Listing', graph, is_all_open, show_listing),
    versions_section('Picture', graph, is_all_open, show_picture)];
}
