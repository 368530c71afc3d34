// Trees in brackets, drawn: constituents above, the words on one line below.

import { svgNode } from "./heads.js";

const LEVEL = 46, GAP = 22, FONT = 15, MARGIN = 12; // pixels
const pen = document.createElement("canvas").getContext("2d");

// The tree of "(S (NP It) (VP works))": {label, parts}, a word has no parts.
// Null if the text is not exactly one tree.
export function parseTree(text) {
  const top = { parts: [] }, open = [top];
  for (const [, bracket, word] of text.matchAll(/([()])|([^\s()]+)/g)) {
    const inner = open.at(-1);
    if (bracket === "(") open.push({ label: null, parts: [] });
    else if (bracket === ")") {
      if (open.length === 1) return null;
      open.pop();
      open.at(-1).parts.push(inner);
    } else if (inner.label === null && !inner.parts.length) inner.label = word;
    else inner.parts.push({ label: word });
  }
  const whole = open.length === 1 && top.parts.length === 1;
  return whole && top.parts[0].parts ? top.parts[0] : null;
}

// A drawing of a tree.
export function drawTree(tree) {
  pen.font = `${FONT}px system-ui, sans-serif`;
  const depth = levels(tree);
  const width = place(tree, MARGIN, 0);
  const svg = svgNode("svg", { class: "drawing", role: "img",
    width: Math.ceil(width + MARGIN - GAP), height: LEVEL * depth + MARGIN,
    "aria-label": `Tree with the words: ${words(tree).join(" ")}` });
  draw(tree, svg, depth);
  return svg;
}

function levels(node) {
  return 1 + Math.max(0, ...(node.parts ?? []).map(levels));
}

function words(node) {
  return node.parts ? node.parts.flatMap(words) : [node.label];
}

// Gives each node its place; returns where its right neighbor begins.
function place(node, left, level) {
  const own = pen.measureText(node.label ?? "").width + GAP;
  let right = left;
  for (const part of node.parts ?? []) right = place(part, right, level + 1);
  const spare = left + own - right;
  if (spare > 0) {
    // A wide label above narrow parts: they stand in its middle.
    if (node.parts?.length) shift(node.parts, spare / 2);
    right = left + own;
  }
  const parts = node.parts ?? [];
  node.level = level;
  node.x = parts.length
    ? (parts[0].x + parts.at(-1).x) / 2 : (left + right - GAP) / 2;
  return right;
}

function shift(nodes, by) {
  for (const node of nodes) {
    node.x += by;
    shift(node.parts ?? [], by);
  }
}

function draw(node, svg, depth) {
  const height = each => (each.parts ? each.level : depth - 1) * LEVEL + MARGIN;
  const y = height(node);
  for (const part of node.parts ?? []) {
    svgNode("path", { class: part.parts ? "branch" : "branch word",
      d: `M${node.x} ${y + FONT + 4} L${part.x} ${height(part) - 2}` }, svg);
    draw(part, svg, depth);
  }
  svgNode("text", { x: node.x, y: y + FONT - 2, "text-anchor": "middle",
    class: node.parts ? "label" : "word" }, svg, node.label ?? "");
}
