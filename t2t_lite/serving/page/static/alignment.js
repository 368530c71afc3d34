// Texts whose words highlight the words of the other text that they attend to.

import { element } from "./nodes.js";

const SPACE = /\u2581/g;

// The position of each piece in a text: [start, end], or null for a piece without
// letters. Null if the pieces do not form the text.
export function findSpans(pieces, text) {
  let end = 0;
  const spans = [];
  for (const piece of pieces) {
    const bare = piece.replace(SPACE, "");
    // Word boundaries of WordPiece and of tensor2tensor's subwords.
    const candidates = [bare, bare.replace(/^##/, ""), bare.replace(/_$/, "")];
    const match = candidates.find(each => spaceBefore(text, each, end) !== null);
    if (match === undefined) return null;
    const start = end + spaceBefore(text, match, end);
    spans.push(match ? [start, start + match.length] : null);
    if (match) end = start + match.length;
  }
  return text.slice(end).trim() ? null : spans;
}

// The length of the white space before a piece at an index; null: another piece.
function spaceBefore(text, piece, from) {
  const length = text.slice(from).match(/^\s*/)[0].length;
  return text.startsWith(piece, from + length) ? length : null;
}

// Links two nodes of the page, each {node, text, pieces, name}. Hovering over a
// word or focusing it shades the other text by the weights [target][source].
// `announce` gets the same as text.
export function align(target, source, weights, announce) {
  const sides = [target, source].map(tokensOf);
  const weight = (one, other, side) => side === 0
    ? weights[one.piece][other.piece] : weights[other.piece][one.piece];
  const clear = () => {
    for (const { node } of sides.flat()) {
      node.classList.remove("selected", "strongest");
      node.style.removeProperty("--weight");
    }
  };
  sides.forEach((tokens, side) => listen(tokens, token => {
    clear();
    token.node.classList.add("selected");
    const shares = sides[1 - side].map(other =>
      ({ node: other.node, share: weight(token, other, side) }));
    for (const { node, share } of shares)
      node.style.setProperty("--weight", share);
    shares.sort((a, b) => b.share - a.share);
    shares[0]?.node.classList.add("strongest");
    announce(`${token.node.textContent}: ` + shares.slice(0, 2).map(each =>
      `${each.node.textContent} ${Math.round(100 * each.share)} %`).join(", "));
  }, clear));
}

// Fills a node with its text, one element per piece that has letters, and returns
// the elements with the indices of their pieces: [{node, piece}].
function tokensOf({ node, text, pieces, name }) {
  const spans = findSpans(pieces, text);
  const tokens = [];
  let end = 0;
  node.replaceChildren();
  node.setAttribute("role", "group");
  node.setAttribute("aria-label", name);
  pieces.forEach((label, piece) => {
    if (spans && !spans[piece]) return;
    const [start, stop] = spans ? spans[piece] : [0, 0];
    const token = element("span", { class: "token", role: "button",
      tabindex: tokens.length ? -1 : 0 },
      spans ? text.slice(start, stop) : label);
    node.append(spans ? text.slice(end, start) : " ", token);
    tokens.push({ node: token, piece });
    end = stop;
  });
  return tokens;
}

// A click or the keyboard selects a word. Each text is one Tab stop; arrow keys
// move from word to word.
function listen(tokens, show, hide) {
  tokens.forEach((token, index) => {
    const { node } = token;
    node.addEventListener("mouseenter", () => show(token));
    node.addEventListener("mouseleave", () => {
      hide();
      const focused = tokens.find(each => each.node === document.activeElement);
      if (focused) show(focused);
    });
    node.addEventListener("focus", () => show(token));
    node.addEventListener("blur", hide);
    node.addEventListener("click", () => node.focus());
    node.addEventListener("keydown", event => {
      const back = getComputedStyle(node).direction === "rtl" ? 1 : -1;
      const steps = { ArrowLeft: back, ArrowRight: -back, Home: -index,
        End: tokens.length - 1 - index };
      const next = tokens[index + steps[event.key]]?.node;
      if (!next) return;
      event.preventDefault();
      node.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  });
}
