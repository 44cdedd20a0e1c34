// Helpers that create HTML elements and format numbers.

/// h('a', {href: '#events'}, 'Events', ...): children are elements, texts, lists of both, or null. Texts are never parsed as HTML.
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== false) {
      element.setAttribute(name, value);
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children.flat(Infinity));
  return element;
}

function count(number) { return Math.round(number).toLocaleString('en-US'); }

/// "1 run", "2 runs"
function counted(number, noun) { return `${count(number)} ${noun}${number === 1 ? '' : 's'}`; }

function scaled(value, units, step) {
  let unit = 0;
  while (Math.abs(value) >= step && unit + 1 < units.length) {
    value /= step;
    ++unit;
  }
  const digits = value === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(unit === 0 && Number.isInteger(value) ? 0 : digits)} ${units[unit]}`;
}

function microseconds(us) { return scaled(us, ['µs', 'ms', 's'], 1000); }
function bytes(number) { return scaled(number, ['B', 'KiB', 'MiB', 'GiB', 'TiB'], 1024); }

/// A sentence. If more lines follow it (a refused graph's listing), they are shown when it is opened.
function sentence(text) {
  const [first, ...rest] = text.split('\n');
  return rest.length === 0 ? text : h('details', null, h('summary', null, first), h('pre', null, rest.join('\n')));
}

/// A section whose content is created when it is first opened.
function section(title, is_open, make) {
  const body = h('div');
  const details = h('details', {class: 'section'}, h('summary', null, title), body);
  let is_made = false;
  const fill = () => {
    if (is_made || !details.open) return;
    is_made = true;
    body.append(...[make()].flat(Infinity));
  };
  details.addEventListener('toggle', fill);
  details.open = is_open;
  fill();
  return details;
}

/// A group of buttons, one of them selected. Calls `show(name)` for the selected one, now and on each click.
function choice(names, show) {
  const buttons = names.map((name) => h('button', {onclick: () => choose(name)}, name));
  function choose(name) {
    buttons.forEach((button) => button.classList.toggle('chosen', button.textContent === name));
    show(name);
  }
  choose(names[0]);
  return h('div', {class: 'buttons'}, names.length > 1 ? buttons : null);
}
