// The heads of attention as lines between tokens, after figures 3-5.
// The page of t2t-lite-attention has this file inlined: it imports nothing.

const SVG = "http://www.w3.org/2000/svg";
const ROW = 28, TOP = 34, MAX_WIDTH = 720;
const MIN_WEIGHT = 0.02; // of a line that is drawn
const LAYOUT = `
  <fieldset id="views"><legend>Attention</legend></fieldset>
  <fieldset id="layers"><legend>Layer</legend></fieldset>
  <fieldset id="heads"><legend>Heads</legend></fieldset>
  <p id="about"></p>
  <p class="hint">Point at a token on the left to see what it attends to, or on
  the right to see what attends to it. Click or tap to keep it. The color of a
  line is the head, its strength the weight.<span id="space"></span></p>
  <div id="figure"></div>
  <p class="hint" id="summary" role="status"></p>`;

// A new node of a drawing, with a text if there is one.
export function svgNode(name, attributes, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes))
    node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent?.append(node);
  return node;
}

// Shows tokens and weights [layer][head][row][column] in an element, in place of
// its content. A page has one such element.
export function showHeads(container, attention) {
  // A constant; tokens are added by textContent only.
  container.innerHTML = LAYOUT;
  return new Heads(container, viewsOf(attention));
}

// In the attention of the decoder, a row is the token that it predicts.
function viewsOf({ source_tokens, target_tokens, cross, encoder, decoder }) {
  return [
    { name: "Cross", weights: cross,
      about: "The source tokens that the decoder attends to when it predicts a token.",
      row_side: "next token", rows: target_tokens,
      column_side: "source", columns: source_tokens },
    { name: "Encoder", weights: encoder,
      about: "The source tokens that the encoder attends to at each source token.",
      row_side: "source", rows: source_tokens,
      column_side: "source", columns: source_tokens },
    { name: "Decoder", weights: decoder,
      about: "The target tokens that the decoder attends to when it predicts a token.",
      row_side: "next token", rows: target_tokens,
      column_side: "target so far",
      columns: ["\u27e8start\u27e9", ...target_tokens.slice(0, -1)] },
  ];
}

class Heads {
  #views; #find; #view = 0; #layer; #heads; #columnWidth; #gap;
  #token = null; // {side, index} of the selected token
  #isPinned = false; // it stays selected when the pointer leaves

  constructor(container, views) {
    this.#views = views;
    this.#find = id => container.querySelector(`#${id}`);
    this.#layer = views[0].weights.length - 1;
    this.#heads = new Set(views[0].weights[0].keys());
    if (views.some(view => view.columns.join("").includes("\u2581")))
      this.#find("space").textContent = " \u2581 is a space.";
    let drawnWidth;
    const figure = this.#find("figure");
    new ResizeObserver(() => {
      // The width is 0 while the figure is hidden.
      if (!figure.clientWidth || figure.clientWidth === drawnWidth) return;
      drawnWidth = figure.clientWidth;
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
    const width = Math.min(figure.clientWidth, MAX_WIDTH);
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
      i => i === this.#view, i => { this.#view = i; this.#deselect(); });
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

  #listen(group, token) {
    const preview = () => { if (!this.#isPinned) this.#select(token, false); };
    const pin = () => this.#isPinned && this.#isSelected(token)
      ? (this.#deselect(), this.#lines()) : this.#select(token, true);
    group.addEventListener("mouseenter", preview);
    group.addEventListener("focus", preview);
    group.addEventListener("mouseleave", () => {
      if (!this.#isPinned) { this.#deselect(); this.#lines(); }
    });
    group.addEventListener("click", pin);
    group.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      pin();
    });
  }

  #select(token, isPinned) {
    this.#token = token;
    this.#isPinned = isPinned;
    this.#lines();
  }

  #deselect() {
    this.#token = null;
    this.#isPinned = false;
  }

  #isSelected({ side, index }) {
    return this.#token?.side === side && this.#token.index === index;
  }

  #lines() {
    const layer = this.#views[this.#view].weights[this.#layer];
    const group = this.#find("lines");
    group.replaceChildren();
    for (const word of this.#find("figure").querySelectorAll("g.word")) {
      word.querySelector(".bars").replaceChildren();
      const { side, index } = word.dataset;
      const selected = this.#isSelected({ side, index: Number(index) });
      word.classList.toggle("selected", selected);
      word.setAttribute("aria-pressed", selected && this.#isPinned);
    }
    const heads = [...this.#heads].sort((a, b) => a - b);
    const near = this.#columnWidth + 6;
    const far = this.#columnWidth + this.#gap - 6;
    for (const [position, head] of heads.entries()) {
      // Next to one another, so that no line hides another.
      const shift =
        (position - (heads.length - 1) / 2) * (ROW - 10) / heads.length;
      const middle = index => TOP + ROW * (index + 0.5) + shift;
      layer[head].forEach((weights, row) => weights.forEach((weight, column) => {
        const isShown = !this.#token || this.#isSelected({ side: "row", index: row })
          || this.#isSelected({ side: "column", index: column });
        if (!isShown || weight < MIN_WEIGHT) return;
        svgNode("line", { x1: near, y1: middle(row), x2: far,
          y2: middle(column), stroke: this.#color(head),
          "stroke-width": this.#token ? 2.5 : 1.5, "stroke-linecap": "round",
          "stroke-opacity": weight, "data-head": head, "data-row": row,
          "data-column": column }, group);
      }));
    }
    this.#find("summary").textContent = "";
    if (this.#token && heads.length) this.#shade(layer, heads);
  }

  // Draws the weights of the selected token as bars on the other side.
  #shade(layer, heads) {
    const { side, index } = this.#token;
    const other = side === "row" ? "column" : "row";
    const weight = (head, i) =>
      side === "row" ? layer[head][index][i] : layer[head][i][index];
    const height = (ROW - 6) / heads.length, width = this.#columnWidth;
    const words = this.#find("figure").querySelectorAll(
      `g.word[data-side="${other}"]`);
    words.forEach((word, i) => heads.forEach((head, k) => {
      const length = (width - 12) * weight(head, i);
      svgNode("rect", { x: other === "row" ? width - length : width + this.#gap,
        y: TOP + ROW * i + 3 + k * height, width: length, height,
        fill: this.#color(head), "fill-opacity": 0.45 },
        word.querySelector(".bars"));
    }));
    this.#summarize(other, [...words.keys()].map(i => heads.reduce(
      (sum, head) => sum + weight(head, i), 0) / heads.length));
  }

  // Describes the lines of the selected token as text.
  #summarize(other, means) {
    const view = this.#views[this.#view];
    const tokens = { row: view.rows, column: view.columns };
    const { side, index } = this.#token;
    const order = [...means.keys()].sort((a, b) => means[b] - means[a]);
    const weights = order.slice(0, 3).map(i =>
      `${tokens[other][i]} ${Math.round(100 * means[i])} %`);
    const verb = side === "row" ? "attends to" : "is attended to by";
    this.#find("summary").textContent = `${tokens[side][index]} ${verb} `
      + `${weights.join(", ")} (mean of the heads shown).`;
  }
}
