// @ts-check
/** The choice: the fields of a scenario, with the language's own help, and its errors beside them. */

import { get } from "./state.js";
import { h } from "./dom.js";

/** Fields that everybody sets; all others are behind "more". */
const CORE = {
  Job: ["model", "cluster.gpu", "cluster.gpus", "cluster.interconnect", "training.seq_length", "training.global_batch",
    "training.micro_batch", "training.precision", "software", "training.tokens"],
  Layout: ["parallelism.tp", "parallelism.pp", "parallelism.vpp", "parallelism.cp", "parallelism.ep", "parallelism.zero",
    "parallelism.sequence_parallel", "schedule", "training.recompute"],
};
const WORDS = {
  model: "Model", "cluster.gpu": "GPU", "cluster.gpus": "GPUs", "cluster.interconnect": "Network",
  "training.seq_length": "Sequence", "training.global_batch": "Global batch", "training.micro_batch": "Microbatch",
  "training.precision": "Precision", software: "Software", "parallelism.tp": "Tensor (tp)", "parallelism.pp": "Pipeline (pp)",
  "parallelism.vpp": "Chunks (vpp)", "parallelism.cp": "Context (cp)", "parallelism.ep": "Experts (ep)",
  "parallelism.zero": "ZeRO", "parallelism.sequence_parallel": "Sequence parallel", schedule: "Schedule",
  "training.recompute": "Recompute", "training.tokens": "Token budget",
};

/** @typedef {{path: string, block: string, name: string, kind: string, help: string, choices?: any[], example?: any,
 *   default?: any, min?: number, max?: number}} Field */

export class Form {
  /**
   * @param {any} place where it stands
   * @param {any} catalogue
   * @param {(path: string, value: any) => void} changed
   * @param {(document: any) => void} replaced
   */
  constructor(place, catalogue, changed, replaced) {
    this.catalogue = catalogue;
    this.changed = changed;
    this.document = {};
    /** @type {Map<string, {input: any, error: any, field: Field}>} */
    this.shown = new Map();
    /** @type {Map<string, Field>} */
    this.fields = new Map(catalogue.fields.map((/** @type {Field} */ one) => [one.path, one]));
    this.alert = h("div", { class: "alert", role: "alert", id: "form-alert" });
    const shipped = h(
      "select",
      { id: "shipped", onchange: (/** @type {any} */ event) => this.ship(event.target, replaced) },
      h("option", { value: "" }, "Start from a published run…"),
      catalogue.scenarios.map((/** @type {any} */ one) => h("option", { value: one.name }, one.title)),
    );
    place.replaceChildren(
      h("div", { class: "field wide" }, h("label", { for: "shipped" }, "Start"), shipped),
      this.alert,
      ...Object.entries(CORE).map(([title, paths]) => this.group(title, paths)),
      this.more(),
    );
  }

  /** @param {any} select @param {(document: any) => void} replaced */
  ship(select, replaced) {
    const found = this.catalogue.scenarios.find((/** @type {any} */ one) => one.name === select.value);
    select.value = "";
    if (found) replaced(structuredClone(found.document));
  }

  /** @param {string} title @param {string[]} paths */
  group(title, paths) {
    return h("fieldset", {}, h("legend", {}, title), paths.map((path) => this.row(path)));
  }

  /** Every other field, by block; built when it is opened. */
  more() {
    const filter = h("input", { type: "search", id: "more-filter", placeholder: "a field's name or what it means" });
    const list = h("div", { class: "more-list" });
    const show = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const details of list.querySelectorAll("details")) {
        let any = false;
        for (const row of details.querySelectorAll(".field")) {
          const fits = words.every((/** @type {string} */ word) => row.dataset.words.includes(word));
          row.hidden = !fits;
          any ||= fits;
        }
        details.hidden = !any;
        if (words.length) details.open = any;
      }
    };
    filter.addEventListener("input", show);
    const build = () => {
      if (list.childElementCount) return;
      const core = new Set(Object.values(CORE).flat());
      /** @type {Map<string, string[]>} */
      const blocks = new Map();
      for (const field of this.catalogue.fields) {
        if (core.has(field.path)) continue;
        const block = field.block || "scenario";
        blocks.set(block, [...(blocks.get(block) ?? []), field.path]);
      }
      /** @type {Map<string, any>} */
      const roots = new Map();
      for (const [block, paths] of blocks) {
        const [root] = block.split(".");
        const details = h("details", {}, h("summary", {}, block === root ? block : block.slice(root.length + 1)), paths.map((path) => this.row(path)));
        if (roots.has(root)) roots.get(root).append(details);
        else if (block === root) {
          roots.set(root, details);
          list.append(details);
        } else {
          roots.set(root, h("details", {}, h("summary", {}, root), details));
          list.append(roots.get(root));
        }
      }
      this.show(this.document);
    };
    const whole = h("details", { class: "more", ontoggle: build }, h("summary", {}, "More: every field"),
      h("div", { class: "field wide" }, h("label", { for: "more-filter" }, "Find"), filter), list);
    return whole;
  }

  /** @param {string} path */
  row(path) {
    const field = this.fields.get(path) ?? { path, block: "", name: path, kind: "text", help: "" };
    const id = `f-${path.replaceAll(".", "-")}`;
    const input = this.input(field, id);
    const error = h("p", { class: "error", id: `${id}-error` });
    const help = h("p", { class: "help", id: `${id}-help` }, helpText(field));
    input.setAttribute("aria-describedby", `${id}-help ${id}-error`);
    input.addEventListener("change", () => this.changed(path, read(field, input)));
    this.shown.set(path, { input, error, field });
    const label = /** @type {Record<string, string>} */ (WORDS)[path] ?? field.name;
    const row = h("div", { class: "field" }, h("label", { for: id, title: path }, label), input, help, error);
    row.dataset.words = `${path} ${field.help}`.toLowerCase();
    return row;
  }

  /** @param {Field} field @param {string} id */
  input(field, id) {
    const names = this.names(field.path);
    const known = names ?? field.choices?.map((one) => [String(one), String(one)]);
    if (known) {
      const none = field.default === undefined ? "–" : `default: ${field.default}`;
      return h("select", { id }, h("option", { value: "" }, none), known.map(([value, text]) => h("option", { value }, text)));
    }
    if (field.kind === "boolean") {
      const none = field.default === undefined ? "–" : `default: ${field.default ? "yes" : "no"}`;
      return h("select", { id }, h("option", { value: "" }, none), h("option", { value: "true" }, "yes"),
        h("option", { value: "false" }, "no"));
    }
    const hint = field.default ?? field.example;
    const placeholder = hint === undefined ? "" : typeof hint === "object" ? JSON.stringify(hint) : String(hint);
    if (field.kind === "integer" || field.kind === "number") {
      const step = field.kind === "integer" ? 1 : "any";
      return h("input", { id, type: "number", step, min: field.min, max: field.max, placeholder });
    }
    return h("input", { id, type: "text", placeholder, spellcheck: "false", autocomplete: "off" });
  }

  /** The names of a catalogue that a field takes, with what is shown of each. @param {string} path @returns {[string, string][] | null} */
  names(path) {
    const from = this.catalogue;
    switch (path) {
      case "model":
        return from.models.map((/** @type {any} */ one) => [one.name, `${one.name} · ${one.layers} layers`]);
      case "cluster.gpu":
        return from.gpus.map((/** @type {any} */ one) => [one.name,
          `${one.name} · ${Math.round(one.memory_bytes / 1e9)} GB${one.announced ? " · announced" : one.measured ? "" : " · not measured"}`]);
      case "cluster.interconnect":
        return from.interconnects.map((/** @type {string} */ one) => [one, one]);
      case "software":
        return from.software.map((/** @type {any} */ one) => [one.name, `${one.name} · ${one.title}`]);
      case "training.optimizer":
        return from.optimizers.map((/** @type {string} */ one) => [one, one]);
      default:
        return null;
    }
  }

  /** Show what a document says. @param {any} document */
  show(document) {
    this.document = document;
    for (const [path, { input, field }] of this.shown) {
      const value = get(document, path);
      if (globalThis.document.activeElement === input && read(field, input) === value) continue;
      write(input, value);
    }
  }

  /** Errors beside their fields; what has no field here above them. @param {{path: string, message: string}[]} problems @param {string} [message] */
  blame(problems, message = "") {
    for (const { input, error } of this.shown.values()) {
      error.textContent = "";
      input.removeAttribute("aria-invalid");
    }
    const left = [];
    for (const one of problems) {
      const found = this.shown.get(this.nearest(one.path));
      if (!found || !found.input.checkVisibility()) left.push(`${one.path}: ${one.message}`);
      if (!found) continue;
      found.error.textContent = one.message;
      found.input.setAttribute("aria-invalid", "true");
    }
    if (!problems.length && message) left.push(message);
    this.alert.replaceChildren(...left.map((text) => h("p", {}, text)));
  }

  /** @param {string} path the field that is shown for it: itself, or a block above or below it */
  nearest(path) {
    for (let at = path; at; at = at.slice(0, Math.max(at.lastIndexOf("."), 0))) if (this.shown.has(at)) return at;
    return [...this.shown.keys()].find((one) => one.startsWith(`${path}.`)) ?? path;
  }
}

/** @param {Field} field */
function helpText(field) {
  const range = field.max !== undefined && field.max < 1e5 ? ` (${field.min ?? ""} to ${field.max})` : "";
  return `${field.help}${range}`;
}

/** @param {Field} field @param {any} input */
function read(field, input) {
  const text = input.value.trim();
  if (text === "") return undefined;
  if (field.kind === "boolean") return text === "true";
  if (field.kind === "integer" || field.kind === "number") return Number(text);
  const choice = field.choices?.find((one) => String(one) === text);
  if (choice !== undefined) return choice;
  if (field.kind !== "json" && !/^[[{"]/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** @param {any} input @param {any} value */
function write(input, value) {
  const text = value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  if (input.tagName === "SELECT" && text && ![...input.options].some((one) => one.value === text))
    input.append(h("option", { value: text }, text.length > 40 ? "your own" : text));
  input.value = text;
}
