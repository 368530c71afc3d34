// Requests to the server.

export const MAX_TEXTS = 16; // in one request
const NO_HYPOTHESIS = -1e7; // a hypothesis with a lower score does not exist
const MAX_ATTEMPTS = 6, FIRST_DELAY = 500; // milliseconds

// The server rejected a request; a retry does not help.
export class RequestRejected extends Error {}

// {name, version, about}; `about` is t2t-lite.json of the export, or null.
export const describeModel = () => fetchJson("model");

export function hasSignature({ about }, name) {
  return Boolean(about?.signatures?.includes(name));
}

// The outputs of a signature for columns of inputs, as columns.
export async function predict(model, signature, inputs, signal) {
  const path = `v1/models/${encodeURIComponent(model.name)}:predict`;
  const { outputs } = await fetchJson(path, {
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
  return outputs.map((texts, i) => ({
    cut: Boolean(cut?.[i]),
    hypotheses: [texts].flat().map((text, k) => ({
      text,
      score: [scores?.[i]].flat()[k],
      target: [targets[i]].flat()[k],
    })).filter(({ score }, k) => k === 0 || score > NO_HYPOTHESIS),
  }));
}

// Returns the JSON of a response; retries while the server is busy.
async function fetchJson(path, options = {}) {
  let response;
  for (let attempt = 1; ; attempt++) {
    response = await fetch(path, options).catch(error => {
      if (error.name === "AbortError") throw error;
      throw new Error("The server does not respond.");
    });
    if (response.status !== 503 || attempt === MAX_ATTEMPTS) break;
    const delay = FIRST_DELAY * 2 ** (attempt - 1);
    await new Promise(resolve => setTimeout(resolve, delay));
  }
  const body = await response.json().catch(error => {
    if (error.name === "AbortError") throw error;
    if (response.ok) throw new Error("The server does not respond.");
    return {};
  });
  if (response.ok) return body;
  const reason = body.error ?? `The server returned status ${response.status}.`;
  throw new (response.status < 500 ? RequestRejected : Error)(reason);
}
