
// Large maps: rows of kept weights, unpacked head by head when they are drawn.

const KEEP_UNPACKED = 24; // heads in memory; unpacking one takes a few milliseconds

// Kept weights: those of row i are entries starts[i] to starts[i + 1] of columns and weights.
class SparseMap {
  constructor(width, starts, columns, weights) {
    Object.assign(this, { width, starts, columns, weights, height: starts.length - 1 });
    this.largest = weights.reduce((top, weight) => Math.max(top, weight), 0);
  }

  at(row, column) {
    for (let e = this.starts[row]; e < this.starts[row + 1]; e += 1) {
      if (this.columns[e] === column) return this.weights[e];
    }
    return 0;
  }

  // The entries of a row, as {index, weight} with the column as index.
  row(i) {
    const entries = [];
    for (let e = this.starts[i]; e < this.starts[i + 1]; e += 1) {
      entries.push({ index: this.columns[e], weight: this.weights[e] });
    }
    return entries;
  }

  column(j) {
    return this.turned().row(j);
  }

  // The same map with rows and columns exchanged; made when it is first asked for.
  turned() {
    if (this.other) return this.other;
    const starts = new Uint32Array(this.width + 1);
    for (const column of this.columns) starts[column + 1] += 1;
    for (let j = 0; j < this.width; j += 1) starts[j + 1] += starts[j];
    const next = starts.slice();
    const columns = new Uint32Array(this.columns.length);
    const weights = new Float32Array(this.columns.length);
    for (let i = 0; i < this.height; i += 1) {
      for (let e = this.starts[i]; e < this.starts[i + 1]; e += 1) {
        const place = next[this.columns[e]];
        next[this.columns[e]] += 1;
        columns[place] = i;
        weights[place] = this.weights[e];
      }
    }
    this.other = new SparseMap(this.height, starts, columns, weights);
    return this.other;
  }

  // What each column receives from all rows together.
  received() {
    if (!this.sums) {
      this.sums = new Float32Array(this.width);
      for (let e = 0; e < this.columns.length; e += 1) this.sums[this.columns[e]] += this.weights[e];
    }
    return this.sums;
  }

  // The sum that 1 % of the columns exceed, or the largest where there are fewer than a hundred.
  crowded() {
    this.most ??= this.received().slice().sort()[Math.ceil(this.width * 0.99) - 1];
    return this.most;
  }
}

const strongest = (entries, count) => entries.sort((a, b) => b.weight - a.weight).slice(0, count);

async function inflate(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let n = 0; n < letters.length; n += 1) bytes[n] = letters.charCodeAt(n);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The whole numbers at one place of several byte planes, the lowest bytes first; see Packed in _packed.py.
function planes(bytes, start, size, count) {
  return (place) => {
    let number = 0;
    for (let n = count - 1; n >= 0; n -= 1) number = number * 256 + bytes[start + n * size + place];
    return number;
  };
}

function unpack(bytes, packed, largest, height, width) {
  const size = packed.kept * height;
  const valueBytes = packed.steps > 255 ? 2 : 1;
  const numberAt = planes(bytes, 0, size, valueBytes);
  const gapAt = planes(bytes, valueBytes * size, size, packed.index_bytes);
  const starts = new Uint32Array(height + 1);
  const columns = new Uint32Array(size);
  const weights = new Float32Array(size);
  let used = 0;
  for (let i = 0; i < height; i += 1) {
    let column = 0;
    for (let place = i; place < size; place += height) {
      column += gapAt(place);
      const number = numberAt(place);
      if (number === 0) continue;
      columns[used] = column;
      weights[used] = (number / packed.steps) ** 3 * largest;
      used += 1;
    }
    starts[i + 1] = used;
  }
  return new SparseMap(width, starts, columns.slice(0, used), weights.slice(0, used));
}

// The mean of maps of one size. Rows are summed one by one, so that only one of them is ever without gaps.
function meanOfMaps(maps) {
  const { width, height } = maps[0];
  const whole = new Float32Array(width);
  const total = maps.reduce((count, map) => count + map.columns.length, 0);
  const starts = new Uint32Array(height + 1);
  const columns = new Uint32Array(total);
  const weights = new Float32Array(total);
  let used = 0;
  for (let i = 0; i < height; i += 1) {
    const first = used;
    for (const map of maps) {
      for (let e = map.starts[i]; e < map.starts[i + 1]; e += 1) {
        const column = map.columns[e];
        if (whole[column] === 0) {
          columns[used] = column;
          used += 1;
        }
        whole[column] += map.weights[e];
      }
    }
    for (let e = first; e < used; e += 1) {
      weights[e] = whole[columns[e]] / maps.length;
      whole[columns[e]] = 0;
    }
    starts[i + 1] = used;
  }
  return new SparseMap(width, starts, columns.slice(0, used), weights.slice(0, used));
}

// All heads of a card. A choice is {layer, head}; without a head it is the mean of a layer, without both of all.
class Heads {
  constructor(packed, height, width) {
    Object.assign(this, { packed, height, width, unpacked: new Map() });
  }

  async head(layer, head) {
    const index = layer * this.packed.heads + head;
    const known = this.unpacked.get(index);
    if (known) return known;
    const bytes = await inflate(this.packed.data[index]);
    const map = unpack(bytes, this.packed, this.packed.largest[index], this.height, this.width);
    this.unpacked.set(index, map);
    if (this.unpacked.size > KEEP_UNPACKED) this.unpacked.delete(this.unpacked.keys().next().value);
    return map;
  }

  async read({ layer, head }) {
    if (head !== undefined) return this.head(layer, head);
    const layers = layer === undefined ? [...Array(this.packed.layers).keys()] : [layer];
    const maps = [];
    for (const l of layers) {
      for (let h = 0; h < this.packed.heads; h += 1) maps.push(await this.head(l, h));
    }
    return meanOfMaps(maps);
  }
}
