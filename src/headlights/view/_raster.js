
// Weights as pixels. Where a pixel covers several weights it shows the largest, so thin lines do not vanish.

const GRID = 8; // pixels of a cell from which a gap is left between cells

// A view of a map: the first column and row at the left and upper edge, and pixels for each cell.
function raster(map, view, width, height) {
  const seen = new Float32Array(width * height);
  const gap = view.scale >= GRID ? 1 : 0;
  const firstRow = Math.max(0, Math.floor(view.y));
  const endRow = Math.min(map.height, Math.ceil(view.y + height / view.scale));
  for (let i = firstRow; i < endRow; i += 1) {
    const top = Math.max(0, Math.floor((i - view.y) * view.scale));
    const bottom = Math.min(height, Math.max(top + 1, Math.floor((i + 1 - view.y) * view.scale) - gap));
    for (let e = map.starts[i]; e < map.starts[i + 1]; e += 1) {
      const x = (map.columns[e] - view.x) * view.scale;
      const left = Math.max(0, Math.floor(x));
      const right = Math.min(width, Math.max(left + 1, Math.floor(x + view.scale) - gap));
      if (right <= left || x + view.scale <= 0) continue;
      const weight = map.weights[e];
      for (let row = top * width; row < bottom * width; row += width) {
        for (let place = row + left; place < row + right; place += 1) {
          if (seen[place] < weight) seen[place] = weight;
        }
      }
    }
  }
  return seen;
}

// The place of a weight on the colour scale, 0 to 1: even steps, or the square root, which shows faint weights.
const onScale = (weight, top, root) => {
  const part = top > 0 ? Math.min(weight / top, 1) : 0;
  return root ? Math.sqrt(part) : part;
};

// Colours "#rrggbb" as the numbers that a pixel of ImageData is.
const pixelColours = (colours) => Uint32Array.from(colours, (colour) => {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return (255 << 24 | blue << 16 | green << 8 | red) >>> 0; // the order of a little-endian machine
});

// Pixels of the part of the picture that the map covers; the rest stays clear.
function paint(seen, { width, height, right, bottom, top, root, colours }) {
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let y = 0; y < bottom; y += 1) {
    for (let place = y * width; place < y * width + right; place += 1) {
      pixels[place] = colours[Math.round(onScale(seen[place], top, root) * (LEVELS - 1))];
    }
  }
  return image;
}
