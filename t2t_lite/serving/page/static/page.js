// The page: a text, its translations, and a file.

import { Answer } from "./answer.js";
import { acceptFiles } from "./file.js";
import { showHeads } from "./heads.js";
import { element, setLanguage } from "./nodes.js";
import { describeModel, hasSignature, MAX_TEXTS, translate } from "./server.js";

const DEBOUNCE = 250; // milliseconds without a key before a request
const MAX_RESULTS = 200; // number of results to keep

const find = id => document.getElementById(id);
const results = new Map(); // by text
let answers = new Map(); // displayed, by text and its number of repetitions
let model;
let lastHeads; // the attention that the dialog waits for or shows
let request = new AbortController();
let timer;

function onInput() {
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
  const signature = hasSignature(model, "nbest") ? "nbest" : "serving_default";
  find("answers").setAttribute("aria-busy", "true");
  find("error").textContent = "";
  try {
    for (let start = 0; start < missing.length; start += MAX_TEXTS) {
      const chunk = missing.slice(start, start + MAX_TEXTS);
      const translated = await translate(model, signature, chunk, signal);
      chunk.forEach((text, i) => results.set(text, translated[i]));
    }
    signal.throwIfAborted();
    show(texts);
  } catch (error) {
    if (signal.aborted) return; // a later request has replaced this one
    show([]);
    find("error").textContent = error.message;
  }
  find("answers").removeAttribute("aria-busy");
}

function show(texts) {
  const previous = answers;
  answers = new Map();
  for (const text of texts) {
    let key = text;
    while (answers.has(key)) key += "\n"; // the same line again
    answers.set(key, previous.get(key) ?? new Answer(model, text, results.get(text), {
      announce: text => { find("status").textContent = text; },
      openHeads,
    }));
  }
  for (const [key, answer] of previous) if (!answers.has(key)) answer.remove();
  const list = [...answers.values()];
  find("answers").replaceChildren(...list.map(each => each.element));
  find("status").textContent = list.map(each => each.text).join(" ");
  for (const answer of list) answer.isOnly = list.length === 1;
  if (list.length === 1) list[0].showWords();
  for (const text of results.keys())
    if (results.size > MAX_RESULTS && !texts.includes(text))
      results.delete(text);
}

async function openHeads(texts, attention) {
  lastHeads = attention;
  find("heads-texts").textContent = texts.join("  \u2192  ");
  find("heads-view").textContent = "Waiting for the server.";
  find("heads-dialog").showModal();
  try {
    const weights = await attention;
    if (attention === lastHeads) showHeads(find("heads-view"), weights);
  } catch (error) {
    if (attention === lastHeads) find("heads-view").textContent = error.message;
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
    ["Maximum length", about.max_length && `${about.max_length} tokens`],
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
  find("connection-error").hidden = true;
  try {
    model = await describeModel();
    showModel();
    acceptFiles(model);
    if (find("source").value) onInput(); // entered before
  } catch (error) {
    find("connection-error").querySelector("p").textContent = error.message;
    find("connection-error").hidden = false;
  }
}

find("source").addEventListener("input", onInput);
find("clear").addEventListener("click", () => {
  find("source").value = "";
  onInput();
  find("source").focus();
});
find("heads-close").addEventListener("click", () =>
  find("heads-dialog").close());
find("connection-error").querySelector("button").addEventListener("click", start);
start();
