"use strict";
// Brings the pictures of the page to life: each stands there drawn, as the first of its maps. This script shows the
// numbers under the pointer, lets a word be picked, and redraws the picture for another head.

const LEVELS = 49; // the numbers of _colours.py
const HUES = 12;
const THINNEST = 0.01; // of the largest row sum, as in _drawing.py

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const largest = (rows) => Math.max(0, ...rows.map((row) => Math.max(0, ...row)));
const decimal = (weight) => (weight >= 0.001 || weight === 0 ? weight.toFixed(3) : weight.toExponential(1));

function meanOf(heads) {
  const maps = heads.flat();
  return maps[0].map((row, i) => row.map((_, j) => sum(maps.map((rows) => rows[i][j])) / maps.length));
}

function element(parent, name, attributes) {
  const made = document.createElementNS(parent.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

function drawCells(group, rows, place) {
  const top = largest(rows);
  const size = place.pitch - (place.pitch > 18 ? 1.5 : 0.8);
  const squares = new Map();
  rows.forEach((row, i) => row.forEach((weight, j) => {
    const level = top > 0 ? Math.round((weight / top) * (LEVELS - 1)) : 0;
    const square = `M${place.mapX + j * place.pitch} ${place.mapY + i * place.pitch}h${size}v${size}h${-size}z`;
    squares.set(level, (squares.get(level) ?? "") + square);
  }));
  group.replaceChildren();
  for (const [level, d] of squares) element(group, "path", { class: `c${level}`, d });
}

function drawRibbons(group, rows, place) {
  const total = Math.max(0, ...rows.map(sum)) || 1;
  const unit = (place.pitch * 0.7) / total;
  const seen = rows.map((row) => row.map((weight) => (weight >= THINNEST * total ? weight : 0)));
  const received = place.sourceY.map((_, j) => sum(seen.map((row) => row[j])) * unit);
  const given = seen.map((row) => sum(row) * unit);
  const usedSource = received.map(() => 0);
  const ribbons = [];
  seen.forEach((row, i) => {
    let used = 0;
    row.forEach((weight, j) => {
      if (!weight) return;
      const thick = weight * unit;
      const squeeze = Math.min(1, (place.pitch * 0.86) / received[j]);
      const y1 = place.sourceY[j] + (usedSource[j] + thick / 2 - received[j] / 2) * squeeze;
      const y2 = place.targetY[i] + used + thick / 2 - given[i] / 2;
      usedSource[j] += thick;
      used += thick;
      ribbons.push({ i, j, thick, weight, y1, y2 });
    });
  });
  const [x1, x2] = place.ribbonX;
  const middle = (x1 + x2) / 2;
  group.replaceChildren();
  for (const { i, j, thick, weight, y1, y2 } of ribbons.sort((a, b) => a.thick - b.thick)) {
    const half = thick / 2;
    const d = `M${x1} ${y1 - half}C${middle} ${y1 - half} ${middle} ${y2 - half} ${x2} ${y2 - half}`
      + `H${place.ribbonEnd[i]}V${y2 + half}H${x2}`
      + `C${middle} ${y2 + half} ${middle} ${y1 + half} ${x1} ${y1 + half}Z`;
    const hue = Math.round((i / Math.max(rows.length - 1, 1)) * (HUES - 1));
    const opacity = (0.3 + (0.58 * weight) / total).toFixed(2);
    element(group, "path", { class: `ribbon h${hue}`, "data-row": i, "data-column": j, opacity, d });
  }
}

class Card {
  constructor(root, data, first) {
    this.first = first; // only this card explains itself
    this.svg = root.querySelector("svg");
    this.readout = root.querySelector(".readout");
    this.place = data.place;
    this.heads = data.heads;
    this.rows = meanOf(this.heads);
    this.picked = null;
    this.peers = []; // cards of the same source, which follow when a word of it is pointed at
    this.bands = ["row", "column"].map(() => element(this.svg, "rect", { class: "band", rx: 3, visibility: "hidden" }));
    this.words = [...this.svg.querySelectorAll(".word")];
    this.names = { source: [], target: [] };
    for (const word of this.words) {
      const { side, index } = word.dataset;
      this.names[side][index] = (word.querySelector("title") ?? word).textContent;
    }
    if (this.heads.flat().length > 1) this.addPicker(root.querySelector(".heads"));
    this.svg.addEventListener("pointermove", (event) => this.lead(this.under(event) ?? this.picked));
    this.svg.addEventListener("pointerleave", () => this.lead(this.picked));
    this.svg.addEventListener("click", (event) => this.pick(this.under(event)));
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    this.show(null);
  }

  // What the pointer is over: {side, index} for a word, {row, column} for a cell or a ribbon, or null.
  under(event) {
    const word = event.target.closest(".word");
    if (word) return { side: word.dataset.side, index: Number(word.dataset.index) };
    const { row, column } = event.target.dataset;
    if (row !== undefined) return { row: Number(row), column: Number(column) };
    const box = this.svg.getBoundingClientRect();
    const zoom = this.svg.viewBox.baseVal.width / box.width;
    const x = Math.floor(((event.clientX - box.left) * zoom - this.place.mapX) / this.place.pitch);
    const y = Math.floor(((event.clientY - box.top) * zoom - this.place.mapY) / this.place.pitch);
    const inside = y >= 0 && y < this.rows.length && x >= 0 && x < this.place.sourceY.length;
    return inside ? { row: y, column: x } : null;
  }

  pick(what) {
    this.picked = JSON.stringify(what) === JSON.stringify(this.picked) ? null : what;
    this.lead(this.picked);
  }

  lead(what) {
    this.show(what);
    for (const peer of this.peers) peer.show(what?.side === "source" ? what : peer.picked);
  }

  onKey(event) {
    const word = event.target.closest(".word");
    if (event.key === "Escape") this.pick(null);
    else if (word && (event.key === "Enter" || event.key === " ")) this.pick(this.under(event));
    else if (word && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const stops = this.words.filter((other) => other.tabIndex === 0 && other.dataset.side === word.dataset.side);
      stops[stops.indexOf(word) + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
    } else return;
    event.preventDefault();
  }

  show(what) {
    const row = what?.row ?? (what?.side === "target" ? what.index : null);
    const column = what?.column ?? (what?.side === "source" ? what.index : null);
    const chosen = (i, j) => (row === null || i === row) && (column === null || j === column);
    this.svg.classList.toggle("focused", what !== null);
    for (const ribbon of this.svg.querySelectorAll(".ribbon")) {
      const { row: i, column: j } = ribbon.dataset;
      ribbon.classList.toggle("on", what !== null && chosen(Number(i), Number(j)));
    }
    for (const word of this.words) {
      const wanted = word.dataset.side === "source" ? column : row;
      word.classList.toggle("on", wanted !== null && Number(word.dataset.index) === wanted);
      if (word.tabIndex === 0) {
        const { side, index } = this.picked ?? {};
        word.setAttribute("aria-pressed", side === word.dataset.side && index === Number(word.dataset.index));
      }
    }
    const { mapX, mapY, pitch } = this.place;
    const across = { x: mapX - 1.5, y: mapY + row * pitch - 1.5, width: this.place.sourceY.length * pitch + 1.5 };
    const down = { x: mapX + column * pitch - 1.5, y: mapY - 1.5, height: this.rows.length * pitch + 1.5 };
    this.band(0, row !== null, { ...across, height: pitch + 1.5 });
    this.band(1, column !== null, { ...down, width: pitch + 1.5 });
    this.say(row, column);
  }

  band(index, shown, box) {
    const attributes = { ...box, visibility: shown ? "visible" : "hidden" };
    for (const [key, value] of Object.entries(attributes)) this.bands[index].setAttribute(key, value);
  }

  say(row, column) {
    const { source, target } = this.names;
    const parts = [];
    const name = (text) => Object.assign(document.createElement("bdi"), { textContent: text });
    const best = (weights, names) => weights.map((weight, k) => ({ weight, k })).sort((a, b) => b.weight - a.weight)
      .slice(0, 5).filter(({ weight }) => weight > 0)
      .flatMap(({ weight, k }, n) => [n ? " · " : "", name(names[k]), ` ${decimal(weight)}`]);
    if (row !== null && column !== null) {
      parts.push(name(target[row]), " looks at ", name(source[column]), ` with ${decimal(this.rows[row][column])}`);
    } else if (row !== null) {
      parts.push(name(target[row]), " looks at ", ...best(this.rows[row], source));
    } else if (column !== null) {
      parts.push(name(source[column]), " is seen by ", ...best(this.rows.map((weights) => weights[column]), target));
    } else if (this.first) {
      parts.push("Point at a cell, a ribbon or a word; click a word to keep it, Escape to let it go.");
    }
    this.readout.replaceChildren(...parts);
  }

  addPicker(box) {
    const text = document.createElement("p");
    const grid = Object.assign(document.createElement("div"), { className: "grid" });
    grid.style.gridTemplateColumns = `auto repeat(${this.heads[0].length}, 40px)`;
    const buttons = [];
    const make = (parent, name, rows) => {
      const button = Object.assign(document.createElement("button"), { className: "head", type: "button", title: name });
      button.addEventListener("click", () => this.choose(rows, name, button, buttons, text));
      buttons.push(button);
      parent.append(button);
      return button;
    };
    this.heads.forEach((layer, l) => {
      grid.append(Object.assign(document.createElement("span"), { textContent: `${l + 1}` }));
      layer.forEach((rows, h) => {
        const name = `layer ${l + 1}, head ${h + 1}`;
        const button = make(grid, name, rows);
        button.setAttribute("aria-label", name);
        button.append(document.createElement("canvas"));
        button.rows = rows;
      });
    });
    box.append(text, grid);
    const mean = make(box, "mean of all heads", this.rows);
    mean.classList.add("mean");
    mean.textContent = "mean of all heads";
    const paint = () => buttons.filter((button) => button.rows).forEach((button) => this.paintThumb(button));
    paint();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
    mean.click();
  }

  paintThumb(button) {
    const canvas = button.firstChild;
    const { rows } = button;
    [canvas.width, canvas.height] = [rows[0].length, rows.length];
    const brush = canvas.getContext("2d");
    const fills = [...this.svg.querySelectorAll(".swatch")].map((swatch) => getComputedStyle(swatch).fill);
    const top = largest(rows);
    rows.forEach((row, i) => row.forEach((weight, j) => {
      const level = top > 0 ? Math.round((weight / top) * (LEVELS - 1)) : 0;
      brush.fillStyle = fills[level];
      brush.fillRect(j, i, 1, 1);
    }));
  }

  choose(rows, name, button, buttons, text) {
    this.rows = rows;
    text.replaceChildren("Layers down, heads across. Shown: ", Object.assign(document.createElement("b"), { textContent: name }));
    for (const other of buttons) other.setAttribute("aria-pressed", other === button);
    drawRibbons(this.svg.querySelector(".ribbons"), rows, this.place);
    drawCells(this.svg.querySelector(".cells"), rows, this.place);
    this.svg.querySelector(".largest").textContent = Number(largest(rows).toPrecision(3));
    this.show(this.picked);
  }
}
