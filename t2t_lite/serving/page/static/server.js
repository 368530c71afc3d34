// Requests to the server.

export const MAX_TEXTS = 16; // in one request
const NO_HYPOTHESIS = -1e7; // a hypothesis with a lower score does not exist
const TRIES = 6, FIRST_WAIT = 500; // milliseconds

// The server rejects a request: another try does not help.
export class Refused extends Error {}

// {name, version, about}; `about` is t2t-lite.json of the export, or null.
export const describeModel = () => ask("model");

export function hasSignature({ about }, name) {
  return Boolean(about?.signatures?.includes(name));
}

// The outputs of a signature for columns of inputs, as columns.
export async function predict(model, signature, inputs, signal) {
  const path = `v1/models/${encodeURIComponent(model.name)}:predict`;
  const { outputs } = await ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ signature_name: signature, inputs }),
    signal,
  });
  return outputs;
}

// The hypotheses of each text: [{hypotheses: [{text, score, target}], cut}].
// The signatures `score` and `attention` take `target` instead of `text`.
export async function translate(model, signature, texts, signal) {
  const { outputs, scores, targets = outputs, cut } =
    await predict(model, signature, { inputs: texts }, signal);
  return outputs.map((found, i) => ({
    cut: Boolean(cut?.[i]),
    hypotheses: [found].flat().map((text, k) => ({
      text,
      score: [scores?.[i]].flat()[k],
      target: [targets[i]].flat()[k],
    })).filter(({ score }, k) => k === 0 || score > NO_HYPOTHESIS),
  }));
}

// The JSON of a response. A request to a busy server is repeated.
async function ask(path, options = {}) {
  let response;
  for (let tries = 1; ; tries++) {
    response = await fetch(path, options).catch(error => {
      if (error.name === "AbortError") throw error;
      throw new Error("The server does not answer.");
    });
    if (response.status !== 503 || tries === TRIES) break;
    const wait = FIRST_WAIT * 2 ** (tries - 1);
    await new Promise(resolve => setTimeout(resolve, wait));
  }
  const found = await response.json().catch(() => ({}));
  if (response.ok) return found;
  const reason = found.error ?? `The server answers ${response.status}.`;
  throw new (response.status < 500 ? Refused : Error)(reason);
}
