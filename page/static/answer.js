// @ts-check
/** The answer of one step: figures, memory, where the time goes, what it rests on. */

import { chance, digits, gigabytes, h, percent, seconds, table, whole } from "./dom.js";

/** @param {any} result @param {any} layout */
export function figures(result, layout) {
  const [low, high] = result.step_time_interval_s ?? [null, null];
  const mfu = result.headline_mfu === "mfu_causal" ? result.mfu_causal : result.mfu;
  const axes = Object.entries(layout.parallelism).filter(([, n]) => n > 1).map(([axis, n]) => `${axis} ${n}`).join(" · ");
  const cost = result.cost;
  const cards = [
    card("Step time", seconds(result.step_time_s), low === null ? "" : `90 % interval ${seconds(low)} to ${seconds(high)}`, interval(result)),
    card("MFU", percent(mfu), result.headline_mfu === "mfu_causal" ? "half of the attention scores" : "full attention scores"),
    card("Throughput", `${digits(result.tokens_per_second_per_gpu ?? 0)}`, "tokens/s per GPU"),
    card("Peak memory", gigabytes(result.peak_memory_bytes), fit(result), null, result.fits ? "" : "bad"),
    card("Bubble", percent(result.bubble_fraction), "idle over busy time"),
  ];
  if (result.training) cards.push(card("Whole run", seconds(result.training.days * 86400), `for ${(result.training.tokens / 1e12).toFixed(2)} T tokens`));
  if (cost) cards.push(card("Cost", `${digits(cost.per_step)} ${cost.currency}`, `a step; ${digits(cost.per_trillion_tokens)} a trillion tokens`));
  return h("div", {},
    h("div", { class: "cards" }, cards),
    h("p", { class: "layout" }, `${whole(layout.gpus)} GPUs: ${axes || "one GPU a replica"} · ${layout.schedule}, ${whole(layout.microbatches)} microbatches`));
}

/** @param {string} title @param {string} value @param {string} [note] @param {any} [more] @param {string} [kind] */
const card = (title, value, note = "", more = null, kind = "") =>
  h("div", { class: `card ${kind}` }, h("h2", {}, title), h("p", { class: "value" }, value), h("p", { class: "note" }, note), more);

/** @param {any} result */
function fit(result) {
  const capacity = result.memory[0]?.capacity_bytes;
  const sure = result.fit_probability === null ? "" : ` with a probability of ${chance(result.fit_probability)}`;
  return `of ${gigabytes(capacity)}: ${result.fits ? `fits${sure}` : "does not fit"}`;
}

/** The interval as a bar with the prediction in it. @param {any} result */
function interval(result) {
  const span = result.step_time_interval_s;
  if (!span) return null;
  const width = span[1] - span[0];
  const from = span[0] - 0.2 * width;
  const at = (/** @type {number} */ s) => `${(100 * (s - from)) / (1.4 * width)}%`;
  return h("div", { class: "interval", "aria-hidden": "true" },
    h("span", { class: "range", style: { left: at(span[0]), width: `${100 / 1.4}%` } }),
    h("span", { class: "dot", style: { left: at(result.step_time_s) } }));
}

const TERMS = ["weights", "gradients", "optimizer", "activations", "logits", "gathered", "workspace", "communication", "context",
  "outputs", "flat buffers", "allocator", "in flight"];

/** A bar for each stage against what a GPU has. @param {any} result */
export function memory(result) {
  if (!result.memory.length) return h("p", {}, "No memory bill.");
  const capacity = result.memory[0].capacity_bytes;
  const most = Math.max(capacity * 1.05, ...result.memory.map((/** @type {any} */ one) => one.peak_bytes));
  const used = TERMS.filter((name) => result.memory.some((/** @type {any} */ one) => (one.terms[name] ?? 0) > most / 500));
  const bars = result.memory.map((/** @type {any} */ one) =>
    h("div", { class: "bar-row" },
      h("span", { class: "bar-name" }, `stage ${one.pp}`),
      h("div", { class: "bar", title: TERMS.map((name) => `${name} ${gigabytes(one.terms[name])}`).join("\n") },
        TERMS.map((name, i) => h("span", { class: `term t${i}`, style: { width: `${(100 * (one.terms[name] ?? 0)) / most}%` } })),
        h("span", { class: "capacity", style: { left: `${(100 * capacity) / most}%` } })),
      h("span", { class: `bar-value ${one.fits ? "" : "bad"}` }, gigabytes(one.peak_bytes))));
  const legend = h("ul", { class: "legend" }, used.map((name) => h("li", {}, h("span", { class: `key t${TERMS.indexOf(name)}` }), name)),
    h("li", {}, h("span", { class: "key line" }), `a GPU has ${gigabytes(capacity)}`));
  const rows = result.memory.map((/** @type {any} */ one) => [`stage ${one.pp}`, ...used.map((name) => gigabytes(one.terms[name])), gigabytes(one.peak_bytes), one.fits ? "yes" : "no"]);
  return h("div", {}, legend, h("div", { class: "bars" }, bars), asTable("Memory by stage", ["stage", ...used, "peak", "fits"], rows));
}

/** @param {string} title @param {any[]} head @param {any[][]} rows */
export const asTable = (title, head, rows) =>
  h("details", { class: "as-table" }, h("summary", {}, "As a table"), table(title, head, rows));

const COLOURS = { GEMM: "F", attention: "W", "memory-bound kernels": "B" };

/** Bars of seconds, each a share of the step. @param {any} result */
export function time(result) {
  const rows = result.critical_path.filter((/** @type {any} */ one) => one.seconds > result.step_time_s * 1e-5);
  const longest = Math.max(...rows.map((/** @type {any} */ one) => one.seconds));
  const bars = rows.map((/** @type {any} */ one) => bar(one.name, one.seconds / longest, `${seconds(one.seconds)}`, percent(one.seconds / result.step_time_s),
    /** @type {Record<string, string>} */ (COLOURS)[one.name] ?? one.name));
  const exposed = Object.entries(result.exposed_communication_s).filter(([, s]) => s > 0);
  return h("div", {},
    h("div", { class: "bars", role: "table", "aria-label": "Where the time goes, along the critical path" }, bars),
    exposed.length ? h("p", { class: "note" }, `Exposed communication, mean of ranks: ${exposed.map(([axis, s]) => `${axis.toUpperCase()} ${seconds(s)}`).join(", ")}`) : null);
}

/** @param {string} name @param {number} share @param {string} value @param {string} note @param {string} colour */
export const bar = (name, share, value, note, colour) =>
  h("div", { class: "bar-row", role: "row" },
    h("span", { class: "bar-name", role: "rowheader" }, name),
    h("div", { class: "bar", role: "cell" }, h("span", { class: `term c-${colour}`, style: { width: `${100 * share}%` } })),
    h("span", { class: "bar-value", role: "cell" }, `${value} · ${note}`));

/** @param {any} result */
export function rests(result) {
  const parts = result.interval?.parts ?? [];
  const notes = result.assumptions.map((/** @type {any} */ one) =>
    h("li", { class: one.in_range === false ? "warn" : "" }, one.text, h("small", {}, one.source)));
  const largest = [...parts].sort((a, b) => b.share * b.sigma - a.share * a.sigma).slice(0, 3);
  return h("div", {},
    largest.length ? h("p", {}, `What the interval is made of, most of all: ${largest.map((one) => `${one.name} (±${percent(one.share * one.sigma)})`).join(", ")}.`) : null,
    h("details", {}, h("summary", {}, `${notes.length} assumptions with their sources`), h("ul", { class: "rests" }, notes)),
    parts.length ? h("details", {}, h("summary", {}, "The interval, part by part"),
      table("The interval by part", ["part", "share of the step", "sigma", "source"],
        parts.map((/** @type {any} */ one) => [one.name, percent(one.share), percent(one.sigma), one.source]))) : null);
}
