// The result of one text: its translations, the source words that each word
// attends to, and drawings of trees.

import { align } from "./alignment.js";
import { alignmentOf, attentionOf } from "./attention.js";
import { button, element, setLanguage } from "./nodes.js";
import { hasSignature } from "./server.js";
import { drawTree, parseTree } from "./trees.js";

const MAX_INTERACTIVE = 500; // characters; attention grows with the square
let count = 0; // answers; the radio buttons of an answer share a name

export class Answer {
  #model; #source; #hypotheses; #tools;
  #selected = 0;
  #nbest = null;
  #attention = new Map(); // by target, as promises
  #isInteractive = false; // words show their attention
  #removed = new AbortController();

  // `tools`: {announce(text), openHeads(texts, attention)}
  constructor(model, source, { hypotheses, cut }, tools) {
    this.#model = model;
    this.#source = source;
    this.#hypotheses = hypotheses;
    this.#tools = tools;
    this.target = element("div", { class: "translation" });
    setLanguage(this.target, model.about?.target_language);
    this.source = element("p", { class: "source", hidden: true });
    setLanguage(this.source, model.about?.source_language);
    this.element = element("article", { class: "answer" },
      this.target, this.source);
    if (cut) this.element.append(element("p", { class: "warning" },
      "The text is longer than the limit of the model; only its beginning was translated."));
    this.element.append(this.#actions());
    if (hypotheses.length > 1)
      this.element.append(this.#nbest = this.#hypothesisList());
    for (const event of ["pointerenter", "focusin"])
      this.element.addEventListener(event, () => this.showWords());
    this.#show();
  }

  // The list of the other translations is open if there is one answer only.
  set isOnly(isOnly) { if (this.#nbest) this.#nbest.open = isOnly; }

  remove() { this.#removed.abort(); }

  get text() { return this.#hypotheses[this.#selected].text; }

  get #hasAttention() { return hasSignature(this.#model, "attention"); }

  #hypothesisList() {
    const name = `hypotheses-${++count}`;
    const options = this.#hypotheses.map(({ text, score }, index) => {
      const label = element("span", { class: "option-text" }, text);
      setLanguage(label, this.#model.about?.target_language);
      const radio = element("input", { type: "radio", name, value: index,
        change: () => { this.#selected = index; this.#show(); } });
      radio.checked = index === 0;
      return element("label", { class: "option", dir: "auto" }, radio, label,
        element("span", { class: "score", dir: "ltr" },
          element("span", { class: "visually-hidden" }, "score "),
          score?.toFixed(2).replace("-", "\u2212") ?? ""));
    });
    return element("details", { class: "nbest" },
      element("summary", {}, `${options.length} translations, best first`),
      element("div", { role: "radiogroup", "aria-label": "Translations" },
        ...options));
  }

  #actions() {
    const actions = element("div", { class: "actions" });
    if (navigator.clipboard) actions.append(button("Copy", async event => {
      const copyButton = event.currentTarget;
      await navigator.clipboard.writeText(this.text);
      copyButton.textContent = "Copied";
      setTimeout(() => { copyButton.textContent = "Copy"; }, 1500);
    }));
    if (this.#hasAttention) actions.append(button("Attention", () =>
      this.#tools.openHeads([this.#source, this.text], this.#fetchAttention())));
    return actions;
  }

  #show() {
    const tree = this.#model.about?.form === "trees" && parseTree(this.text);
    this.source.hidden = true;
    this.target.classList.toggle("tree", Boolean(tree));
    if (tree) {
      const drawing = element("div", { class: "tree-drawing", tabindex: 0,
        role: "group", "aria-label": "Drawing" }, drawTree(tree));
      const brackets = element("p", { class: "brackets" }, this.text);
      this.target.replaceChildren(drawing, brackets);
    } else {
      this.target.removeAttribute("role");
      this.target.removeAttribute("aria-label");
      this.target.textContent = this.text;
      if (this.#isInteractive) this.#showWords();
    }
  }

  // Makes words interactive if the export has the signature `attention`.
  showWords() {
    const isLong = this.text.length > MAX_INTERACTIVE;
    if (this.#isInteractive || isLong || !this.#hasAttention) return;
    this.#isInteractive = true;
    if (this.#model.about?.form !== "trees") this.#showWords();
  }

  async #showWords() {
    const text = this.text;
    let attention;
    try {
      attention = await this.#fetchAttention();
    } catch {
      return; // the button shows the error
    }
    if (text !== this.text) return;
    this.source.hidden = false;
    align(
      { node: this.target, text, pieces: attention.target_tokens.slice(0, -1),
        name: "Words of the translation" },
      { node: this.source, text: this.#source,
        pieces: attention.source_tokens.slice(0, -1), name: "Words of the text" },
      alignmentOf(attention), this.#tools.announce);
  }

  #fetchAttention() {
    const { target } = this.#hypotheses[this.#selected];
    if (!this.#attention.has(target)) {
      const promise = attentionOf(
        this.#model, this.#source, target, this.#removed.signal);
      promise.catch(() => this.#attention.delete(target));
      this.#attention.set(target, promise);
    }
    return this.#attention.get(target);
  }
}
