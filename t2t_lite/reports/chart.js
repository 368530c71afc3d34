// One chart: curves of several runs over steps or time, with a cursor that the
// mouse, a finger or the keyboard moves. It knows nothing of the page.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 56, RIGHT = 10, TOP = 10, BOTTOM = 26, HEIGHT = 220;
const COLORS = 8; // that the page's style has; then the lines are dashed
const FEW = 40; // points that are drawn one by one, too

// element("p", { class: "soft" }, "some text", otherNode): strings become text.
function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function drawn(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes))
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function colorOf(run) {
  return `color-${run % COLORS}${run >= COLORS ? " dashed" : ""}`;
}

function shortNumber(value) {
  const size = Math.abs(value);
  if (size >= 10000 || (size > 0 && size < 0.001))
    return size >= 1e4 && size < 1e15
      ? Intl.NumberFormat("en", { notation: "compact",
        maximumSignificantDigits: 4 }).format(value)
      : value.toExponential(2).replace(/\.?0*e/, "e");
  return String(Number(value.toPrecision(4)));
}

// "ema", or "average" of an average's name.
function kindOf(weights) {
  return weights.split("-")[0];
}

function clock(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Number((seconds / 3600).toPrecision(3))} h`;
}

// About `count` round numbers from low to high: 1, 2 or 5 times a power of 10.
function roundNumbers(low, high, count, base = 10) {
  const rough = (high - low || Math.abs(high) || 1) / count;
  const power = base === 10 ? 10 ** Math.floor(Math.log10(rough))
    : [1, 60, 3600, 86400].findLast(unit => unit <= rough) ?? 1;
  const step = [1, 2, 5, 10, 20, 30, 60].map(n => n * power)
    .find(n => n >= rough) ?? 100 * power;
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high * (1 + 1e-9); n++)
    found.push(n * step);
  return found;
}

function powersOfTen(low, high) {
  const found = [];
  const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
  const parts = to - from > 2 ? [1] : [1, 2, 5];
  for (let power = from; power <= to; power++)
    for (const part of parts) {
      const value = part * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  return found.length > 1 ? found : roundNumbers(low, high, 4);
}

export class Chart {
  // chart: { name, unit, curves: [{ run, weights, points }] }; a point is
  // [step, seconds, value]. names: of the runs.
  constructor(chart, names) {
    this.chart = chart;
    this.names = names;
    this.svg = drawn("svg", { "aria-hidden": "true" });
    this.readout = element("p", { class: "readout" });
    this.plot = element("div", {
      class: "plot", role: "slider", tabindex: "0", "aria-label": chart.name,
      pointermove: event => this.point(event),
      pointerdown: event => this.point(event),
      pointerleave: () => this.moveTo(null),
      blur: () => this.moveTo(null),
      keydown: event => this.press(event),
    }, this.svg);
    this.node = element("figure", {},
      element("figcaption", {}, element("strong", {}, chart.name), " ",
        element("span", { class: "soft" }, chart.unit)),
      this.plot, this.readout);
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  // view: { time, log, hidden: Set of run numbers }
  show(view) {
    this.view = view;
    const x = view.time ? 1 : 0;
    this.curves = this.chart.curves.filter(({ run }) => !view.hidden.has(run))
      .map(curve => ({ ...curve, places: curve.points
        .filter(p => p[x] !== null && !(view.log && p[2] <= 0))
        .map(p => ({ x: p[x], step: p[0], value: p[2] })) }))
      .filter(curve => curve.places.length);
    const places = this.curves.flatMap(curve => curve.places);
    this.stops = [...new Set(places.map(p => p.x))].sort((a, b) => a - b);
    this.at = null;
    this.draw();
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width || !this.view) return;
    this.width = width;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren();
    if (!this.stops.length) {
      this.readout.textContent = "Nothing to show on this scale.";
      this.describe();
      return;
    }
    this.measure();
    this.drawAxes();
    for (const curve of this.curves) this.drawCurve(curve);
    this.cursor = drawn("g");
    this.svg.append(this.cursor);
    this.moveTo(this.at);
  }

  measure() {
    const values = this.curves.flatMap(c => c.places.map(p => p.value));
    let low = values.reduce((a, b) => Math.min(a, b));
    let high = values.reduce((a, b) => Math.max(a, b));
    if (low === high) {
      const room = Math.abs(low) * 0.1 || 1;
      low = this.view.log ? low / 1.5 : low - room;
      high = this.view.log ? high * 1.5 : high + room;
    }
    const first = Math.min(0, this.stops[0]), last = this.stops.at(-1);
    const span = last - first || 1;
    const shape = this.view.log ? Math.log : value => value;
    const [bottom, top] = [shape(low), shape(high)];
    this.low = low;
    this.high = high;
    this.first = first;
    this.last = last;
    this.toX = x => LEFT + (x - first) / span * (this.width - LEFT - RIGHT);
    this.toY = value => HEIGHT - BOTTOM
      - (shape(value) - bottom) / (top - bottom) * (HEIGHT - TOP - BOTTOM);
  }

  drawAxes() {
    const ticks = this.view.log ? powersOfTen(this.low, this.high)
      : roundNumbers(this.low, this.high, 4);
    for (const value of ticks) {
      const y = this.toY(value);
      this.svg.append(
        drawn("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT,
          y1: y, y2: y }),
        drawn("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" },
          shortNumber(value)));
    }
    const marks = roundNumbers(this.first, this.last,
      Math.max(2, Math.floor(this.width / 110)), this.view.time ? 60 : 10);
    for (const value of marks) {
      const x = this.toX(value);
      const anchor = x > this.width - 40 ? "end" : "middle";
      this.svg.append(
        drawn("line", { class: "grid", x1: x, x2: x, y1: HEIGHT - BOTTOM,
          y2: HEIGHT - BOTTOM + 4 }),
        drawn("text", { x, y: HEIGHT - 6, "text-anchor": anchor },
          this.view.time ? clock(value) : shortNumber(value)));
    }
  }

  drawCurve({ run, weights, places }) {
    const at = places.map(p => [this.toX(p.x), this.toY(p.value)]);
    const look = `${colorOf(run)}${weights ? " averaged" : ""}`;
    const line = at.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`);
    this.svg.append(drawn("polyline",
      { class: `curve ${look}`, points: line.join(" ") }));
    if (at.length <= FEW)
      for (const [cx, cy] of at)
        this.svg.append(drawn("circle",
          { class: `mark ${look}`, cx, cy, r: weights ? 4 : 2.5 }));
  }

  point(event) {
    if (!this.stops.length) return;
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    let nearest = 0;
    this.stops.forEach((stop, i) => {
      if (Math.abs(this.toX(stop) - x)
        < Math.abs(this.toX(this.stops[nearest]) - x)) nearest = i;
    });
    this.moveTo(nearest);
  }

  press(event) {
    const last = this.stops.length - 1;
    const far = Math.max(1, Math.round(last / 10));
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1,
      PageDown: -far, PageUp: far, Home: -Infinity, End: Infinity,
    }[event.key];
    if (event.key === "Escape") this.moveTo(null);
    if (by === undefined || last < 0) return;
    event.preventDefault();
    const from = this.at ?? (by > 0 ? -1 : last + 1);
    this.moveTo(Math.min(last, Math.max(0, from + by)));
  }

  // Shows what every curve was at a stop; null shows the last of each.
  moveTo(at) {
    if (!this.cursor) return;
    this.at = at;
    this.cursor.replaceChildren();
    this.readout.replaceChildren();
    this.tell(at === null ? Infinity : this.stops[at]);
    this.describe();
  }

  tell(stop) {
    const x = stop === Infinity ? null : this.toX(stop);
    if (x !== null) this.cursor.append(drawn("line",
      { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
    this.readout.append(element("span", { class: "stop" }, x === null ? "last"
      : this.view.time ? clock(stop) : `step ${stop.toLocaleString("en")}`));
    for (const { run, weights, places } of this.curves) {
      const place = places.findLast(p => p.x <= stop);
      // The one point of an average is no value of later steps.
      const gone = weights && x !== null && places.at(-1).x < stop;
      if (!place || gone) continue;
      if (x !== null) this.cursor.append(drawn("circle",
        { class: `mark ${colorOf(run)}`, cx: this.toX(place.x),
          cy: this.toY(place.value), r: 4 }));
      const name = this.names[run] + (weights ? `, ${kindOf(weights)}` : "");
      this.readout.append(element("span", { class: "told" },
        element("span", { class: `swatch ${colorOf(run)}` }),
        `${this.names.length > 1 || weights ? `${name}: ` : ""}`
        + shortNumber(place.value)));
    }
  }

  // The same for who cannot see it.
  describe() {
    const values = { min: 0, max: Math.max(0, this.stops.length - 1),
      now: this.at ?? Math.max(0, this.stops.length - 1),
      text: [...this.readout.children].map(n => n.textContent).join(", ")
        || this.readout.textContent };
    for (const [name, value] of Object.entries(values))
      this.plot.setAttribute(`aria-value${name}`, value);
  }
}
