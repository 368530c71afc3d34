// The page: its tables, sentences and charts, from the data in it. Texts come
// in by textContent only, never as HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const names = data.runs.map(run => run.name);
const place = id => document.getElementById(id);
const view = { time: false, log: false, hidden: new Set() };

// A table that scrolls by itself where it is wider than the page.
function table(label, header, rows) {
  const line = (cells, look) => element("tr", look ? { class: look } : {},
    ...cells.map((cell, i) => element(i ? "td" : "th",
      i ? {} : { scope: "row" }, cell)));
  return element("div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    element("table", {},
      element("thead", {}, element("tr", {}, ...header.map(cell =>
        element("th", { scope: "col" }, cell)))),
      element("tbody", {}, ...rows.map(({ cells, look }) =>
        line(cells, look)))));
}

// Buttons of which one is pressed.
function choice(label, options, chosen, choose) {
  const buttons = options.map(([value, text]) => element("button", {
    type: "button", "aria-pressed": String(value === chosen),
    click: () => {
      buttons.forEach((each, i) => each.setAttribute("aria-pressed",
        String(options[i][0] === value)));
      choose(value);
    } }, text));
  return element("div", { class: "choice", role: "group", "aria-label": label },
    element("span", { class: "soft", "aria-hidden": "true" }, label),
    ...buttons);
}

function swatch(run) {
  return element("span", { class: `swatch ${colorOf(run)}` });
}

function showRuns() {
  const facts = [...new Set(data.runs.flatMap(
    run => Object.keys(run.summary)))];
  const toggle = run => element("label", { class: "run" },
    element("input", { type: "checkbox", checked: true, change: event => {
      view.hidden[event.target.checked ? "delete" : "add"](run);
      showCharts();
    } }), swatch(run), element("span", {}, names[run]));
  const only = data.runs.length === 1;
  const header = ["", ...names.map((name, run) => only ? name : toggle(run))];
  const rows = facts.map(fact => ({ cells: [fact,
    ...data.runs.map(run => run.summary[fact] ?? "")] }));
  rows.push({ cells: ["folder", ...data.runs.map(run => run.folder)] });
  place("runs").replaceChildren(table("Runs", header, rows));
}

const charts = data.charts.map(chart => new Chart(chart, names));

function showCharts() {
  for (const chart of charts) chart.show(view);
}

function showCurves() {
  place("charts").replaceChildren(...charts.map(chart => chart.node));
  if (!charts.length) {
    place("charts").append(element("p", {},
      "There is nothing to draw yet: no line of metrics.jsonl."));
    return;
  }
  place("controls").replaceChildren(
    choice("over", [[false, "steps"], [true, "time"]], false, time => {
      view.time = time;
      showCharts();
    }),
    choice("scale", [[false, "linear"], [true, "log"]], false, log => {
      view.log = log;
      showCharts();
    }));
  place("thinned").textContent = "Time is that of the updates, without "
    + "evaluating and saving. Of a curve of more than "
    + `${data.most_points.toLocaleString("en")} points the page holds the `
    + "lowest and the highest of each of "
    + `${(data.most_points / 2).toLocaleString("en")} stretches.`;
  showCharts();
}

function showSentence(number) {
  place("sentences").replaceChildren(...data.runs.map((run, i) => {
    const told = run.sentences[number];
    const head = element("h3", {}, swatch(i), run.name);
    if (!run.sentences.length)
      return element("article", {}, head, element("p", { class: "soft" },
        "No sentences: it has not been evaluated on dev yet, is older than "
        + "samples.jsonl, or another evaluator scores it."));
    if (!told) return element("article", {}, head,
      element("p", { class: "soft" }, "It has fewer sentences."));
    const row = (name, text, look = "") =>
      ({ cells: [name, text], look });
    return element("article", {}, head, table(
      `Sentence ${number + 1} of ${run.name}`, ["step", "text"], [
        row("source", told.source, "given"),
        ...told.translations.map(([step, weights, text]) => row(
          step.toLocaleString("en") + (weights ? `, ${kindOf(weights)}` : ""),
          text)),
        row("reference", told.reference, "given")]));
  }));
}

function showSentences() {
  const most = Math.max(0, ...data.runs.map(run => run.sentences.length));
  if (most > 1)
    place("choose-sentence").replaceChildren(choice("sentence",
      Array.from({ length: most }, (_, i) => [i, String(i + 1)]), 0,
      showSentence));
  showSentence(0);
}

function showFacts(onlyDifferent) {
  const rows = data.facts.filter(row => row.differs || !onlyDifferent);
  place("facts").replaceChildren(table("Hyperparameters",
    ["", ...names.map((name, i) => element("span", { class: "run" },
      swatch(i), name))],
    rows.map(({ name, values, differs }) => ({
      cells: [differs ? `${name} \u2260` : name, ...values],
      look: differs ? "differs" : "" }))));
}

place("title").textContent = data.title;
document.title = `${data.title}: t2t-lite`;
place("made").textContent = data.made;
showRuns();
showCurves();
showSentences();
if (data.facts.some(row => row.differs))
  place("choose-facts").replaceChildren(choice("show",
    [[false, "all"], [true, "what differs \u2260"]], false, showFacts));
showFacts(false);
