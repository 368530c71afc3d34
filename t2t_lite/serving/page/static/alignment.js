// Texts whose words light up what they attend to in the other text.

import { element } from "./nodes.js";

const SPACE = /\u2581/g;

// Where each piece stands in a text: [start, end], or null for one that has no
// letters there. Null if the pieces do not make up the text.
export function placesOf(pieces, text) {
  let end = 0;
  const places = [];
  for (const piece of pieces) {
    const bare = piece.replace(SPACE, "");
    // As WordPiece, and tensor2tensor's subwords, mark the borders of words.
    const ways = [bare, bare.replace(/^##/, ""), bare.replace(/_$/, "")];
    const way = ways.find(each => gapBefore(text, each, end) !== null);
    if (way === undefined) return null;
    const start = end + gapBefore(text, way, end);
    places.push(way ? [start, start + way.length] : null);
    if (way) end = start + way.length;
  }
  return text.slice(end).trim() ? null : places;
}

// The white space between a place and a piece that follows it; null: no piece.
function gapBefore(text, piece, from) {
  const gap = text.slice(from).match(/^\s*/)[0].length;
  return text.startsWith(piece, from + gap) ? gap : null;
}

// Links two places on the page, each {node, text, pieces, name}: whichever word
// is pointed at, or focused, the other text is shaded by the weights
// [target][source]. `say` is told in words what the shades show.
export function align(target, source, weights, say) {
  const sides = [target, source].map(tokensOf);
  const weight = (one, other, side) => side === 0
    ? weights[one.piece][other.piece] : weights[other.piece][one.piece];
  const clear = () => {
    for (const { node } of sides.flat()) {
      node.classList.remove("chosen", "most");
      node.style.removeProperty("--weight");
    }
  };
  sides.forEach((tokens, side) => listen(tokens, token => {
    clear();
    token.node.classList.add("chosen");
    const shares = sides[1 - side].map(other =>
      ({ node: other.node, share: weight(token, other, side) }));
    for (const { node, share } of shares)
      node.style.setProperty("--weight", share);
    shares.sort((a, b) => b.share - a.share);
    shares[0]?.node.classList.add("most");
    say(`${token.node.textContent}: ` + shares.slice(0, 2).map(each =>
      `${each.node.textContent} ${Math.round(100 * each.share)} %`).join(", "));
  }, clear));
}

// Fills a node with its text, each piece that has letters in an element of its
// own: [{node, piece}].
function tokensOf({ node, text, pieces, name }) {
  const places = placesOf(pieces, text);
  const tokens = [];
  let end = 0;
  node.replaceChildren();
  node.setAttribute("role", "group");
  node.setAttribute("aria-label", name);
  pieces.forEach((shown, piece) => {
    if (places && !places[piece]) return;
    const [start, stop] = places ? places[piece] : [0, 0];
    const token = element("span", { class: "token", role: "button",
      tabindex: tokens.length ? -1 : 0 },
      places ? text.slice(start, stop) : shown);
    node.append(places ? text.slice(end, start) : " ", token);
    tokens.push({ node: token, piece });
    end = stop;
  });
  return tokens;
}

// A click or the keyboard keeps a word. One Tab stop a text; arrows go from word to word.
function listen(tokens, show, hide) {
  tokens.forEach((token, index) => {
    const { node } = token;
    node.addEventListener("mouseenter", () => show(token));
    node.addEventListener("mouseleave", () => {
      hide();
      const kept = tokens.find(each => each.node === document.activeElement);
      if (kept) show(kept);
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
