// One model beside the text: its answers, and what it is.

import { Answer } from "./answer.js";
import { languageName } from "./languages.js";
import { element } from "./nodes.js";
import {
  atVersion, availableVersions, hasSignature, MOST_TEXTS, translate,
} from "./server.js";

const KEPT = 200; // answers to texts of before
let made = 0;

export class Panel {
  #results = new Map(); // by text
  #answers = new Map(); // shown now, by text and how often it came before
  #about;
  #openHeads;

  // `changed` is called when another version is chosen.
  constructor(model, openHeads, changed) {
    this.model = model;
    this.#openHeads = openHeads;
    const id = `panel-${++made}`;
    const language = model.about?.target_language;
    const trees = model.about?.form === "trees";
    const title = trees ? "Tree"
      : language ? languageName(language) : "Translation";
    this.answers = element("div", { class: "answers" });
    this.problem = element("p", { class: "warning", role: "alert" });
    this.status = element("p", { class: "unseen", role: "status" });
    this.#about = aboutModel(model);
    this.element = element("section", { class: "card panel",
      "aria-labelledby": id },
      element("div", { class: "card-head" },
        element("h2", { id }, title),
        element("span", { class: "soft model-name" }, model.name,
          ...versionChoice(model, number => {
            this.#take(atVersion(model, number));
            changed();
          }))),
      this.answers, this.problem, this.status, this.#about);
  }

  // Another version: what the one before it said is of no use.
  #take(model) {
    this.model = model;
    this.#show([]);
    this.#results.clear();
    const about = aboutModel(model);
    this.#about.replaceWith(about);
    this.#about = about;
  }

  // Answers each text, in order; those of before that stay need no request.
  async translate(texts, signal) {
    this.answers.setAttribute("aria-busy", "true");
    try {
      const missing = [...new Set(texts)].filter(
        text => !this.#results.has(text));
      for (let start = 0; start < missing.length; start += MOST_TEXTS) {
        const some = missing.slice(start, start + MOST_TEXTS);
        const found = await translate(this.model, some, signal);
        signal.throwIfAborted();
        some.forEach((text, i) => this.#results.set(text, found[i]));
      }
      this.problem.textContent = "";
      this.#show(texts);
    } catch (error) {
      if (signal.aborted) return; // another request has taken over
      this.#show([]);
      this.problem.textContent = error.message;
    }
    this.answers.removeAttribute("aria-busy");
  }

  #show(texts) {
    const before = this.#answers;
    this.#answers = new Map();
    const counts = new Map();
    for (const text of texts) {
      const count = counts.get(text) ?? 0;
      counts.set(text, count + 1);
      const key = JSON.stringify([count, text]);
      this.#answers.set(key, before.get(key) ?? new Answer(
        this.model, text, this.#results.get(text), {
          say: told => { this.status.textContent = told; },
          openHeads: this.#openHeads,
        }));
    }
    for (const [key, answer] of before)
      if (!this.#answers.has(key)) answer.leave();
    const answers = [...this.#answers.values()];
    this.answers.replaceChildren(...answers.map(each => each.element));
    this.status.textContent = answers.map(each => each.text).join(" ");
    for (const answer of answers) answer.isAlone = answers.length === 1;
    if (answers.length === 1) answers[0].showWords();
    for (const text of this.#results.keys())
      if (this.#results.size > KEPT && !counts.has(text))
        this.#results.delete(text);
  }
}

// Lets people choose among the versions that are loaded, if there are several.
function versionChoice(model, choose) {
  const [newest, ...others] = availableVersions(model);
  if (!others.length) return [];
  const options = [
    element("option", { value: "" }, `version ${newest.version}, the newest`),
    ...others.map(({ version }) =>
      element("option", { value: version }, `version ${version}`)),
  ];
  const select = element("select", { "aria-label": `Version of ${model.name}`,
    change: () => choose(select.value) }, ...options);
  return [select];
}

// What the export says of its model, folded away.
function aboutModel(model) {
  const about = model.about ?? {};
  const rows = [
    ["Problem", about.problem],
    ["Version", model.version ?? availableVersions(model)[0]?.version],
    ["Parameters", about.parameters?.toLocaleString("en")],
    ["Precision", about.precision],
    ["Longest text", about.max_length && `${about.max_length} tokens`],
    ["Trained", about.step && `${about.step.toLocaleString("en")} steps`],
    ...(about.scores ?? []).map(each => ["Score", scoreOf(each)]),
  ].filter(([, value]) => value);
  const list = element("dl", {}, ...rows.flatMap(([name, value]) =>
    [element("dt", {}, name), element("dd", {}, String(value))]));
  const details = element("details", { class: "about" },
    element("summary", {}, "About this model"), list);
  if (!hasSignature(model, "attention")) details.append(
    element("p", { class: "soft" }, "To see what each word attends to, export "
      + "the model with ", element("code", {}, "t2t-lite-exporter --attention"),
      "."));
  return details;
}

// "bleu 27.3 (split test, beam_size 4)"; t2t-lite.json has all that is known.
function scoreOf(told) {
  const conditions = ["split", "beam_size", "alpha", "signature"]
    .filter(name => name in told).map(name => `${name} ${told[name]}`);
  return `${told.metric} ${told.score?.toFixed(1)} (${conditions.join(", ")})`;
}
