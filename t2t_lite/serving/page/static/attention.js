// The signature `attention` of a model, for one text and its translation.

import { predict } from "./server.js";

// Tokens and weights of every head, without padding: weights
// [layer][head][row][column] of the cross, encoder and decoder attention.
export async function attentionOf(model, source, target, signal) {
  const found = await predict(
    model, "attention", { inputs: [source], targets: [target] }, signal);
  const written = found.target_tokens[0].filter(token => token !== "");
  const read = found.source_tokens[0].filter(token => token !== "");
  const sized = (weights, rows, columns) => weights[0].map(layer =>
    layer.map(head => head.slice(0, rows.length).map(
      row => row.slice(0, columns.length))));
  return {
    read, written, cross: sized(found.cross, written, read),
    encoder: sized(found.encoder, read, read),
    decoder: sized(found.decoder, written, written),
  };
}

// Alignment weights [target][source]: the mean of the heads of the last layer
// but one (arXiv:1909.02074).
export function alignmentOf({ cross }) {
  const heads = cross[Math.max(0, cross.length - 2)];
  return heads[0].map((row, t) => row.map((_, s) =>
    heads.reduce((sum, head) => sum + head[t][s], 0) / heads.length));
}
