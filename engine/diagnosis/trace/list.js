// A virtualised list: only visible rows are in the page.

class LongList {
  /// `make_row(item)` returns an element of the class "row".
  constructor(container, row_height, make_row) {
    this.container = container;
    this.row_height = row_height;
    this.make_row = make_row;
    this.items = [];
    this.spacer = h('div', {'aria-hidden': 'true'});
    container.replaceChildren(this.spacer);
    container.addEventListener('scroll', () => this.draw());
    new ResizeObserver(() => this.draw()).observe(container);
  }

  show(items) {
    this.items = items;
    this.container.scrollTop = 0;
    this.draw();
  }

  draw() {
    const around = 10;
    const height = Math.max(this.container.clientHeight, 600);  // 0 until the page is laid out
    const first = Math.max(0, Math.floor(this.container.scrollTop / this.row_height) - around);
    const last = Math.min(this.items.length, Math.ceil((this.container.scrollTop + height) / this.row_height) + around);
    const rows = [];
    for (let i = first; i < last; ++i) {
      const row = this.make_row(this.items[i]);
      row.style.top = `${i * this.row_height}px`;
      row.style.height = `${this.row_height}px`;
      rows.push(row);
    }
    this.spacer.style.height = `${this.items.length * this.row_height}px`;
    this.container.replaceChildren(this.spacer, ...rows);
  }

  /// Scrolls to the item, if it is there.
  reveal(item) {
    const at = this.items.indexOf(item) * this.row_height;
    if (at < 0) return;
    const top = this.container.scrollTop;
    if (at < top || at + this.row_height > top + this.container.clientHeight) this.container.scrollTop = Math.max(0, at - 60);
    this.draw();
  }
}
