
// All heads as small pictures, layers down and heads across, that pick one; and buttons for the means.

const THUMB = 40; // pixels of a small picture, before the screen's own factor
const idle = () => new Promise((done) => {
  if (window.requestIdleCallback) window.requestIdleCallback(done, { timeout: 300 });
  else setTimeout(done, 0);
});

class Overview {
  constructor(parent, heads, chosen) {
    Object.assign(this, { heads, chosen, thumbs: [], buttons: [] });
    const { layers, heads: across } = heads.packed;
    this.grid = make("div", { className: "grid" });
    this.grid.setAttribute("role", "group");
    this.grid.setAttribute("aria-label", "layers down, heads across; arrow keys move");
    this.grid.style.gridTemplateColumns = `auto repeat(${across}, max-content)`;
    for (let layer = 0; layer < layers; layer += 1) {
      this.grid.append(this.button({ layer }, `layer ${layer + 1}, mean of its heads`, `${layer + 1}`));
      for (let head = 0; head < across; head += 1) {
        const canvas = make("canvas", { width: THUMB, height: THUMB });
        const choice = { layer, head };
        this.grid.append(this.button(choice, `layer ${layer + 1}, head ${head + 1}`, canvas));
        this.thumbs.push({ choice, canvas });
      }
    }
    const mean = this.button({}, "mean of all heads", "mean of all heads");
    mean.classList.add("mean");
    parent.append(this.grid, mean);
    this.grid.addEventListener("keydown", (event) => this.onKey(event));
  }

  button(choice, name, content) {
    const button = make("button", { type: "button", title: name, className: choice.head === undefined ? "layer" : "head", tabIndex: -1 }, content);
    button.setAttribute("aria-label", name);
    button.addEventListener("click", () => this.choose(this.buttons.findIndex((other) => other.button === button)));
    this.buttons.push({ button, choice, name });
    return button;
  }

  choose(index) {
    const kept = Math.max(0, Math.min(index, this.buttons.length - 1));
    this.index = kept;
    this.buttons.forEach(({ button }, n) => {
      button.setAttribute("aria-pressed", n === kept);
      button.tabIndex = n === kept ? 0 : -1;
    });
    this.chosen(this.buttons[kept].choice, this.buttons[kept].name);
  }

  onKey(event) {
    const across = this.heads.packed.heads + 1;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = this.buttons.findIndex(({ button }) => button === document.activeElement) + step;
    if (next < 0 || next >= this.buttons.length) return;
    this.choose(next);
    this.buttons[next].button.focus();
  }

  // Draws the small pictures one by one while nothing else happens.
  async fill(colours) {
    for (const thumb of this.thumbs) {
      await idle();
      const map = await this.heads.head(thumb.choice.layer, thumb.choice.head);
      const scale = THUMB / Math.max(map.width, map.height);
      [thumb.canvas.width, thumb.canvas.height] = [map.width, map.height].map((cells) => Math.max(1, Math.round(cells * scale)));
      const size = { width: thumb.canvas.width, height: thumb.canvas.height };
      thumb.seen = { ...size, right: size.width, bottom: size.height, top: map.largest, root: false };
      thumb.weights = raster(map, { x: 0, y: 0, scale }, size.width, size.height);
      this.paint(thumb, this.colours ?? colours);
    }
  }

  theme(colours) {
    this.colours = pixelColours(colours);
    for (const thumb of this.thumbs) this.paint(thumb, this.colours);
  }

  paint({ canvas, weights, seen }, colours) {
    if (weights) canvas.getContext("2d").putImageData(paint(weights, { ...seen, colours }), 0, 0);
  }
}
