// The heads of attention as lines between tokens, after figures 3-5.
// The page of t2t-lite-attention has this file inlined: it imports nothing.

const SVG = "http://www.w3.org/2000/svg";
const ROW = 28, TOP = 34, WIDEST = 720;
const LEAST_WEIGHT = 0.02; // of a line that is drawn
const LAYOUT = `
  <fieldset id="views"><legend>Attention</legend></fieldset>
  <fieldset id="layers"><legend>Layer</legend></fieldset>
  <fieldset id="heads"><legend>Heads</legend></fieldset>
  <p id="about"></p>
  <p class="hint">Point at a token on the left to see what it attends to, or on
  the right to see what attends to it. Click or tap to keep it. The color of a
  line is the head, its strength the weight.<span id="space"></span></p>
  <div id="figure"></div>
  <p class="hint" id="most" role="status"></p>`;

// A new node of a drawing, with a text if there is one.
export function svgNode(name, attributes, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes))
    node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent?.append(node);
  return node;
}

// Shows tokens and weights [layer][head][row][column] in an element. There is
// one such place on a page; what it showed before is gone.
export function showHeads(place, attention) {
  // A fixed text: tokens come in by textContent only.
  place.innerHTML = LAYOUT;
  return new Heads(place, viewsOf(attention));
}

// Where the decoder attends, a row is the token that it chooses there.
function viewsOf({ read, written, cross, encoder, decoder }) {
  return [
    { name: "Cross", weights: cross,
      about: "What the decoder looks at in the source to choose a token.",
      row_side: "next token", rows: written,
      column_side: "source", columns: read },
    { name: "Encoder", weights: encoder,
      about: "What the encoder looks at when it reads a token of the source.",
      row_side: "source", rows: read, column_side: "source", columns: read },
    { name: "Decoder", weights: decoder,
      about: "What the decoder looks at in the target to choose a token.",
      row_side: "next token", rows: written,
      column_side: "target so far", columns: ["\u27e8start\u27e9", ...written.slice(0, -1)] },
  ];
}

class Heads {
  #views; #find; #view = 0; #layer; #heads; #columnWidth; #gap;
  #word = null; // {side, index} of the chosen token
  #kept = false; // whether it stays when the pointer leaves

  constructor(place, views) {
    this.#views = views;
    this.#find = id => place.querySelector(`#${id}`);
    this.#layer = views[0].weights.length - 1;
    this.#heads = new Set(views[0].weights[0].keys());
    if (views.some(view => view.columns.join("").includes("\u2581")))
      this.#find("space").textContent = " \u2581 is a space.";
    let drawn;
    const figure = this.#find("figure");
    new ResizeObserver(() => {
      // Without a width, it is not shown.
      if (!figure.clientWidth || figure.clientWidth === drawn) return;
      drawn = figure.clientWidth;
      this.#draw();
    }).observe(figure);
  }

  get #count() { return this.#views[0].weights[0].length; }

  #color(head) {
    return `hsl(${Math.round(360 * head / this.#count)} 70% 48%)`;
  }

  #draw() {
    const view = this.#views[this.#view];
    this.#controls(view);
    this.#find("about").textContent = view.about;
    const figure = this.#find("figure");
    const width = Math.min(figure.clientWidth, WIDEST);
    this.#columnWidth = Math.floor(width * 0.35);
    this.#gap = width - 2 * this.#columnWidth;
    const size = Math.max(view.rows.length, view.columns.length);
    const svg = svgNode("svg", { width, height: TOP + ROW * size + 8,
      role: "group", "aria-label": view.name });
    figure.replaceChildren(svg);
    const left = this.#columnWidth - 6;
    const right = this.#columnWidth + this.#gap + 6;
    svgNode("text", { class: "side", x: left, y: 16, "text-anchor": "end" },
      svg, view.row_side);
    svgNode("text", { class: "side", x: right, y: 16 }, svg, view.column_side);
    svgNode("g", { id: "lines" }, svg);
    this.#tokens(svg, view.rows, "row", left, "end");
    this.#tokens(svg, view.columns, "column", right, "start");
    this.#lines();
  }

  #controls(view) {
    this.#buttons("views", this.#views.map(each => each.name),
      i => i === this.#view, i => { this.#view = i; this.#release(); });
    this.#buttons("layers", view.weights.map((_, i) => String(i + 1)),
      i => i === this.#layer, i => { this.#layer = i; });
    const count = this.#count, all = [...Array(count).keys()];
    const heads = this.#buttons("heads",
      [...all.map(i => String(i + 1)), "all", "none"],
      i => i < count && this.#heads.has(i), i => {
        if (i >= count) this.#heads = new Set(i === count ? all : []);
        else if (!this.#heads.delete(i)) this.#heads.add(i);
      });
    heads.slice(0, count).forEach((button, i) => {
      button.className = "head";
      button.style.setProperty("--color", this.#color(i));
    });
  }

  #buttons(id, labels, pressed, click) {
    const set = this.#find(id);
    const focused = [...set.querySelectorAll("button")].indexOf(
      document.activeElement);
    set.querySelectorAll("button").forEach(old => old.remove());
    const buttons = labels.map((label, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.setAttribute("aria-pressed", pressed(i));
      button.addEventListener("click", () => { click(i); this.#draw(); });
      return button;
    });
    set.append(...buttons);
    buttons[focused]?.focus();
    return buttons;
  }

  #tokens(svg, tokens, side, x, anchor) {
    const width = this.#columnWidth;
    tokens.forEach((token, index) => {
      const y = TOP + ROW * index;
      const group = svgNode("g", { class: "word", tabindex: 0, role: "button",
        "data-side": side, "data-index": index }, svg);
      svgNode("rect", { class: "hit", y, width, height: ROW, rx: 4,
        x: side === "row" ? 0 : width + this.#gap }, group);
      svgNode("g", { class: "bars" }, group);
      const label = svgNode("text", { x, y: y + ROW * 0.68,
        "text-anchor": anchor }, group, token);
      if (label.getComputedTextLength() > width - 24) {
        label.setAttribute("textLength", width - 24);
        label.setAttribute("lengthAdjust", "spacingAndGlyphs");
      }
      this.#listen(group, { side, index });
    });
  }

  #listen(group, word) {
    const look = () => { if (!this.#kept) this.#choose(word, false); };
    const keep = () => this.#kept && this.#is(word)
      ? (this.#release(), this.#lines()) : this.#choose(word, true);
    group.addEventListener("mouseenter", look);
    group.addEventListener("focus", look);
    group.addEventListener("mouseleave", () => {
      if (!this.#kept) { this.#release(); this.#lines(); }
    });
    group.addEventListener("click", keep);
    group.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      keep();
    });
  }

  #choose(word, kept) {
    this.#word = word;
    this.#kept = kept;
    this.#lines();
  }

  #release() {
    this.#word = null;
    this.#kept = false;
  }

  #is({ side, index }) {
    return this.#word?.side === side && this.#word.index === index;
  }

  #lines() {
    const layer = this.#views[this.#view].weights[this.#layer];
    const group = this.#find("lines");
    group.replaceChildren();
    for (const word of this.#find("figure").querySelectorAll("g.word")) {
      word.querySelector(".bars").replaceChildren();
      const { side, index } = word.dataset;
      const chosen = this.#is({ side, index: Number(index) });
      word.classList.toggle("chosen", chosen);
      word.setAttribute("aria-pressed", chosen && this.#kept);
    }
    const heads = [...this.#heads].sort((a, b) => a - b);
    const near = this.#columnWidth + 6;
    const far = this.#columnWidth + this.#gap - 6;
    for (const [place, head] of heads.entries()) {
      // Side by side, so that heads that agree do not hide one another.
      const shift =
        (place - (heads.length - 1) / 2) * (ROW - 10) / heads.length;
      const middle = index => TOP + ROW * (index + 0.5) + shift;
      layer[head].forEach((weights, row) => weights.forEach((weight, column) => {
        const meant = !this.#word || this.#is({ side: "row", index: row })
          || this.#is({ side: "column", index: column });
        if (!meant || weight < LEAST_WEIGHT) return;
        svgNode("line", { x1: near, y1: middle(row), x2: far,
          y2: middle(column), stroke: this.#color(head),
          "stroke-width": this.#word ? 2.5 : 1.5, "stroke-linecap": "round",
          "stroke-opacity": weight, "data-head": head, "data-row": row,
          "data-column": column }, group);
      }));
    }
    this.#find("most").textContent = "";
    if (this.#word && heads.length) this.#shade(layer, heads);
  }

  // On the other side, each head's share of the chosen word as a bar.
  #shade(layer, heads) {
    const { side, index } = this.#word;
    const other = side === "row" ? "column" : "row";
    const weight = (head, place) =>
      side === "row" ? layer[head][index][place] : layer[head][place][index];
    const height = (ROW - 6) / heads.length, width = this.#columnWidth;
    const words = this.#find("figure").querySelectorAll(
      `g.word[data-side="${other}"]`);
    words.forEach((word, place) => heads.forEach((head, i) => {
      const length = (width - 12) * weight(head, place);
      svgNode("rect", { x: other === "row" ? width - length : width + this.#gap,
        y: TOP + ROW * place + 3 + i * height, width: length, height,
        fill: this.#color(head), "fill-opacity": 0.45 },
        word.querySelector(".bars"));
    }));
    this.#tell(other, [...words.keys()].map(place => heads.reduce(
      (sum, head) => sum + weight(head, place), 0) / heads.length));
  }

  // In words, what the lines of the chosen token show.
  #tell(other, means) {
    const view = this.#views[this.#view];
    const tokens = { row: view.rows, column: view.columns };
    const { side, index } = this.#word;
    const most = [...means.keys()].sort((a, b) => means[b] - means[a]);
    const told = most.slice(0, 3).map(place =>
      `${tokens[other][place]} ${Math.round(100 * means[place])} %`);
    const how = side === "row" ? "attends to" : "is attended to by";
    this.#find("most").textContent = `${tokens[side][index]} ${how} `
      + `${told.join(", ")} (mean of the heads shown).`;
  }
}
