// Elements from data. Text is only ever set as text, so nothing that a task prints can become markup.

const HANDLERS = ["onclick", "oninput", "onchange", "onsubmit", "onkeydown", "ontoggle"];

/** An element: attributes, `on…` handlers, which cannot cancel an event by what they return, `style` as an object,
 *  `keep` for a component that renders itself. */
export function h(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (HANDLERS.includes(name)) node[name] = (event) => void value(event);
    else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else if (name === "value") {
      node.value = value;
      node.setAttribute("value", value);
    } else if (name === "checked" || name === "open") {
      node[name] = value;
      node.setAttribute(name, "");
    } else node.setAttribute(name, value === true ? "" : value);
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(node, child);
    else if (child instanceof Node) node.append(child);
    else if (child !== null && child !== undefined && child !== false) node.append(String(child));
  }
}

export const button = (text, onclick, attributes) =>
  h("button", { type: "button", class: "small", onclick, ...attributes }, text);

/** Make `old` like `fresh`, and keep what is equal: focus, selection, scroll positions and open folds survive. */
export function morph(old, fresh, components) {
  attributes(old, fresh);
  for (const name of HANDLERS) if (old[name] !== fresh[name]) old[name] = fresh[name];
  if (old.tagName === "INPUT" && document.activeElement !== old && old.value !== fresh.value) old.value = fresh.value;
  const wanted = [...fresh.childNodes];
  let at = old.firstChild;
  for (const node of wanted) {
    const kept = key(node)?.startsWith("keep:");
    const same = at && key(at) === key(node) && (kept || at.nodeName === node.nodeName);
    if (same && kept) at = at.nextSibling;
    else if (same && node.nodeType === Node.TEXT_NODE) {
      if (at.data !== node.data) at.data = node.data;
      at = at.nextSibling;
    } else if (same) {
      const next = at.nextSibling;
      morph(at, node, components);
      at = next;
    } else {
      const later = key(node) ? [...old.children].find((child) => key(child) === key(node)) : null;
      if (later && at) {
        old.insertBefore(later, at);
        if (!kept) morph(later, node, components);
      } else old.insertBefore(place(node, components), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function key(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return undefined;
  return node.hasAttribute("keep") ? `keep:${node.getAttribute("keep")}` : (node.getAttribute("key") ?? undefined);
}

/** A new subtree with the components in place of their stand-ins. */
function place(node, components) {
  if (node.nodeType !== Node.ELEMENT_NODE) return node;
  if (node.hasAttribute("keep")) {
    const component = components(node.getAttribute("keep"));
    component.setAttribute("keep", node.getAttribute("keep"));
    return component;
  }
  for (const stand of node.querySelectorAll("[keep]")) stand.replaceWith(place(stand.cloneNode(), components));
  return node;
}

function attributes(old, fresh) {
  for (const { name } of [...old.attributes])
    if (name !== "style" && name !== "open" && name !== "data-ready" && !fresh.hasAttribute(name))
      old.removeAttribute(name);
  for (const { name, value } of fresh.attributes)
    if (name !== "style" && name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  if ("checked" in old && old.checked !== fresh.checked) old.checked = fresh.checked;
}
