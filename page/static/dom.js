// @ts-check
/** Elements and figures: how the page writes what it shows. All text of users goes in as text, never as markup. */

/** @typedef {string | number | Node | null | undefined | false} Child */

/**
 * An element with properties, listeners (`on...`), attributes and children.
 * @param {string} tag
 * @param {Record<string, any>} [given]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  apply(made, given);
  made.append(...children.flat().filter((one) => one !== null && one !== undefined && one !== false).map(asNode));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Record<string, any>} [given]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function svg(tag, given = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  apply(made, given);
  made.append(...children.flat().filter((one) => one !== null && one !== undefined && one !== false).map(asNode));
  return made;
}

/** @param {any} one */
const asNode = (one) => (one instanceof Node ? one : document.createTextNode(String(one)));

/**
 * @param {Element} element
 * @param {Record<string, any>} given
 */
function apply(element, given) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([key, one]) => /** @type {any} */ (element).style.setProperty(key, one));
    else if (name === "value" || name === "checked") /** @type {any} */ (element)[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** @param {string} id @returns {any} */
export const by = (id) => document.getElementById(id);

/** @param {number | null | undefined} s seconds */
export function seconds(s) {
  if (s === null || s === undefined || !Number.isFinite(s)) return "–";
  if (s >= 172800) return `${digits(s / 86400)} d`;
  if (s >= 7200) return `${digits(s / 3600)} h`;
  if (s >= 600) return `${digits(s / 60)} min`;
  if (s >= 1) return `${digits(s)} s`;
  if (s >= 1e-3) return `${digits(s * 1e3)} ms`;
  if (s >= 5e-8) return `${digits(s * 1e6)} µs`;
  return "0 s";
}

/** @param {number} x */
export function digits(x) {
  return x.toLocaleString("en", { maximumSignificantDigits: Math.abs(x) >= 1000 ? 5 : 4 });
}

/** @param {number | null | undefined} share */
export const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(Math.abs(share) < 0.01 && share !== 0 ? 2 : 1)} %`);

/** A probability in hundredths, rounded down as the command line has it: one just short of 1 is no certainty.
 * @param {number} probability */
export const chance = (probability) => (Math.floor(100 * probability + 1e-9) / 100).toFixed(2);

/** @param {number | null | undefined} bytes */
export const gigabytes = (bytes) => (bytes === null || bytes === undefined ? "–" : `${(bytes / 1e9).toFixed(1)} GB`);

/** @param {any} value */
export const whole = (value) => (typeof value === "number" ? value.toLocaleString("en") : String(value));

/**
 * A table with a head; cells are text, numbers or nodes.
 * @param {string} caption
 * @param {Child[]} head
 * @param {Child[][]} rows
 */
export function table(caption, head, rows) {
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, head.map((one) => h("th", { scope: "col" }, one)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => h(i ? "td" : "th", i ? {} : { scope: "row" }, cell))))),
    ),
  );
}

/**
 * Hand the user a file.
 * @param {string} name
 * @param {string | Blob} text
 * @param {string} kind
 */
export function save(name, text, kind) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  const link = h("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** @param {string} text */
export function say(text) {
  by("status").textContent = text;
}
