// The page: a text on one side, and beside it what each chosen model answers.

import { viewsOf } from "./attention.js";
import { Documents } from "./documents.js";
import { showHeads } from "./heads.js";
import { languageName, setLanguage } from "./languages.js";
import { element } from "./nodes.js";
import { Panel } from "./panel.js";
import { availableVersions, listModels } from "./server.js";

const DEBOUNCE = 250; // milliseconds without a key before a request
const MOST_AT_FIRST = 3; // models shown side by side

const find = id => document.getElementById(id);
const source = find("source");
let panels = []; // one a model, as the server lists them
let underWay = new AbortController();
let timer;

function chosen() {
  return panels.filter(panel => !panel.element.hidden);
}

function texts() {
  return source.value.split(/\r?\n/).map(line => line.trim()).filter(Boolean);
}

// Asks the chosen models; what was asked before is left.
function translate() {
  underWay.abort();
  underWay = new AbortController();
  const { signal } = underWay;
  for (const panel of chosen()) panel.translate(texts(), signal);
}

function typed() {
  find("clear").hidden = !source.value;
  underWay.abort();
  clearTimeout(timer);
  timer = setTimeout(translate, DEBOUNCE);
}

async function openHeads(both, attention) {
  const place = find("heads-place");
  find("heads-texts").textContent = both.join("  \u2192  ");
  place.textContent = "Asking the model.";
  find("heads-dialog").showModal();
  try {
    showHeads(place, viewsOf(await attention));
  } catch (error) {
    place.textContent = error.message;
  }
}

// The text is in the language that all chosen models read.
function nameSource() {
  const languages = new Set(
    chosen().map(({ model }) => model.about?.source_language));
  const [language] = languages.size === 1 ? languages : [null];
  find("source-name").textContent = language ? languageName(language) : "Text";
  setLanguage(source, language);
}

function showModels(models) {
  const first = models[0].about?.source_language;
  panels = models.map(model => new Panel(model, openHeads, changed));
  let shown = 0;
  for (const panel of panels) {
    const alike = panel.model.about?.source_language === first;
    panel.element.hidden = !alike || shown === MOST_AT_FIRST;
    if (!panel.element.hidden) shown++;
  }
  find("panels").replaceChildren(...panels.map(panel => panel.element));
  find("models").append(...panels.map(panel => {
    const box = element("input", { type: "checkbox", change: () => {
      panel.element.hidden = !box.checked;
      arrange();
      translate();
    } });
    box.checked = !panel.element.hidden;
    return element("label", { class: "choice" }, box, panel.model.name);
  }));
  find("models").hidden = models.length < 2;
  arrange();
}

// Another version of a model is chosen.
function changed() {
  nameSource();
  translate();
}

function arrange() {
  find("board").dataset.panels = chosen().length;
  nameSource();
}

async function start() {
  find("trouble").hidden = true;
  try {
    const models = (await listModels()).filter(
      model => availableVersions(model).length);
    if (!models.length) throw new Error("No model of the server is ready.");
    showModels(models);
    new Documents(panels);
    if (source.value) typed(); // typed before the models were there
  } catch (error) {
    find("trouble").querySelector("p").textContent = error.message;
    find("trouble").hidden = false;
  }
}

source.addEventListener("input", typed);
find("clear").addEventListener("click", () => {
  source.value = "";
  typed();
  source.focus();
});
find("heads-close").addEventListener("click", () =>
  find("heads-dialog").close());
find("trouble").querySelector("button").addEventListener("click", start);
start();
