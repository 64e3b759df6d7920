
// An element of the page with its properties and what is in it.
const make = (name, properties, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

// Words beside the rows and above the columns of a map: only those in view, and only as many as do not touch.

const LINE = 15; // pixels of a label
const FONT = '12px Inter, "Segoe UI", system-ui, Roboto, "Helvetica Neue", Arial, sans-serif';
const KNOWN = 20000; // shortened words that are remembered

// 1, 2, 5, 10, 20, … : how many cells stand between labels.
function stride(scale) {
  const least = LINE / scale;
  if (least <= 1) return 1;
  const ten = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= least);
}

class Labels {
  constructor({ source, target }) {
    this.words = { row: target, column: source };
    this.room = { row: 0, column: 0 }; // pixels that a label may take
    this.clipped = new Map();
  }

  // A word, after its number if asked for, on a plate that hides what it covers: so far before and after its middle.
  draw(brush, side, index, [x, y], { colour, numbered, plate = null, hides = [0, 0] }) {
    const word = this.words[side][index];
    const text = this.clip(brush, numbered ? `${index} ${word}` : word, this.room[side]);
    const width = brush.measureText(text).width;
    const from = side === "row" ? -width : 0;
    brush.save();
    brush.translate(x, y);
    if (side === "column") brush.rotate(-Math.PI / 3);
    if (plate) {
      brush.fillStyle = plate;
      const whole = Math.max(width, this.room[side]) + 16;
      const [before, after] = hides.map((distance) => distance + LINE / 2 + 1);
      brush.fillRect(side === "row" ? 4 - whole : -9, -before, whole, before + after);
    }
    brush.fillStyle = colour;
    brush.textBaseline = "middle";
    brush.textAlign = "left"; // of the label; a word keeps its own direction inside it
    brush.direction = "ltr";
    brush.fillText(text, from, 0.5);
    brush.restore();
  }

  clip(brush, text, width) {
    const key = `${width} ${text}`;
    if (!this.clipped.has(key)) {
      let shown = text;
      const letters = [...text];
      while (letters.length > 1 && brush.measureText(shown).width > width) {
        letters.length -= Math.max(1, Math.floor(letters.length / 16));
        shown = `${letters.join("")}…`;
      }
      if (this.clipped.size > KNOWN) this.clipped.clear();
      this.clipped.set(key, shown);
    }
    return this.clipped.get(key);
  }
}
