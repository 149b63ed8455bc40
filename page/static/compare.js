// @ts-check
/** Up to four layouts side by side, with the difference by cause. */

import { ask } from "./api.js";
import { gigabytes, h, percent, seconds, table } from "./dom.js";
import { linked } from "./state.js";

export const MOST = 4;

/** Results by the document that they answer. @type {Map<string, any>} */
const known = new Map();

/** @param {any} document */
async function result(document) {
  const key = JSON.stringify(document);
  if (!known.has(key)) {
    await ask("predict", { document, schedule: false }, (message) => {
      if (message.event === "result") known.set(key, message.result);
    });
  }
  return known.get(key);
}

/**
 * @param {any} place
 * @param {{name: string, document: any}[]} pins
 * @param {(document: any) => void} open
 * @param {(index: number) => void} drop
 */
export async function compare(place, pins, open, drop) {
  if (!pins.length) {
    place.replaceChildren(h("p", {}, `Nothing is pinned. "Pin" beside a layout, or above, keeps up to ${MOST} of them here.`));
    return;
  }
  const found = await Promise.all(pins.map((one) => result(one.document).catch((error) => ({ error: error.message }))));
  const first = found[0];
  const cell = (/** @type {(one: any) => any} */ of) => found.map((one) => (one.error ? "–" : of(one)));
  const causes = [...new Set(found.flatMap((one) => (one.critical_path ?? []).map((/** @type {any} */ part) => part.name)))];
  const part = (/** @type {any} */ one, /** @type {string} */ name) => one.critical_path.find((/** @type {any} */ other) => other.name === name)?.seconds ?? 0;
  const against = (/** @type {any} */ one, /** @type {string} */ name) => {
    const s = part(one, name);
    if (one === first || first.error) return seconds(s);
    const change = s - part(first, name);
    return `${seconds(s)} (${change >= 0 ? "+" : "−"}${seconds(Math.abs(change))})`;
  };
  const rows = [
    ["step time", ...cell((one) => seconds(one.step_time_s))],
    ["against the first", ...cell((one) => (one === first || first.error ? "–" : `${one.step_time_s >= first.step_time_s ? "+" : "−"}${percent(Math.abs(one.step_time_s / first.step_time_s - 1))}`))],
    ["90 % interval", ...cell((one) => (one.step_time_interval_s ?? []).map(seconds).join(" to "))],
    ["MFU", ...cell((one) => percent(one.mfu))],
    ["tokens/s per GPU", ...cell((one) => Math.round(one.tokens_per_second_per_gpu).toLocaleString("en"))],
    ["GPUs", ...cell((one) => one.ranks.toLocaleString("en"))],
    ["peak memory", ...cell((one) => `${gigabytes(one.peak_memory_bytes)}${one.fits ? "" : ", does not fit"}`)],
    ["bubble", ...cell((one) => percent(one.bubble_fraction))],
    ...causes.map((name) => [name, ...cell((one) => against(one, name))]),
  ];
  const heads = pins.map((one, i) => h("div", {}, h("strong", {}, linked(one.name, one.document)), h("div", { class: "buttons" },
    h("button", { type: "button", onclick: () => open(one.document) }, "Open"),
    h("button", { type: "button", "aria-label": `Let ${one.name} go`, onclick: () => drop(i) }, "×"))));
  place.replaceChildren(
    h("p", { class: "note" }, "Rows below the figures are parts of the critical path, which add up to the step; in brackets the difference from the first."),
    table("Pinned layouts side by side", ["", ...heads], rows),
    ...found.map((one, i) => (one.error ? h("p", { class: "error" }, `${pins[i].name}: ${one.error}`) : null)).filter((one) => one !== null));
}
