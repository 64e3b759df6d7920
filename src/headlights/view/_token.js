
// What a picked row looks at and what looks at a picked column: ribbons to lists that can be read and clicked.

const LISTED = 10;
const ITEM = 26; // pixels of a line of a list

class TokenPanel {
  constructor(parent, data, goTo) {
    Object.assign(this, { data, goTo });
    this.root = make("div", { className: "tokens", hidden: true });
    parent.append(this.root);
  }

  show(map, picked) {
    this.root.hidden = picked === null;
    if (picked === null) return;
    const { row, column } = picked;
    const { source, target } = this.data;
    const parts = [];
    if (row !== null) {
      const go = (index) => this.goTo({ row, column: index });
      parts.push(this.side(`${row}`, target[row], "looks at", map.row(row), source, go));
    }
    if (column !== null) {
      const go = (index) => this.goTo({ row: index, column });
      parts.push(this.side(`${column}`, source[column], "is seen by", map.column(column), target, go));
    }
    this.root.replaceChildren(...parts);
  }

  side(place, word, verb, entries, words, go) {
    const total = sum(entries.map(({ weight }) => weight));
    const listed = strongest(entries, LISTED).sort((a, b) => a.index - b.index);
    const name = make("p", { className: "token" }, make("bdi", { textContent: word }), make("small", { textContent: `${place} · ${verb}` }));
    const list = make("ol", {});
    for (const { index, weight } of listed) {
      const button = make("button", { type: "button" }, make("small", { textContent: index }),
        make("bdi", { textContent: words[index] }), make("b", { textContent: decimal(weight) }));
      button.addEventListener("click", () => go(index));
      list.append(make("li", {}, button));
    }
    if (listed.length === 0) list.append(make("li", { textContent: "nothing" }));
    return make("section", {}, name, this.ribbons(listed, total), list);
  }

  // From one word, in parts as thick as the weights, to the lines of the list.
  ribbons(listed, total) {
    const canvas = make("canvas", { className: "fan" });
    const ratio = window.devicePixelRatio;
    const [width, height] = [110, Math.max(listed.length, 1) * ITEM];
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const brush = canvas.getContext("2d");
    brush.scale(ratio, ratio);
    const thickest = ITEM - 4;
    const unit = Math.min(thickest / Math.max(...listed.map(({ weight }) => weight), 0), (height - 4) / total || 1);
    let y = height / 2 - (unit * sum(listed.map(({ weight }) => weight))) / 2;
    listed.forEach(({ weight }, n) => {
      const thick = Math.max(unit * weight, 0.6);
      const end = (n + 0.5) * ITEM - thick / 2;
      brush.fillStyle = this.hues[Math.round((n / Math.max(listed.length - 1, 1)) * (HUES - 1))];
      brush.globalAlpha = 0.75;
      brush.beginPath();
      brush.moveTo(0, y);
      brush.bezierCurveTo(width / 2, y, width / 2, end, width, end);
      brush.lineTo(width, end + thick);
      brush.bezierCurveTo(width / 2, end + thick, width / 2, y + thick, 0, y + thick);
      brush.fill();
      y += unit * weight;
    });
    return canvas;
  }
}
