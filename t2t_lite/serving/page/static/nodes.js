// Creates elements. Texts become text nodes, never HTML.

// element("p", { class: "muted" }, "some text", otherNode)
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export function button(label, click) {
  return element("button", { type: "button", class: "plain", click }, label);
}

// Sets the language of a node, for hyphenation, fonts and screen readers.
export function setLanguage(node, code) {
  node.lang = code ?? "";
  node.dir = "auto";
}
