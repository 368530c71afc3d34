// Translates a file line by line.

import { MAX_TEXTS, RequestRejected, translate } from "./server.js";

const CONCURRENCY = 2; // requests
const find = id => document.getElementById(id);
let controller = new AbortController();
let url = "";

// Accepts files that are chosen or dropped anywhere on the page.
export function acceptFiles(model) {
  find("file").addEventListener("change", event => {
    const [file] = event.target.files;
    event.target.value = ""; // the same file may be chosen again
    if (file) translateFile(model, file);
  });
  find("stop").addEventListener("click", () => controller.abort());
  const root = document.documentElement;
  for (const name of ["dragover", "dragleave", "drop"])
    root.addEventListener(name, event => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      const leaves = name === "dragleave" && !event.relatedTarget;
      root.classList.toggle("dropping", name !== "drop" && !leaves);
      if (name === "drop") translateFile(model, event.dataTransfer.files[0]);
    });
}

async function translateFile(model, file) {
  controller.abort();
  const { signal } = controller = new AbortController();
  find("file-name").textContent = file.name;
  find("work").hidden = find("stop").hidden = false;
  find("download").hidden = true;
  find("file-status").textContent = `Translating ${file.name}.`;
  const text = await readUtf8(file).catch(error => { // for example, of a folder
    find("file-status").textContent = error.message;
    find("stop").hidden = true;
  });
  if (text === undefined) return;
  const lines = text.split(/\r?\n/);
  if (lines.at(-1) === "") lines.pop();
  const outputs = Array(lines.length).fill("");
  const errors = [];
  let count = 0, next = 0;

  function advance(by) {
    count += by;
    find("file-progress").max = lines.length || 1;
    find("file-progress").value = lines.length ? count : 1;
    find("file-count").textContent = `${count} of ${lines.length} lines`;
  }

  // Sends the texts of a rejected request again, one by one.
  async function send(indices) {
    try {
      const texts = indices.map(index => lines[index]);
      const results = await translate(model, "serving_default", texts, signal);
      signal.throwIfAborted();
      indices.forEach((index, i) => {
        outputs[index] = results[i].hypotheses[0].text;
      });
    } catch (error) {
      if (!(error instanceof RequestRejected)) throw error;
      if (indices.length > 1) {
        for (const index of indices) await send([index]);
        return;
      }
      errors.push(`Line ${indices[0] + 1} has no translation: ${error.message}`);
    }
    advance(indices.length);
  }

  async function worker() {
    while (next < lines.length)
      await send(indexRange(next, next = Math.min(next + MAX_TEXTS, lines.length)));
  }

  try {
    advance(0);
    await Promise.all(Array.from({ length: CONCURRENCY }, worker));
    offerDownload(file, model, outputs);
    find("file-status").textContent = errors.length
      ? `${errors[0]} (${errors.length} in total)` : "Done.";
  } catch (error) {
    if (signal !== controller.signal) return; // another file has replaced this one
    find("file-status").textContent = signal.aborted
      ? "Stopped." : error.message;
    controller.abort();
    offerDownload(file, model, outputs); // lines without a translation are empty
  }
  find("stop").hidden = true;
}

async function readUtf8(file) {
  const bytes = await file.arrayBuffer();
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`${file.name} is not UTF-8 text: convert it.`);
  }
}

function indexRange(start, end) {
  return Array.from({ length: end - start }, (_, i) => start + i);
}

function offerDownload(file, model, lines) {
  URL.revokeObjectURL(url);
  const text = lines.map(line => `${line}\n`).join("");
  url = URL.createObjectURL(
    new Blob([text], { type: "text/plain;charset=utf-8" }));
  const link = find("download");
  const stem = file.name.replace(/\.[^.]*$/, "");
  link.href = url;
  link.download = `${stem}.${model.about?.target_language ?? model.name}.txt`;
  link.textContent = `Download ${link.download}`;
  link.hidden = false;
}
