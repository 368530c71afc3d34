// The signature `attention` of a model, for one text and its translation.

import { predict } from "./server.js";

// Tokens and weights of every head, without padding: weights
// [layer][head][row][column] of the cross, encoder and decoder attention.
export async function attentionOf(model, source, target, signal) {
  const outputs = await predict(
    model, "attention", { inputs: [source], targets: [target] }, signal);
  const targetTokens = outputs.target_tokens[0].filter(token => token !== "");
  const sourceTokens = outputs.source_tokens[0].filter(token => token !== "");
  const withoutPadding = (weights, rows, columns) => weights[0].map(layer =>
    layer.map(head => head.slice(0, rows.length).map(
      row => row.slice(0, columns.length))));
  return {
    source_tokens: sourceTokens, target_tokens: targetTokens,
    cross: withoutPadding(outputs.cross, targetTokens, sourceTokens),
    encoder: withoutPadding(outputs.encoder, sourceTokens, sourceTokens),
    decoder: withoutPadding(outputs.decoder, targetTokens, targetTokens),
  };
}

// Alignment weights [target][source]: the mean of the heads of the last layer
// but one (arXiv:1909.02074).
export function alignmentOf({ cross }) {
  const heads = cross[Math.max(0, cross.length - 2)];
  return heads[0].map((row, t) => row.map((_, s) =>
    heads.reduce((sum, head) => sum + head[t][s], 0) / heads.length));
}
