
// A card for a large map: all heads, one of them as a picture to move in, and the words that are picked.

const HELP = "Point at the map; click or use the arrow keys to pick. Drag or scroll to move and zoom, + − 0 zoom and fit, "
  + "[ ] change the head, / finds a token, Escape lets go.";

class Explorer {
  constructor(root, data) {
    this.root = root;
    this.data = { ...data, target: data.target ?? data.source };
    this.same = data.target === null; // one text that looks at itself
    this.picked = null;
    const { target, source } = this.data;
    this.heads = new Heads(data.packed, target.length, source.length);
    const several = data.packed.layers * data.packed.heads > 1;
    const side = make("div", { className: "side", hidden: !several });
    const main = make("div", { className: "main" });
    this.readout = make("p", { className: "readout" });
    this.readout.setAttribute("aria-live", "polite");
    root.append(make("div", { className: several ? "explore" : "explore single" }, side, main, this.readout));
    this.addTools(main);
    this.map = new MapView(main, this.data, { hovered: (what) => this.say(what), picked: (what) => this.pick(what) });
    this.tokens = new TokenPanel(root, this.data, (what) => this.goTo(what));
    root.append(this.about());
    this.overview = new Overview(side, this.heads, (choice, name) => this.choose(choice, name));
    root.addEventListener("keydown", (event) => this.onKey(event));
    this.dress();
    this.start();
  }

  async start() {
    if (!window.DecompressionStream) {
      this.readout.textContent = "This browser is too old to unpack the map: it needs DecompressionStream (2023).";
      return;
    }
    this.overview.choose(1); // the first head
    await this.overview.fill();
  }

  about() {
    const { packed, source } = this.data;
    const parts = [];
    const number = (count) => count.toLocaleString("en");
    if (packed.kept < source.length) {
      parts.push(`Largest ${number(packed.kept)} of ${number(source.length)} weights per row; means and sums are of these.`);
    }
    if (packed.steps < 256) parts.push("Weights are rounded by up to 0.6 % of the largest of their head.");
    return make("p", { className: "about", textContent: parts.join(" ") });
  }

  addTools(parent) {
    const button = (text, name, act) => {
      const made = make("button", { type: "button", textContent: text, title: name });
      made.setAttribute("aria-label", name);
      made.addEventListener("click", act);
      return made;
    };
    this.shown = make("b", {});
    this.search = make("input", { type: "search", placeholder: "Find a token or #120", spellcheck: false });
    this.search.setAttribute("aria-label", "find a token, or #120 for the one at place 120");
    this.search.addEventListener("input", () => this.find(0));
    this.search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.find(event.shiftKey ? -1 : 1);
    });
    this.found = make("span", { className: "found" });
    this.found.setAttribute("aria-live", "polite");
    this.scale = make("canvas", { className: "legend", width: 2 * LEVELS, height: 1 });
    this.largest = make("span", {});
    const faint = make("input", { type: "checkbox", checked: true });
    faint.addEventListener("change", () => {
      this.map.root = faint.checked;
      this.map.draw();
      this.drawLegend();
    });
    parent.append(make("div", { className: "tools" }, this.shown,
      make("span", { className: "search" }, this.search, this.found),
      make("span", { className: "zoom" }, button("−", "zoom out", () => this.map.zoom(1 / 1.5)),
        button("+", "zoom in", () => this.map.zoom(1.5)), button("fit", "fit the whole map", () => this.map.fit())),
      make("span", { className: "legends" }, "0 ", this.scale, " ", this.largest),
      make("label", { title: "colours follow the square root of the weight" }, faint, " show faint weights")));
  }

  // Colours of the screen, and those of paper while the page is printed.
  dress() {
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const print = matchMedia("print");
    const set = () => {
      const dark = scheme.matches && !print.matches;
      this.tokens.hues = this.data.hues[Number(dark)];
      this.dark = dark;
      this.map.theme(dark);
      this.overview.theme(this.data.colours[Number(dark)]);
      this.drawLegend();
      if (this.shownMap) this.tokens.show(this.shownMap, this.picked);
    };
    scheme.addEventListener("change", set);
    print.addEventListener("change", set);
    set();
  }

  drawLegend() {
    const brush = this.scale.getContext("2d");
    const colours = this.data.colours[Number(this.dark)];
    for (let n = 0; n < 2 * LEVELS; n += 1) {
      brush.fillStyle = colours[Math.round(onScale(n, 2 * LEVELS - 1, this.map.root) * (LEVELS - 1))];
      brush.fillRect(n, 0, 1, 1);
    }
  }

  async choose(choice, name) {
    this.asked = choice;
    if (choice.head === undefined) this.shown.textContent = `${name} …`;
    const map = await this.heads.read(choice);
    if (this.asked !== choice) return; // another was asked for meanwhile
    this.shownMap = map;
    this.shown.textContent = this.overview.buttons.length > 3 ? name : "";
    this.largest.textContent = Number(map.largest.toPrecision(3));
    this.map.front.setAttribute("aria-label", `${name}: ${map.height} rows look at ${map.width} columns. ${HELP}`);
    this.map.show(map);
    this.tokens.show(map, this.picked);
    this.say(this.picked);
  }

  pick(what) {
    const same = JSON.stringify(what) === JSON.stringify(this.picked);
    this.picked = same ? null : what;
    this.map.pick(this.picked);
    this.tokens.show(this.shownMap, this.picked);
  }

  goTo(what) {
    this.map.point(null);
    if (JSON.stringify(what) !== JSON.stringify(this.picked)) this.pick(what);
    this.map.reveal(what.row, what.column, true);
  }

  onKey(event) {
    if (event.target === this.search) {
      if (event.key === "Escape") this.map.front.focus();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      "/": () => this.search.focus(),
      "+": () => this.map.zoom(1.5),
      "=": () => this.map.zoom(1.5),
      "-": () => this.map.zoom(1 / 1.5),
      0: () => this.map.fit(),
      "[": () => this.overview.choose(this.overview.index - 1),
      "]": () => this.overview.choose(this.overview.index + 1),
      Escape: () => this.picked && this.pick(this.picked),
    };
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (step && event.target === this.map.front) this.step(step, event.shiftKey ? 10 : 1);
    else if (actions[event.key]) actions[event.key]();
    else return;
    event.preventDefault();
  }

  // Moves what is picked by some cells; without it, starts in the middle of what is seen.
  step([down, right], count) {
    const { view, plot } = this.map;
    const { target, source } = this.data;
    const middle = (from, pixels, cells) => Math.floor(Math.min(from + pixels / view.scale / 2, cells / 2));
    const from = {
      row: this.picked?.row ?? middle(view.y, plot.height, target.length),
      column: this.picked?.column ?? middle(view.x, plot.width, source.length),
    };
    const within = (index, cells) => Math.max(0, Math.min(index, cells - 1));
    const next = this.picked === null ? from : {
      row: within(from.row + down * count, target.length),
      column: within(from.column + right * count, source.length),
    };
    this.map.point(null);
    if (JSON.stringify(next) === JSON.stringify(this.picked)) return;
    this.pick(next);
    this.map.reveal(next.row, next.column);
  }

  // Goes to the next token that holds what is searched for; 0 is the first.
  find(step) {
    const wanted = this.search.value.trim().toLowerCase();
    if (wanted !== this.wanted || step === 0) {
      this.wanted = wanted;
      this.matches = wanted ? this.matching(wanted) : [];
      this.match = 0;
    } else if (this.matches.length) {
      this.match = (this.match + step + this.matches.length) % this.matches.length;
    }
    this.found.textContent = wanted ? `${this.matches.length ? this.match + 1 : 0} of ${this.matches.length}` : "";
    if (this.matches.length) this.goTo(this.matches[this.match]);
  }

  matching(wanted) {
    const place = /^#(\d+)$/.exec(wanted);
    const holds = place ? (_, index) => index === Number(place[1]) : (word) => word.toLowerCase().includes(wanted);
    const indices = (words) => words.flatMap((word, index) => (holds(word, index) ? [index] : []));
    const rows = indices(this.data.target);
    if (this.same) return rows.map((index) => ({ row: index, column: index }));
    return [...rows.map((row) => ({ row, column: null })),
      ...indices(this.data.source).map((column) => ({ row: null, column }))];
  }

  // A weight in words: where it was not kept, what it is below.
  weightAt(row, column) {
    const weight = this.shownMap.at(row, column);
    const kept = this.shownMap.row(row);
    if (weight > 0 || kept.length < this.data.packed.kept) return decimal(weight);
    const least = Math.min(...kept.map((entry) => entry.weight));
    return this.asked.head === undefined ? "none of the kept weights" : `less than ${decimal(least)}`;
  }

  say(what) {
    const map = this.shownMap;
    if (!map) return;
    const { source, target } = this.data;
    const name = (words, index) => [make("bdi", { textContent: words[index] }), make("small", { textContent: ` ${index}` })];
    const best = (entries, words) => strongest(entries, 5)
      .flatMap(({ index, weight }, n) => [n ? " · " : "", ...name(words, index), ` ${decimal(weight)}`]);
    const lines = [];
    const { row = null, column = null } = what ?? {};
    if (row !== null && column !== null) {
      lines.push([...name(target, row), " looks at ", ...name(source, column), ` with ${this.weightAt(row, column)}`]);
    }
    if (row !== null) lines.push([...(column === null ? [...name(target, row), " looks at "] : ["Row: "]), ...best(map.row(row), source)]);
    if (column !== null) {
      lines.push([...(row === null ? [...name(source, column), " "] : ["Column "]), `receives ${decimal(map.received()[column])} from all rows: `,
        ...best(map.column(column), target)]);
    }
    if (!lines.length) lines.push([HELP]);
    this.readout.replaceChildren(...lines.flatMap((line, n) => (n ? [make("br"), ...line] : line)));
  }
}
