// A file, translated line by line.

import { element } from "./nodes.js";
import { MOST_TEXTS, Refused, translateBest } from "./server.js";

const AT_ONCE = 2; // requests under way

// Translates lines: {lines, errors: [{line, message}]}. A line that the server
// refuses is empty there. `done(count)` is called as they come.
export async function translateLines(model, lines, signal, done) {
  const found = Array(lines.length).fill("");
  const errors = [];
  const full = [...lines.keys()].filter(i => lines[i].trim());
  let count = lines.length - full.length;
  done(count);

  async function ask(places) {
    try {
      const answers = await translateBest(
        model, places.map(i => lines[i]), signal);
      places.forEach((i, k) => { found[i] = answers[k].hypotheses[0].text; });
      done(count += places.length);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (places.length > 1) for (const i of places) await ask([i]);
      else {
        errors.push({ line: places[0] + 1, message: error.message });
        done(count += 1);
      }
    }
  }

  let next = 0;
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    while (next < full.length) {
      const places = full.slice(next, next += MOST_TEXTS);
      await ask(places);
    }
  }));
  errors.sort((a, b) => a.line - b.line);
  return { lines: found, errors };
}

// The lines of a text, without their ends.
export function linesOf(text) {
  const lines = text.replace(/^\ufeff/, "").split(/\r?\n/);
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

// Drives the part of the page that takes a file.
export class Documents {
  #find = id => document.getElementById(id);
  #panels; #select; #stop = null; #url = null;

  // A file is for the version that is chosen in the panel of its model.
  constructor(panels) {
    this.#panels = panels;
    const place = this.#find("file-model");
    this.#select = place.querySelector("select");
    this.#select.append(...panels.map(({ model }, index) =>
      element("option", { value: index }, model.name)));
    place.hidden = panels.length < 2;
    this.#find("file").addEventListener("change", event => {
      const [file] = event.target.files;
      event.target.value = ""; // the same file may be chosen again
      if (file) this.#translate(file);
    });
    this.#find("stop").addEventListener("click", () => this.#stop.abort());
    this.#takeDrops();
  }

  #takeDrops() {
    const root = document.documentElement;
    const hasFile = event => event.dataTransfer?.types.includes("Files");
    root.addEventListener("dragover", event => {
      if (!hasFile(event)) return;
      event.preventDefault();
      root.classList.add("dropping");
    });
    root.addEventListener("dragleave", event => {
      if (!event.relatedTarget) root.classList.remove("dropping");
    });
    root.addEventListener("drop", event => {
      if (!hasFile(event)) return;
      event.preventDefault();
      root.classList.remove("dropping");
      this.#translate(event.dataTransfer.files[0]);
    });
  }

  async #translate(file) {
    this.#stop?.abort();
    const stop = this.#stop = new AbortController();
    const { model } = this.#panels[this.#select.value];
    this.#find("file-name").textContent = file.name;
    this.#find("work").hidden = this.#find("stop").hidden = false;
    this.#find("download").hidden = true;
    this.#tell(`Translating ${file.name}.`);
    const lines = linesOf(await file.text());
    const progress = this.#find("file-progress");
    progress.max = lines.length || 1;
    const done = count => {
      if (this.#stop !== stop) return;
      progress.value = lines.length ? count : 1;
      this.#find("file-count").textContent =
        `${number(count)} of ${number(lines.length)} lines`;
    };
    try {
      const found = await translateLines(model, lines, stop.signal, done);
      if (this.#stop !== stop) return;
      this.#offer(file, model, found.lines);
      this.#tell(found.errors.length ? refusals(found.errors) : "Done.");
    } catch (error) {
      if (this.#stop !== stop) return;
      const told = stop.signal.aborted ? "Stopped." : error.message;
      stop.abort();
      this.#tell(told);
    }
    this.#find("stop").hidden = true;
  }

  #tell(text) {
    this.#find("file-status").textContent = text;
  }

  #offer(file, model, lines) {
    if (this.#url) URL.revokeObjectURL(this.#url);
    const text = lines.map(line => `${line}\n`).join("");
    this.#url = URL.createObjectURL(
      new Blob([text], { type: "text/plain;charset=utf-8" }));
    const link = this.#find("download");
    const stem = file.name.replace(/\.[^.]*$/, "");
    link.href = this.#url;
    link.download = `${stem}.${model.about?.target_language ?? model.name}.txt`;
    link.textContent = `Download ${link.download}`;
    link.hidden = false;
  }
}

function refusals(errors) {
  const [{ line, message }] = errors;
  const others = errors.length - 1;
  return `Line ${number(line)} has no translation: ${message}`
    + (others ? ` So have ${number(others)} others.` : "");
}

function number(count) {
  return count.toLocaleString("en");
}
