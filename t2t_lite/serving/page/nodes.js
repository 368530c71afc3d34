// Makes elements. Texts come in by textContent only, never as HTML.

// element("p", { class: "soft" }, "some text", otherNode)
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false) node.setAttribute(key, value);
  node.append(...children); // strings become text
  return node;
}

export function button(label, click, look = "plain") {
  return element("button", { type: "button", class: look, click }, label);
}
