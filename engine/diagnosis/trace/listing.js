// A graph's text, with the kernel of each line next to it.

/// Colours that differ clearly for adjacent numbers, and are light enough for dark text.
function kernel_colour(index) { return `hsl(${(index * 137.5 + 340) % 360} 62% 74%)`; }

/// `kernel_of_value`: from a value's name to the number of its group.
function listing(text, kernel_of_value) {
  const pre = h('pre', {class: 'listing'});
  const has_kernels = kernel_of_value.size > 0;
  for (const line of text.split('\n')) {
    const named = /^\s+([A-Za-z_]\w*): "/.exec(line);
    const kernel = named ? kernel_of_value.get(named[1]) : undefined;
    pre.append(h('span', {class: 'line'},
      has_kernels ? h('span', {class: 'gutter'}, kernel === undefined ? null :
        h('span', {class: 'pill', style: `--kernel: ${kernel_colour(kernel)}`}, `k${kernel}`)) : null,
      line || ' '));
  }
  return pre;
}
