// @ts-check
/** What is looked at: the scenario's document and the view, kept in the fragment of the address. */

import { h } from "./dom.js";

/** @typedef {{document: any, view: string, pins: any[], faults: string[]}} State */

/** @type {State} */
export const state = { document: {}, view: "step", pins: [], faults: [] };

let written = "";

/** Write the state into the address: a new entry of the history, or in place of the last one. @param {boolean} [replace] */
export async function remember(replace = false) {
  const packed = await pack(state);
  if (packed === written) return;
  written = packed;
  history[replace ? "replaceState" : "pushState"](null, "", `#${packed}`);
}

/** Read the state from the address; false where it holds none, or one that cannot be read. */
export async function recall() {
  const packed = location.hash.slice(1);
  if (!packed || packed.includes("=")) return false;
  try {
    const found = await unpack(packed);
    if (typeof found.document !== "object" || found.document === null) return false;
    Object.assign(state, { view: "step", pins: [], faults: [] }, found);
    written = packed;
    return true;
  } catch {
    return false;
  }
}

/**
 * A link to the step of a scenario: followed here, opened in another tab, or copied.
 * @param {string} text
 * @param {any} document
 */
export function linked(text, document) {
  const link = h("a", {}, text);
  pack({ ...state, document, view: "step" }).then((packed) => (link.href = `#${packed}`));
  return link;
}

/** @param {object} value */
export async function pack(value) {
  const stream = new Blob([JSON.stringify(value)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let text = "";
  for (const one of bytes) text += String.fromCharCode(one);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** @param {string} packed @returns {Promise<any>} */
export async function unpack(packed) {
  const text = atob(packed.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(text, (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

/** @type {Record<string, string>} */
let shortForms = {};

/** @param {Record<string, string>} forms blocks that may be one word, and the key that the word stands for */
export function useShortForms(forms) {
  shortForms = forms;
}

/**
 * The value of a dotted field; undefined where the document does not say it.
 * @param {any} document
 * @param {string} path
 */
export function get(document, path) {
  let at = document;
  const keys = path.split(".");
  for (const [i, key] of keys.entries()) {
    if (typeof at === "string" && shortForms[keys.slice(0, i).join(".")] === key) return at;
    if (typeof at !== "object" || at === null) return undefined;
    at = at[key];
  }
  const short = shortForms[path];
  return short && typeof at === "object" && at !== null && !Array.isArray(at) ? at[short] : at;
}

/**
 * The document with a dotted field set; undefined takes it out.
 * @param {any} document
 * @param {string} path
 * @param {any} value
 */
export function set(document, path, value) {
  return within(document, path.split("."), "", value);
}

/** @param {any} block @param {string[]} keys @param {string} at @param {any} value @returns {any} */
function within(block, keys, at, value) {
  if (!keys.length) {
    const short = shortForms[at];
    const others = short && typeof block === "object" && block !== null && !Array.isArray(block) ? { ...block } : null;
    if (!others || (typeof value === "object" && value !== null)) return value;
    delete others[short];
    if (!Object.keys(others).length) return value;
    return value === undefined ? others : { [short]: value, ...others };
  }
  const [key, ...rest] = keys;
  const opened = typeof block === "string" && shortForms[at] ? { [shortForms[at]]: block } : block;
  const base = typeof opened === "object" && opened !== null && !Array.isArray(opened) ? opened : {};
  const inner = within(base[key], rest, at ? `${at}.${key}` : key, value);
  const changed = { ...base, [key]: inner };
  if (inner === undefined) delete changed[key];
  const left = Object.keys(changed);
  if (!left.length && at) return undefined;
  if (left.length === 1 && left[0] === shortForms[at]) return changed[left[0]];
  return changed;
}

/**
 * Fields of `after` that differ from `before`, as lines of --set.
 * @param {any} before
 * @param {any} after
 */
export function setLines(before, after) {
  return Object.entries(changes(before, after)).map(([path, value]) => `--set ${quoted(`${path}=${value === undefined ? "null" : flow(value)}`)}`);
}

/**
 * Fields of `after` that differ from `before`, with their values; undefined where they were taken out.
 * @param {any} before
 * @param {any} after
 * @returns {Record<string, any>}
 */
export function changes(before, after) {
  const [first, second] = [leaves(before), leaves(after)];
  const paths = [...new Set([...Object.keys(first), ...Object.keys(second)])];
  return Object.fromEntries(paths.filter((path) => JSON.stringify(first[path]) !== JSON.stringify(second[path])).map((path) => [path, second[path]]));
}

/** @param {any} block @param {string} [at] @returns {Record<string, any>} */
function leaves(block, at = "") {
  if (typeof block !== "object" || block === null || Array.isArray(block)) return at ? { [at]: block } : {};
  return Object.assign({}, ...Object.entries(block).map(([key, one]) => leaves(one, at ? `${at}.${key}` : key)));
}

/** @param {any} value */
const flow = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** @param {string} text */
const quoted = (text) => (/^[\w.=,:/+-]*$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
