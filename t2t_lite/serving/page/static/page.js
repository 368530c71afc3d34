// The page: a text, its translations, and a file.

import { Answer } from "./answer.js";
import { takeFiles } from "./file.js";
import { showHeads } from "./heads.js";
import { element, setLanguage } from "./nodes.js";
import { describeModel, hasSignature, MAX_TEXTS, translate } from "./server.js";

const DEBOUNCE = 250; // milliseconds without a key before a request
const MAX_RESULTS = 200; // results to keep of texts that are not shown

const find = id => document.getElementById(id);
const results = new Map(); // by text
let shown = new Map(); // answers by text and its number of repetitions
let model;
let request = new AbortController();
let timer;

function typed() {
  find("clear").hidden = !find("source").value;
  request.abort();
  clearTimeout(timer);
  if (model) timer = setTimeout(update, DEBOUNCE);
}

// Translates each line; lines that were translated before need no request.
async function update() {
  request = new AbortController();
  const { signal } = request;
  const texts = find("source").value.split(/\r?\n/).map(line => line.trim())
    .filter(Boolean);
  const missing = [...new Set(texts)].filter(text => !results.has(text));
  const nbest = hasSignature(model, "nbest") ? "nbest" : "serving_default";
  find("answers").setAttribute("aria-busy", "true");
  find("problem").textContent = "";
  try {
    for (let start = 0; start < missing.length; start += MAX_TEXTS) {
      const some = missing.slice(start, start + MAX_TEXTS);
      const found = await translate(model, nbest, some, signal);
      some.forEach((text, i) => results.set(text, found[i]));
    }
    signal.throwIfAborted();
    show(texts);
  } catch (error) {
    if (signal.aborted) return; // a later request has replaced this one
    show([]);
    find("problem").textContent = error.message;
  }
  find("answers").removeAttribute("aria-busy");
}

function show(texts) {
  const before = shown;
  shown = new Map();
  for (const text of texts) {
    let key = text;
    while (shown.has(key)) key += "\n"; // the same line again
    shown.set(key, before.get(key) ?? new Answer(model, text, results.get(text), {
      say: text => { find("status").textContent = text; },
      openHeads,
    }));
  }
  for (const [key, answer] of before) if (!shown.has(key)) answer.remove();
  const answers = [...shown.values()];
  find("answers").replaceChildren(...answers.map(each => each.element));
  find("status").textContent = answers.map(each => each.text).join(" ");
  for (const answer of answers) answer.isAlone = answers.length === 1;
  if (answers.length === 1) answers[0].showWords();
  for (const text of results.keys())
    if (results.size > MAX_RESULTS && !texts.includes(text))
      results.delete(text);
}

async function openHeads(texts, attention) {
  find("heads-texts").textContent = texts.join("  \u2192  ");
  find("heads-place").textContent = "Waiting for the server.";
  find("heads-dialog").showModal();
  try {
    showHeads(find("heads-place"), await attention);
  } catch (error) {
    find("heads-place").textContent = error.message;
  }
}

// "German" for "de"; other values stay as they are.
function languageName(code) {
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(code);
  } catch {
    return code;
  }
}

function showModel() {
  const about = model.about ?? {};
  const { source_language: source, target_language: target } = about;
  find("source-name").textContent = source ? languageName(source) : "Text";
  setLanguage(find("source"), source);
  find("target-name").textContent = about.form === "trees" ? "Tree"
    : target ? languageName(target) : "Translation";
  find("model-name").textContent = model.name;
  const rows = [
    ["Problem", about.problem],
    ["Version", model.version],
    ["Parameters", about.parameters?.toLocaleString("en")],
    ["Precision", about.precision],
    ["Longest text", about.max_length && `${about.max_length} tokens`],
    ["Trained", about.step && `${about.step.toLocaleString("en")} steps`],
    ...(about.scores ?? []).map(score => ["Score", describeScore(score)]),
  ].filter(([, value]) => value);
  find("about").replaceChildren(...rows.flatMap(([name, value]) =>
    [element("dt", {}, name), element("dd", {}, String(value))]));
  find("no-attention").hidden = hasSignature(model, "attention");
}

// "bleu 27.3 (split test, beam_size 4)"
function describeScore(score) {
  const conditions = ["split", "beam_size", "alpha", "signature"]
    .filter(name => name in score).map(name => `${name} ${score[name]}`);
  return `${score.metric} ${score.score?.toFixed(1)} (${conditions.join(", ")})`;
}

async function start() {
  find("trouble").hidden = true;
  try {
    model = await describeModel();
    showModel();
    takeFiles(model);
    if (find("source").value) typed(); // entered before
  } catch (error) {
    find("trouble").querySelector("p").textContent = error.message;
    find("trouble").hidden = false;
  }
}

find("source").addEventListener("input", typed);
find("clear").addEventListener("click", () => {
  find("source").value = "";
  typed();
  find("source").focus();
});
find("heads-close").addEventListener("click", () =>
  find("heads-dialog").close());
find("trouble").querySelector("button").addEventListener("click", start);
start();
