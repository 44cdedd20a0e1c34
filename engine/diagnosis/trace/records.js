// Reads the file's records, and assembles them by graph.
//
// A record is a script element with JSON that is parsed when the page opens (its head), and optionally another that is parsed on demand
// (its body). The last one may be truncated, if the program ended while writing.

function read_records() {
  const records = [];
  let broken = 0;
  for (const element of document.querySelectorAll('script[type="application/x-hindcast"]')) {
    try {
      const record = JSON.parse(element.textContent);
      const next = element.nextElementSibling;
      record.body_element = next && next.type === 'application/x-hindcast-body' ? next : null;
      record.number = records.length;
      records.push(record);
    } catch (error) {
      ++broken;
    }
  }
  return {records, broken};
}

/// The parsed body; {} if there is none, or if it is truncated.
function body_of(record) {
  if (record.body === undefined) {
    record.body = null;
    try {
      record.body = record.body_element ? JSON.parse(record.body_element.textContent) : null;
    } catch (error) {
      run.broken += 1;
    }
  }
  return record.body || {};
}

/// The raw JSON text, for a search that does not parse bodies.
function raw_body_of(record) { return record && record.body_element ? record.body_element.textContent : ''; }

const run = {records: [], broken: 0, graphs: [], kernels: new Map(), logs: [], resets: 0, start: {}, end: null};

/// A graph, filled in as its records are read.
class TracedGraph {
  constructor(record, index) {
    this.record = record;
    this.index = index;
    this.id = record.graph;
    this.resets = run.resets;  // hindcast::reset() numbers graphs from 0 again
    this.causes = [];   // sentences about the miss
    this.said = [];     // other sentences about it
    this.passes = [];
    this.groups = null;
    this.joint = null;
    this.plans = new Map();  // by number: {record, times}
  }

  get title() { return `Graph ${this.id}${this.resets ? ` after reset ${this.resets}` : ''}`; }
  get runs() {
    let runs = 0;
    for (const plan of this.plans.values()) runs += plan.times ? plan.times.runs : 0;
    return runs;
  }
  /// The times of the latest plan that was run.
  get last_times() {
    let last = null;
    for (const plan of this.plans.values()) last = plan.times || last;
    return last;
  }
  get total_us() {
    let us = 0;
    for (const plan of this.plans.values()) us += plan.times ? plan.times.runs * plan.times.us : 0;
    return us;
  }
}

/// Relies on the order of records: sentences about a miss come before the graph that the same thread then captures. A number that is reused
/// refers to the latest graph with it.
class Reader {
  constructor() {
    this.by_id = new Map();
    this.waiting = new Map();  // by thread
  }

  read(record) {
    const method = `read_${record.kind}`;
    if (this[method]) this[method](record, this.by_id.get(record.graph));
  }

  read_start(record) { run.start = record; }
  read_end(record) { run.end = record; }
  read_reset() { ++run.resets; }

  read_log(record) {
    run.logs.push(record);
    if (!this.waiting.has(record.thread)) this.waiting.set(record.thread, []);
    if (record.channel !== 'fusion' && !record.text.includes('limit reached')) this.waiting.get(record.thread).push(record);
    const named = /\bgraph (\d+)\b/.exec(record.text);
    const graph = named && this.by_id.get(Number(named[1]));
    if (graph) graph.said.push(record);
  }

  read_graph(record) {
    const graph = new TracedGraph(record, run.graphs.length);
    for (const log of this.waiting.get(record.thread) || []) {
      (log.channel === 'recompiles' ? graph.causes : graph.said).push(log);
    }
    this.waiting.delete(record.thread);
    run.graphs.push(graph);
    this.by_id.set(graph.id, graph);
  }

  read_joint(record) {
    for (const id of [record.forward, record.backward]) {
      const graph = this.by_id.get(id);
      if (graph) graph.joint = record;
    }
  }

  read_pass(record, graph) { if (graph) graph.passes.push(record); }
  read_groups(record, graph) { if (graph) graph.groups = record; }
  read_kernel(record) { run.kernels.set(record.kernel, record); }
  read_plan(record, graph) { if (graph) graph.plans.set(record.plan, {record, times: null}); }
  read_times(record, graph) {
    const plan = graph && graph.plans.get(record.plan);
    if (plan && (!plan.times || plan.times.runs < record.runs)) plan.times = record;  // two threads may write out of order
  }
}

function read_run() {
  Object.assign(run, read_records());
  const reader = new Reader();
  for (const record of run.records) reader.read(record);
}

/// One line about a record.
function text_of(record) {
  const is_kernels = record.kind === 'groups' && record.kernels;
  switch (record.kind) {
    case 'start':
      return `${record.program}, process ${record.pid}, started ${record.started}` +
          (record.parent ? `: forked from process ${record.parent}, whose graphs are in ${record.parent_file || 'no file'}` : '');
    case 'graph':
      return `Graph ${record.graph} was captured, ${record.role}: ${counted(record.nodes, 'node')}, ${counted(record.ops, 'op')}`;
    case 'reset':
      return 'hindcast::reset() forgot all graphs: the next is graph 0';
    case 'joint':
      return `A function's forward and backward as one: graphs ${record.forward} and ${record.backward} were made of it`;
    case 'groups':
      return `Graph ${record.graph}: ${counted(record.fused, 'op')} in ${counted(record.groups, is_kernels ? 'kernel' : 'group')}, ` +
          `${counted(record.ops - record.fused, 'op')} left to ATen`;
    case 'kernel':
      return `Kernel ${record.kernel.slice(0, 8)}: ${record.text}`;
    case 'plan':
      return `Graph ${record.graph} runs by a plan of ${counted(record.steps, 'step')}${record.as_captured ? ', as it was captured' : ''}`;
    case 'times':
      return `Graph ${record.graph} ran ${count(record.runs)}×: ${microseconds(record.us)} on average, ${microseconds(record.least_us)} at least` +
          (record.peak === undefined ? '' : `, holding up to ${bytes(record.peak)}`);
    default:
      return record.times > 3 ? `${record.text} (${count(record.times)} times)` : record.text;
  }
}
