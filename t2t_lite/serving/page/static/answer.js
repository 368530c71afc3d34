// The answer to one text: translations to choose from, the source words that
// each word attends to, and drawings of trees.

import { align } from "./alignment.js";
import { alignmentOf, attentionOf } from "./attention.js";
import { button, element, setLanguage } from "./nodes.js";
import { hasSignature } from "./server.js";
import { drawTree, parseTree } from "./trees.js";

let count = 0; // of answers: radio buttons of one answer share a name

export class Answer {
  #model; #source; #hypotheses; #tools;
  #chosen = 0;
  #nbest = null;
  #attention = new Map(); // by target, as promises
  #wanted = false; // whether the user has pointed at it
  #removed = new AbortController();

  // `tools`: {say(text), openHeads(texts, attention)}
  constructor(model, source, { hypotheses, cut }, tools) {
    this.#model = model;
    this.#source = source;
    this.#hypotheses = hypotheses;
    this.#tools = tools;
    this.target = element("div", { class: "translation" });
    setLanguage(this.target, model.about?.target_language);
    this.from = element("p", { class: "from", hidden: true });
    setLanguage(this.from, model.about?.source_language);
    this.element = element("article", { class: "answer" },
      this.target, this.from);
    if (cut) this.element.append(element("p", { class: "warning" },
      "The text is longer than the model takes: its end was left out."));
    this.element.append(this.#actions());
    if (hypotheses.length > 1)
      this.element.append(this.#nbest = this.#choice());
    for (const event of ["pointerenter", "focusin"])
      this.element.addEventListener(event, () => this.showWords());
    this.#show();
  }

  // Among several answers, the other translations stay folded.
  set isAlone(alone) { if (this.#nbest) this.#nbest.open = alone; }

  remove() { this.#removed.abort(); }

  get text() { return this.#hypotheses[this.#chosen].text; }

  get #hasAttention() { return hasSignature(this.#model, "attention"); }

  #choice() {
    const name = `hypotheses-${++count}`;
    const options = this.#hypotheses.map(({ text, score }, index) => {
      const shown = element("span", { class: "option-text" }, text);
      setLanguage(shown, this.#model.about?.target_language);
      const radio = element("input", { type: "radio", name, value: index,
        change: () => { this.#chosen = index; this.#show(); } });
      radio.checked = index === 0;
      return element("label", { class: "option", dir: "auto" }, radio, shown,
        element("span", { class: "score", dir: "ltr" },
          element("span", { class: "unseen" }, "score "),
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
      const pressed = event.currentTarget;
      await navigator.clipboard.writeText(this.text);
      pressed.textContent = "Copied";
      setTimeout(() => { pressed.textContent = "Copy"; }, 1500);
    }));
    if (this.#hasAttention) actions.append(button("Attention", () =>
      this.#tools.openHeads([this.#source, this.text], this.#ask())));
    return actions;
  }

  #show() {
    const tree = this.#model.about?.form === "trees" && parseTree(this.text);
    this.from.hidden = true;
    this.target.classList.toggle("tree", Boolean(tree));
    if (tree) {
      const drawing = element("div", { class: "tree-place", tabindex: 0,
        role: "group", "aria-label": "Drawing" }, drawTree(tree));
      const brackets = element("p", { class: "brackets" }, this.text);
      this.target.replaceChildren(drawing, brackets);
    } else {
      this.target.removeAttribute("role");
      this.target.removeAttribute("aria-label");
      this.target.textContent = this.text;
      if (this.#wanted) this.#showWords();
    }
  }

  // Makes the words interactive, if the export has the signature `attention`.
  showWords() {
    if (this.#wanted || !this.#hasAttention) return;
    this.#wanted = true;
    if (this.#model.about?.form !== "trees") this.#showWords();
  }

  async #showWords() {
    const text = this.text;
    let attention;
    try {
      attention = await this.#ask();
    } catch {
      return; // the button shows the error
    }
    if (text !== this.text) return;
    this.from.hidden = false;
    align(
      { node: this.target, text, pieces: attention.written.slice(0, -1),
        name: "Words of the translation" },
      { node: this.from, text: this.#source,
        pieces: attention.read.slice(0, -1), name: "Words of the text" },
      alignmentOf(attention), this.#tools.say);
  }

  #ask() {
    const { target } = this.#hypotheses[this.#chosen];
    if (!this.#attention.has(target)) {
      const asked = attentionOf(
        this.#model, this.#source, target, this.#removed.signal);
      asked.catch(() => this.#attention.delete(target));
      this.#attention.set(target, asked);
    }
    return this.#attention.get(target);
  }
}
