// The signature `attention` of a model, for one text and its translation.

import { predict } from "./server.js";

const START = "\u27e8start\u27e9";

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
    texts: [source, target], read, written,
    cross: sized(found.cross, written, read),
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

// The argument of showHeads, as attention_page.attention_of returns it.
export function viewsOf({ texts, read, written, cross, encoder, decoder }) {
  return { texts, views: [
    { name: "Cross", weights: cross,
      about: "What the decoder looks at in the source when it chooses the "
        + "next token.",
      row_side: "next token", rows: written,
      column_side: "source", columns: read },
    { name: "Encoder", weights: encoder,
      about: "What the encoder looks at when it reads a token of the source.",
      row_side: "source", rows: read, column_side: "source", columns: read },
    { name: "Decoder", weights: decoder,
      about: "What the decoder looks at in the target so far when it chooses "
        + "the next token.",
      row_side: "next token", rows: written,
      column_side: "target so far", columns: [START, ...written.slice(0, -1)] },
  ] };
}
