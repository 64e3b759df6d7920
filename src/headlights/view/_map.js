
// The picture of one map on two canvases: the map with its labels, redrawn when it moves, and over it what is
// pointed at, redrawn at every move of the pointer.

const EDGE = { top: 96, right: 34, bottom: 58, least: 64, most: 150 }; // pixels around the cells
const LARGEST_CELL = 34;
const RINGED = 5; // largest weights of the pointed row

class MapView {
  // Both callbacks are given {row, column} or null; either number may be null, at a label.
  constructor(parent, data, { hovered, picked }) {
    Object.assign(this, { data, hovered, onPick: picked, picked: null, pointed: null, root: true });
    this.labels = new Labels(data);
    this.canvases = ["base", "over"].map((className) => make("canvas", { className }));
    this.stage = make("div", { className: "stage" }, ...this.canvases);
    parent.append(this.stage);
    [this.base, this.over] = this.canvases.map((canvas) => canvas.getContext("2d"));
    this.front = this.canvases[1];
    this.front.tabIndex = 0;
    this.front.setAttribute("role", "application");
    this.front.setAttribute("aria-roledescription", "attention map");
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.stage);
  }

  listen() {
    const { front } = this;
    front.addEventListener("pointerdown", (event) => this.grab(event));
    front.addEventListener("pointermove", (event) => this.move(event));
    front.addEventListener("pointerup", (event) => this.release(event));
    front.addEventListener("pointercancel", () => { this.start = null; });
    front.addEventListener("pointerleave", () => this.point(null));
    front.addEventListener("wheel", (event) => {
      if (event.deltaY > 0 && this.fitted) return; // nothing left to show: the page scrolls
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
    }, { passive: false });
  }

  // Shows another map of the same size where the last one stood.
  show(map) {
    this.map = map;
    if (!this.view) this.resize();
    else this.draw();
  }

  theme(dark) {
    const style = getComputedStyle(this.stage);
    this.ink = Object.fromEntries(["ink", "soft", "accent", "edge", "paper", "band", "link"]
      .map((name) => [name, style.getPropertyValue(`--${name}`)]));
    this.colours = pixelColours(this.data.colours[Number(dark)]);
    this.draw();
  }

  resize() {
    const { width, height } = this.stage.getBoundingClientRect();
    if (!this.map || width < 2 * EDGE.least) return;
    this.ratio = window.devicePixelRatio;
    [this.width, this.height] = [width, height];
    for (const canvas of this.canvases) {
      [canvas.width, canvas.height] = [Math.round(width * this.ratio), Math.round(height * this.ratio)];
    }
    this.left = Math.round(Math.min(Math.max(width * 0.2, EDGE.least), EDGE.most));
    this.labels.room = { row: this.left - 16, column: EDGE.top };
    this.plot = { width: width - this.left - EDGE.right, height: height - EDGE.top - EDGE.bottom };
    if (!this.view || this.fitted) this.fit();
    else this.look(this.view);
  }

  fit() {
    this.look({ x: 0, y: 0, scale: this.smallest() });
  }

  smallest() {
    return Math.min(this.plot.width / this.map.width, this.plot.height / this.map.height, LARGEST_CELL);
  }

  // Moves to a view, held so that the map fills the plot as far as it can.
  look({ x, y, scale }) {
    const kept = Math.max(this.smallest(), Math.min(scale, LARGEST_CELL));
    const hold = (place, cells, pixels) => Math.max(0, Math.min(place, cells - pixels / kept));
    this.view = { x: hold(x, this.map.width, this.plot.width), y: hold(y, this.map.height, this.plot.height), scale: kept };
    this.fitted = kept <= this.smallest() * 1.0001;
    this.draw();
  }

  zoom(factor, atX = this.left + this.plot.width / 2, atY = EDGE.top + this.plot.height / 2) {
    const { x, y, scale } = this.view;
    const next = Math.max(this.smallest(), Math.min(scale * factor, LARGEST_CELL));
    const shift = (pixels) => pixels / scale - pixels / next;
    this.look({ x: x + shift(atX - this.left), y: y + shift(atY - EDGE.top), scale: next });
  }

  // Brings a cell into view, at a scale at which words can be read.
  reveal(row, column, readable = false) {
    const scale = readable ? Math.max(this.view.scale, LINE) : this.view.scale;
    const { plot } = this;
    const place = (index, from, pixels) => {
      const inside = index >= from + 1 && index + 2 <= from + pixels / scale && scale === this.view.scale;
      return index === null || inside ? from : index + 0.5 - pixels / scale / 2;
    };
    this.look({ x: place(column, this.view.x, plot.width), y: place(row, this.view.y, plot.height), scale });
  }

  at(event) {
    const { x, y, scale } = this.view;
    const [right, down] = [event.offsetX - this.left, event.offsetY - EDGE.top];
    const column = right >= 0 ? Math.floor(x + right / scale) : null;
    const row = down >= 0 && down < this.plot.height ? Math.floor(y + down / scale) : null;
    if ((column === null && row === null) || column >= this.map.width || row >= this.map.height) return null;
    return { row, column };
  }

  grab(event) {
    this.start = { x: event.offsetX, y: event.offsetY, view: this.view, moved: false };
    this.front.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (this.start) {
      const [right, down] = [event.offsetX - this.start.x, event.offsetY - this.start.y];
      if (Math.hypot(right, down) > 4) this.start.moved = true;
      const { x, y, scale } = this.start.view;
      if (this.start.moved) this.look({ x: x - right / scale, y: y - down / scale, scale });
    }
    this.point(this.at(event));
  }

  release(event) {
    if (this.start && !this.start.moved) this.onPick(this.at(event));
    this.start = null;
  }

  point(what) {
    this.pointed = what;
    this.soon();
  }

  pick(what) {
    this.picked = what;
    this.soon();
  }

  // One drawing of what is pointed at for each frame, however often the pointer moves in it.
  soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.drawOver();
      this.hovered(this.pointed ?? this.picked);
    });
  }

  draw() {
    if (!this.view || !this.colours) return;
    const { base, ratio, view, plot, left } = this;
    const [width, height] = [Math.ceil(plot.width * ratio), Math.ceil(plot.height * ratio)];
    const pixels = { x: view.x, y: view.y, scale: view.scale * ratio };
    const seen = raster(this.map, pixels, width, height);
    const right = Math.min(width, Math.round((this.map.width - view.x) * pixels.scale));
    const bottom = Math.min(height, Math.round((this.map.height - view.y) * pixels.scale));
    const image = paint(seen, { width, height, right, bottom, top: this.map.largest, root: this.root, colours: this.colours });
    base.setTransform(1, 0, 0, 1, 0, 0);
    base.clearRect(0, 0, base.canvas.width, base.canvas.height);
    base.putImageData(image, Math.round(left * ratio), Math.round(EDGE.top * ratio));
    base.setTransform(ratio, 0, 0, ratio, 0, 0);
    base.font = FONT;
    this.drawLabels(base);
    this.drawReceived(base, bottom / ratio);
    this.drawLinks(base);
    this.drawOver();
  }

  drawLabels(brush) {
    const { view, plot } = this;
    const step = stride(view.scale);
    const each = (side, from, cells, pixels) => {
      const end = Math.min(cells, from + pixels / view.scale - 0.5);
      for (let n = Math.ceil(from / step) * step; n < end; n += step) {
        this.labels.draw(brush, side, n, this.place(side, n), { colour: this.ink.ink, numbered: step > 1 });
      }
    };
    each("row", view.y, this.map.height, plot.height);
    each("column", view.x, this.map.width, plot.width);
  }

  // How far from the middle of a label those stand, before and after it, that it would cover in part: they are hidden.
  covered(side, index) {
    const step = stride(this.view.scale);
    const slant = side === "column" ? Math.sin(Math.PI / 3) : 1;
    const before = index % step;
    return [before, before && step - before].map((cells) => {
      const distance = cells * this.view.scale * slant;
      return distance < LINE ? distance : 0;
    });
  }

  // Where a label begins: the right end of a row's, the lower end of a column's.
  place(side, index) {
    const { view, left } = this;
    if (side === "row") return [left - 7, EDGE.top + (index + 0.5 - view.y) * view.scale];
    return [left + (index + 0.5 - view.x) * view.scale + 3, EDGE.top - 7];
  }

  // Bars below the map: what each column receives from all rows. A few columns can receive almost everything; bars
  // of the uppermost hundredth are cut, so that the rest can be seen.
  drawReceived(brush, bottom) {
    const { view, plot, left } = this;
    const sums = this.map.received();
    const top = this.map.crowded();
    const y = EDGE.top + bottom + 8;
    brush.fillStyle = this.ink.soft;
    const width = Math.max(1, view.scale - (view.scale >= GRID ? 1 : 0));
    for (let j = Math.floor(view.x); j < Math.min(this.map.width, view.x + plot.width / view.scale); j += 1) {
      const height = onScale(sums[j], top, this.root) * 30;
      const x = Math.max(0, (j - view.x) * view.scale);
      if (height > 0) brush.fillRect(left + x, y, Math.min(width, plot.width - x), Math.max(height, 0.5));
    }
    brush.textAlign = "right";
    brush.textBaseline = "top";
    brush.fillText("received", left - 7, y);
  }

  drawLinks(brush) {
    brush.strokeStyle = this.ink.link;
    brush.lineWidth = 1.4;
    for (const [column, row] of this.data.links) this.ring(brush, row, column, Math.max(3, this.view.scale * 0.27));
  }

  ring(brush, row, column, radius) {
    const { view, plot, left } = this;
    const x = (column + 0.5 - view.x) * view.scale;
    const y = (row + 0.5 - view.y) * view.scale;
    if (x < 0 || y < 0 || x > plot.width || y > plot.height) return;
    brush.beginPath();
    brush.arc(left + x, EDGE.top + y, radius, 0, 2 * Math.PI);
    brush.stroke();
  }

  drawOver() {
    if (!this.view) return;
    const { over, ratio } = this;
    over.setTransform(ratio, 0, 0, ratio, 0, 0);
    over.clearRect(0, 0, this.width, this.height);
    over.font = FONT;
    if (this.picked) this.mark(over, this.picked, this.ink.accent);
    const { pointed } = this;
    if (!pointed) return;
    this.mark(over, pointed, this.ink.band);
    if (pointed.row === null) return;
    over.strokeStyle = this.ink.accent;
    over.lineWidth = 1.5;
    for (const { index } of strongest(this.map.row(pointed.row), RINGED)) {
      this.ring(over, pointed.row, index, Math.max(4, this.view.scale * 0.5 + 2));
    }
  }

  // A frame around a row and a column, and their labels.
  mark(brush, { row, column }, colour) {
    const { view, plot, left } = this;
    const cells = (count, from, pixels) => Math.min(pixels, (count - from) * view.scale);
    const width = cells(this.map.width, view.x, plot.width);
    const height = cells(this.map.height, view.y, plot.height);
    const thick = Math.max(view.scale, 2) + 1;
    const [numbered, plate] = [view.scale < LINE, this.ink.paper];
    brush.strokeStyle = colour;
    brush.lineWidth = 1.3;
    const y = (row - view.y) * view.scale;
    if (row !== null && y > -view.scale && y < plot.height) {
      brush.strokeRect(left - 0.5, EDGE.top + y - 0.5, width + 1, thick);
      const hides = this.covered("row", row);
      this.labels.draw(brush, "row", row, this.place("row", row), { colour, numbered, plate, hides });
    }
    const x = (column - view.x) * view.scale;
    if (column !== null && x > -view.scale && x < plot.width) {
      brush.strokeRect(left + x - 0.5, EDGE.top - 0.5, thick, height + 1);
      const hides = this.covered("column", column);
      this.labels.draw(brush, "column", column, this.place("column", column), { colour, numbered, plate, hides });
    }
  }
}
