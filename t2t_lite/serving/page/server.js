// Asks the server: for its models, and a model for answers.

const TRIES = 6;
const FIRST_WAIT = 500, LONGEST_WAIT = 8000; // milliseconds
export const MOST_TEXTS = 16; // in one request
const NO_HYPOTHESIS = -1e7; // scores below it are of none, see log_probs.py

// The server's answer is no, and asking again does not help.
export class Refused extends Error {}

export async function listModels(signal) {
  return (await ask("models", { signal })).models;
}

// The versions of a model that can be asked, newest first.
export function availableVersions(model) {
  return model.versions.filter(({ state }) => state === "AVAILABLE");
}

// A model as one of its versions is; without a number, as the newest one is,
// whichever that will be.
export function atVersion(model, number) {
  const found = model.versions.find(({ version }) => version === number);
  return found ? { ...model, version: number, about: found.about } : model;
}

// What a signature of a model gives for columns of inputs, as columns.
export async function predict(model, signature, inputs, signal) {
  const version = model.version ? `/versions/${model.version}` : "";
  const name = encodeURIComponent(model.name);
  const path = `v1/models/${name}${version}:predict`;
  const { outputs } = await ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ signature_name: signature, inputs }),
    signal,
  });
  if (outputs === null || typeof outputs !== "object")
    throw new Refused("The server's answer has no outputs.");
  return outputs;
}

// A model's hypotheses for each text: [{hypotheses: [{text, score, target}],
// cut}]. `target` is what the signatures `score` and `attention` take for it.
export async function translate(model, texts, signal) {
  if (hasSignature(model, "nbest") !== false)
    try {
      const found = await predict(model, "nbest", { inputs: texts }, signal);
      return answers(found, texts);
    } catch (error) {
      if (hasSignature(model, "nbest") || !(error instanceof Refused))
        throw error;
      model.withoutNbest = true; // the server could not say so before
    }
  return translateBest(model, texts, signal);
}

// The same, of the best hypotheses only.
export async function translateBest(model, texts, signal) {
  const inputs = { inputs: texts };
  return answers(
    await predict(model, "serving_default", inputs, signal), texts);
}

// Whether a model has a signature; undefined where the server can't say.
export function hasSignature(model, name) {
  if (name === "nbest" && model.withoutNbest) return false;
  return model.about?.signatures?.includes(name);
}

function answers({ outputs, scores, targets = outputs, cut }, texts) {
  if (!Array.isArray(outputs) || outputs.length !== texts.length)
    throw new Refused("The model's answer is not one translation a text.");
  return outputs.map((found, i) => ({
    cut: Boolean(cut?.[i]),
    hypotheses: [found].flat().map((text, k) => ({
      text,
      score: scores === undefined ? null : [scores[i]].flat()[k],
      target: [targets[i]].flat()[k],
    })).filter(({ score }, k) => k === 0 || score > NO_HYPOTHESIS),
  }));
}

// The JSON of an answer. A server that is busy is asked again.
async function ask(path, options) {
  for (let tries = 1; ; tries++) {
    const response = await reach(path, options);
    if (response.status !== 503 || tries === TRIES) return content(response);
    await pause(waitFor(response, tries), options.signal);
  }
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer.");
  }
}

async function content(response) {
  const text = await response.text();
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    found = { error: `The server answers ${response.status}, without JSON.` };
  }
  if (response.ok && !found.error) return found;
  const told = found.error ?? `The server answers ${response.status}.`;
  throw new (response.status < 500 ? Refused : Error)(String(told));
}

function waitFor(response, tries) {
  const asked = 1000 * Number(response.headers.get("Retry-After"));
  return Math.min(asked || FIRST_WAIT * 2 ** (tries - 1), LONGEST_WAIT);
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}
