// Drawings of trees in brackets, with all words on the lowest line.

import { svgNode } from "./heads.js";

const LEVEL = 46, GAP = 22, FONT = 15, MARGIN = 12; // pixels
const context = document.createElement("canvas").getContext("2d");

// The tree of "(S (NP It) (VP works))": {label, children}, a word has no children.
// Null if the text is not exactly one tree.
export function parseTree(text) {
  const top = { children: [] }, open = [top];
  for (const [, bracket, word] of text.matchAll(/([()])|([^\s()]+)/g)) {
    const inner = open.at(-1);
    if (bracket === "(") open.push({ label: null, children: [] });
    else if (bracket === ")") {
      if (open.length === 1) return null;
      open.pop();
      open.at(-1).children.push(inner);
    } else if (inner.label === null && !inner.children.length) inner.label = word;
    else inner.children.push({ label: word });
  }
  const whole = open.length === 1 && top.children.length === 1;
  return whole && top.children[0].children ? top.children[0] : null;
}

// A drawing of a tree.
export function drawTree(tree) {
  context.font = `${FONT}px system-ui, sans-serif`;
  const depth = levels(tree);
  const width = layOut(tree, MARGIN, 0);
  const svg = svgNode("svg", { class: "drawing", role: "img",
    width: Math.ceil(width + MARGIN - GAP), height: LEVEL * depth + MARGIN,
    "aria-label": `Tree with the words: ${words(tree).join(" ")}` });
  draw(tree, svg, depth);
  return svg;
}

function levels(node) {
  return 1 + Math.max(0, ...(node.children ?? []).map(levels));
}

function words(node) {
  return node.children ? node.children.flatMap(words) : [node.label];
}

// Sets the position of each node; returns the left edge of its right neighbor.
function layOut(node, left, level) {
  const width = context.measureText(node.label ?? "").width + GAP;
  let right = left;
  for (const part of node.children ?? []) right = layOut(part, right, level + 1);
  const spare = left + width - right;
  if (spare > 0) {
    // Centers narrow children below a wide label.
    if (node.children?.length) shift(node.children, spare / 2);
    right = left + width;
  }
  const children = node.children ?? [];
  node.level = level;
  node.x = children.length
    ? (children[0].x + children.at(-1).x) / 2 : (left + right - GAP) / 2;
  return right;
}

function shift(nodes, by) {
  for (const node of nodes) {
    node.x += by;
    shift(node.children ?? [], by);
  }
}

function draw(node, svg, depth) {
  const height = each => (each.children ? each.level : depth - 1) * LEVEL + MARGIN;
  const y = height(node);
  for (const part of node.children ?? []) {
    svgNode("path", { class: part.children ? "branch" : "branch word",
      d: `M${node.x} ${y + FONT + 4} L${part.x} ${height(part) - 2}` }, svg);
    draw(part, svg, depth);
  }
  svgNode("text", { x: node.x, y: y + FONT - 2, "text-anchor": "middle",
    class: node.children ? "label" : "word" }, svg, node.label ?? "");
}
