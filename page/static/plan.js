// @ts-check
/** Planning: all legal layouts as points, the best ones, and why others lost. */

import { Latest } from "./api.js";
import { asTable } from "./answer.js";
import { chance, gigabytes, h, percent, say, seconds, svg, table, whole } from "./dom.js";
import { linked, set } from "./state.js";
import { logTicks, memoryTicks, ticks, timeTicks } from "./ticks.js";

const QUESTIONS = [["", "the best layouts"], ["gpus", "the fewest GPUs that do"], ["seq_length", "the longest sequence that fits"], ["micro_batch", "the largest microbatch that fits"]];
const OBJECTIVES = ["step-time", "tokens-per-dollar", "days", "goodput"];
const AXES = [["layout", "the usual ones"], ["all", "all that the framework has"]];
const PARALLEL = ["parallelism.tp", "parallelism.cp", "parallelism.pp", "parallelism.vpp", "parallelism.ep", "parallelism.zero", "training.micro_batch",
  "training.recompute"];

/** @typedef {{number: number, s: number, bytes: number, fits: number, set: Record<string, any>}} Point */

export class Plan {
  /**
   * @param {any} place
   * @param {() => any} document the scenario that is planned
   * @param {(document: any) => void} open show a layout
   * @param {(pin: any) => void} pin
   * @param {(problems: any[]) => void} blame show fields that are wrong
   */
  constructor(place, document, open, pin, blame) {
    this.blame = blame;
    this.document = document;
    this.open = open;
    this.pin = pin;
    this.latest = new Latest();
    /** @type {Point[]} */
    this.points = [];
    /** @type {Record<string, [number, number]>} */
    this.brushes = {};
    this.gpuBytes = 0;
    this.preview = false;
    this.caption = "";
    /** The fastest that fit, which stand on the axes. @type {Point[]} */
    this.fast = [];
    /** Where a layout stands on each axis, 0 to 1. @type {Record<string, (one: Point) => number>} */
    this.scales = {};
    /** What is written along each axis, and where, 0 to 1. @type {Record<string, import("./ticks.js").Tick[]>} */
    this.marks = {};
    /** @type {any} */
    this.found = null;
    this.question = h("select", { id: "plan-question" }, QUESTIONS.map(([value, text]) => h("option", { value }, text)));
    this.objective = h("select", { id: "plan-objective" }, OBJECTIVES.map((one) => h("option", {}, one)));
    this.axes = h("select", { id: "plan-axes" }, AXES.map(([value, text]) => h("option", { value }, text)));
    this.deadline = h("input", { id: "plan-deadline", type: "number", min: 0, step: "any", placeholder: "none" });
    this.keep = h("input", { id: "plan-keep", type: "text", placeholder: "e.g. parallelism.tp=8", spellcheck: "false" });
    this.vary = h("input", { id: "plan-vary", type: "text", placeholder: "e.g. cluster.gpus=64,128,256", spellcheck: "false" });
    this.start = h("button", { type: "submit", class: "main" }, "Find");
    this.stop = h("button", { type: "button", disabled: true, onclick: () => this.latest.stop() }, "Stop");
    this.told = h("p", { class: "note", role: "status" });
    this.error = h("p", { class: "error", role: "alert" });
    this.scatter = h("div", { class: "chart" });
    this.lines = h("div", { class: "chart" });
    this.best = h("div", {});
    const field = (/** @type {string} */ label, /** @type {any} */ input) => h("div", { class: "field" }, h("label", { for: input.id }, label), input);
    place.replaceChildren(
      h("form", { class: "row-form", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.run(); } },
        field("Find", this.question), field("Objective", this.objective), field("Axes", this.axes), field("Deadline, days", this.deadline), field("Keep", this.keep), field("Also try", this.vary),
        h("div", { class: "buttons" }, this.start, this.stop)),
      this.told, this.error,
      h("section", { "aria-labelledby": "h-best" }, h("h2", { id: "h-best" }, "The best layouts, and why others lost"), this.best),
      h("section", { "aria-labelledby": "h-scatter" }, h("h2", { id: "h-scatter" }, "Step time against memory"), this.scatter),
      h("section", { "aria-labelledby": "h-lines" }, h("h2", { id: "h-lines" }, "Layouts by their axes"),
        h("p", { class: "note" }, "Drag along an axis to keep a range; double-click, or Delete on the keyboard, lets it go."), this.lines),
    );
    this.told.textContent = "All legal layouts of this job are screened, and those that may be best are replayed.";
  }

  async run() {
    const asked = { document: this.document(), find: this.question.value || null, objective: this.objective.value, axes: this.axes.value, top: 5,
      deadline_s: this.deadline.value ? Number(this.deadline.value) * 86400 : null, ...this.wishes() };
    this.points = [];
    this.brushes = {};
    this.found = null;
    this.error.textContent = "";
    for (const place of [this.best, this.scatter, this.lines]) place.replaceChildren();
    this.start.disabled = true;
    this.stop.disabled = false;
    const began = performance.now();
    try {
      const whole = await this.latest.ask("plan", asked, (message) => this.heard(message));
      this.told.textContent = whole ? `${this.found?.certificate?.sentence ?? ""} (${seconds((performance.now() - began) / 1000)})` : "Stopped.";
    } catch (error) {
      this.error.textContent = /** @type {Error} */ (error).message;
      this.blame(/** @type {any} */ (error).problems ?? []);
    } finally {
      this.start.disabled = false;
      this.stop.disabled = true;
      say("");
    }
  }

  /** What is kept and what is tried besides, as typed. */
  wishes() {
    /** @type {Record<string, any>} */
    const fix = {};
    for (const line of this.keep.value.split(/\s+/).filter(Boolean)) {
      const [field, value] = line.split("=");
      fix[field] = plain(value ?? "");
    }
    /** @type {Record<string, any[]>} */
    const vary = {};
    for (const line of this.vary.value.split(/\s+/).filter(Boolean)) {
      const [field, values] = line.split("=");
      vary[field] = (values ?? "").split(",").map(plain);
    }
    return { fix, vary };
  }

  /** @param {any} message */
  heard(message) {
    if (message.event === "progress") this.told.textContent = message.text;
    if (message.event === "points") {
      if (this.preview && !message.preview) this.points = [];
      this.preview = Boolean(message.preview);
      this.gpuBytes = message.gpu_bytes;
      const names = Object.keys(message.axes);
      message.number.forEach((/** @type {number} */ number, /** @type {number} */ i) =>
        this.points.push({ number, s: message.bound_s[i], bytes: message.peak_bytes[i], fits: message.fits[i],
          set: { ...message.same, ...Object.fromEntries(names.map((name) => [name, message.axes[name][i]])) } }));
      this.draw(message.preview ? `${whole(message.shown)} layouts near your own; all others are being screened` : `${whole(message.legal)} legal layouts, ${whole(message.shown)} drawn by their least step time`);
    }
    if (message.event === "found") this.tellFound(message.found);
    if (message.event === "plan") {
      this.found = message.plan;
      this.draw();
      this.tables();
    }
  }

  /** The scenario with the fields of a layout. @param {Record<string, any>} fields */
  laidOut(fields) {
    return Object.entries(fields).reduce((document, [path, value]) => set(document, path, value), this.document());
  }

  /** One number in place of a plan. @param {any} found */
  tellFound(found) {
    const act = (/** @type {any} */ one) => h("button", { type: "button", onclick: () => this.open(set(this.laidOut(one.set), found.field, one.value)) }, "Open");
    const best = found.tried.find((/** @type {any} */ one) => one.value === found.value);
    this.best.replaceChildren(
      h("p", { class: "big" }, found.value === null ? `No ${found.field} will do.` : `${found.field}: ${whole(found.value)}${best ? `, as ${short(best.set)}` : ""}`),
      table("What was tried", [found.field, "will do", "layouts that fit", "of", "the smallest takes", "layout", ""], found.tried.map((/** @type {any} */ one) =>
        [whole(one.value), one.good ? "yes" : "no", whole(one.fit), whole(one.legal), gigabytes(one.peak_memory_bytes),
          one.legal ? linked(short(one.set), set(this.laidOut(one.set), found.field, one.value)) : "", one.legal ? act(one) : ""])));
  }

  tables() {
    const { choices, lost, nearest } = this.found;
    const act = (/** @type {any} */ one) => h("div", { class: "buttons" },
      h("button", { type: "button", onclick: () => this.open(this.laidOut(one.set)) }, "Open"),
      h("button", { type: "button", onclick: () => this.pin({ name: short(one.set), document: this.laidOut(one.set) }) }, "Pin"));
    const first = choices[0];
    const rows = choices.map((/** @type {any} */ one, /** @type {number} */ i) => [h("span", {}, `${i + 1}. `, linked(short(one.set), this.laidOut(one.set))), seconds(one.step_time_s),
      i ? `+${percent(one.step_time_s / first.step_time_s - 1)}` : "best", percent(one.mfu), gigabytes(one.peak_memory_bytes), chance(one.fit_probability),
      percent(one.probability_best), one.days === null ? "–" : one.days.toFixed(1), act(one)]);
    const losers = lost.map((/** @type {any} */ one) => [one.name, Object.keys(one.set).length ? linked(short(one.set), this.laidOut(one.set)) : "", one.factor === null ? "–" : one.at_least ? `at least × ${(Math.floor(100 * one.factor) / 100).toFixed(2)}` : `× ${one.factor.toFixed(2)}`, one.why,
      Object.keys(one.set).length ? act(one) : ""]);
    this.best.replaceChildren(
      choices.length ? table("The best layouts", ["layout", "step time", "slower by", "MFU", "memory", "fits", "is best", "days", ""], rows)
        : h("p", {}, "No layout fits and meets what is asked. ", nearest ? h("span", {}, `The nearest takes at least ${nearest.factor.toFixed(2)} times what the limits allow: `,
          linked(short(nearest.set), this.laidOut(nearest.set)), ".") : null),
      ...(losers.length ? [h("h3", {}, "Why others lost"), table("Why others lost", ["what", "layout", "time", "why", ""], losers)] : []));
  }

  /** Points whose every brushed axis is in its range. */
  kept() {
    return this.points.filter((one) => Object.entries(this.brushes).every(([axis, [low, high]]) => {
      const at = this.scales[axis]?.(one);
      return at === undefined || (at >= low && at <= high);
    }));
  }

  /** @param {string} [text] */
  draw(text) {
    if (text) this.caption = text;
    if (!this.points.length) return;
    this.prepare();
    this.drawScatter();
    this.drawLines();
  }

  /** Where a layout stands on each axis, 0 to 1. */
  prepare() {
    this.scales = {};
    this.marks = {};
    const axes = PARALLEL.filter((axis) => this.points.some((one) => axis in one.set && one.set[axis] !== this.points[0].set[axis]));
    for (const axis of axes) {
      const values = [...new Set(this.points.map((one) => one.set[axis]))].sort((a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b))));
      this.marks[axis] = values.map((one, i) => ({ at: values.length < 2 ? 0.5 : i / (values.length - 1), text: String(one) }));
      this.scales[axis] = (one) => (values.length < 2 ? 0.5 : values.indexOf(one.set[axis]) / (values.length - 1));
    }
    this.fast = this.points.filter((one) => one.fits >= 0.5).sort((a, b) => a.s - b.s).slice(0, 600);
    const times = (this.fast.length ? this.fast : this.points).map((one) => Math.log(one.s));
    const [low, high] = [Math.min(...times), Math.max(...times)];
    const place = (/** @type {number} */ s) => (Math.log(s) - low) / Math.max(high - low, 1e-9);
    this.scales["step time"] = (one) => place(one.s);
    this.marks["step time"] = timeTicks(logTicks(Math.exp(low), Math.exp(high), 8)).map(({ at, text }) => ({ at: place(at), text }));
  }

  drawScatter() {
    if (!this.points.length) return this.scatter.replaceChildren();
    const [W, H, L, B] = [760, 360, 64, 44];
    const kept = new Set(this.kept());
    const xs = this.points.map((one) => one.s);
    const [x0, x1] = [Math.min(...xs) * 0.97, Math.min(Math.max(...xs), Math.min(...xs) * 12) * 1.03];
    const top = Math.min(Math.max(...this.points.map((one) => one.bytes)), this.gpuBytes * 1.25) * 1.04;
    const x = (/** @type {number} */ s) => L + (Math.log(s / x0) / Math.log(x1 / x0)) * (W - L - 12);
    const y = (/** @type {number} */ bytes) => H - B - (bytes / top) * (H - B - 14);
    const marks = this.found ? this.found.choices.map((/** @type {any} */ one, /** @type {number} */ i) => svg("g", { class: "choice" },
      svg("circle", { cx: x(one.step_time_s), cy: y(one.peak_memory_bytes), r: i ? 4 : 6 }),
      i ? null : svg("text", { x: x(one.step_time_s) - 9, y: y(one.peak_memory_bytes) + 4, "text-anchor": "end" }, "best"))) : [];
    const front = (this.found?.front ?? []).slice().sort((/** @type {any} */ a, /** @type {any} */ b) => a.step_time_s - b.step_time_s);
    const [times, sizes] = [timeTicks(logTicks(x0, x1, 9)), memoryTicks(ticks(0, top, 6))];
    const dots = svg("g", { onclick: (/** @type {any} */ event) => {
      const one = this.points[event.target.dataset.i];
      if (one) this.open(this.laidOut(one.set));
    } }, this.points.map((one, i) => one.s > x1 || one.bytes > top || !kept.has(one) ? null
      : svg("circle", { class: one.fits >= 0.9 ? "fit" : one.fits > 0.05 ? "maybe" : "large", cx: x(one.s).toFixed(1), cy: y(one.bytes).toFixed(1), r: 2.4, "data-i": i },
        svg("title", {}, `${short(one.set)}\nat least ${seconds(one.s)}, ${gigabytes(one.bytes)}, fits ${percent(one.fits)}`))));
    this.scatter.replaceChildren(
      svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Scatter: ${this.caption}` },
        svg("line", { class: "axis", x1: L, x2: W, y1: H - B, y2: H - B }), svg("line", { class: "axis", x1: L, x2: L, y1: 8, y2: H - B }),
        times.map(({ at, text }) => [svg("line", { class: "axis", x1: x(at), x2: x(at), y1: H - B, y2: H - B + 4 }), svg("text", { class: "tick-x", x: x(at), y: H - B + 18, "text-anchor": "middle" }, text)]).flat(),
        sizes.map(({ at, text }) => [svg("line", { class: "axis", x1: L - 4, x2: L, y1: y(at), y2: y(at) }), svg("text", { class: "tick-y", x: L - 8, y: y(at) + 4, "text-anchor": "end" }, text)]).flat(),
        svg("line", { class: "limit", x1: L, x2: W, y1: y(this.gpuBytes), y2: y(this.gpuBytes) }),
        svg("text", { x: W, y: H - 6, "text-anchor": "end" }, "step time (points: the least it can be)"),
        svg("text", { x: W - 4, y: y(this.gpuBytes) - 6, "text-anchor": "end" }, `memory of a GPU: ${gigabytes(this.gpuBytes)}`),
        dots,
        front.length > 1 ? svg("path", { class: "front", d: front.map((/** @type {any} */ one, /** @type {number} */ i) => `${i ? "L" : "M"}${x(one.step_time_s).toFixed(1)} ${y(one.peak_memory_bytes).toFixed(1)}`).join("") }) : null,
        marks),
      h("ul", { class: "legend" }, h("li", {}, h("span", { class: "key fit" }), "fits"), h("li", {}, h("span", { class: "key maybe" }), "may fit"),
        h("li", {}, h("span", { class: "key large" }), "too large"), h("li", {}, h("span", { class: "key line-front" }), "front, replayed")),
      h("p", { class: "note" }, `${this.caption}; ${whole(kept.size)} kept. Click a point to open it.`),
      asTable("The fastest points that fit", ["layout", "least time", "memory", "fits", ""],
        [...kept].filter((one) => one.fits >= 0.5).sort((a, b) => a.s - b.s).slice(0, 40).map((one) => [linked(short(one.set), this.laidOut(one.set)), seconds(one.s), gigabytes(one.bytes), percent(one.fits),
          h("button", { type: "button", onclick: () => this.open(this.laidOut(one.set)) }, "Open")])));
  }

  drawLines() {
    const axes = Object.keys(this.scales);
    if (this.points.length < 2) return this.lines.replaceChildren();
    const [W, H, T, B] = [Math.max(axes.length * 110, 500), 260, 28, 16];
    const x = (/** @type {number} */ i) => 50 + (i * (W - 100)) / Math.max(axes.length - 1, 1);
    const y = (/** @type {number} */ at) => H - B - at * (H - B - T);
    const kept = new Set(this.kept());
    const path = (/** @type {Point} */ one) => axes.map((axis, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(this.scales[axis](one)).toFixed(1)}`).join("");
    const chart = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "group", "aria-label": "Parallel coordinates of the fastest 600 layouts that fit" },
      this.fast.map((one) => svg("path", { class: kept.has(one) ? "line" : "line out", d: path(one) })),
      axes.map((axis, i) => this.axis(axis, x(i), y, axes)));
    this.lines.replaceChildren(chart);
  }

  /** @param {string} axis @param {number} x @param {(at: number) => number} y @param {string[]} axes */
  axis(axis, x, y, axes) {
    const brush = this.brushes[axis];
    const marks = this.marks[axis];
    const every = Math.ceil(marks.length / 9);
    const release = () => {
      delete this.brushes[axis];
      this.draw();
    };
    const at = (/** @type {any} */ event) => {
      const chart = event.currentTarget.ownerSVGElement;
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
      return Math.min(Math.max((y(0) - point.y) / (y(0) - y(1)), 0), 1);
    };
    let began = /** @type {number | null} */ (null);
    const hit = svg("rect", { class: "hit", x: x - 16, y: y(1) - 4, width: 32, height: y(0) - y(1) + 8, tabindex: 0, role: "slider",
      "aria-label": `${axis}: range that is kept`, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": brush ? Math.round(brush[1] * 100) : 100,
      "aria-valuetext": brush ? `${Math.round(brush[0] * 100)} to ${Math.round(brush[1] * 100)} %` : "all",
      onpointerdown: (/** @type {any} */ event) => { began = at(event); event.currentTarget.setPointerCapture(event.pointerId); },
      onpointerup: (/** @type {any} */ event) => {
        if (began === null) return;
        const ended = at(event);
        if (Math.abs(ended - began) > 0.01) {
          this.brushes[axis] = [Math.min(began, ended) - 1e-6, Math.max(began, ended) + 1e-6];
          this.draw();
        }
        began = null;
      },
      ondblclick: release,
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        const [low, high] = brush ?? [0, 1];
        const step = 1 / Math.max(marks.length - 1, 8);
        const moved = /** @type {Record<string, [number, number]>} */ ({ ArrowUp: [low, Math.min(high + step, 1)], ArrowDown: [low, Math.max(high - step, low)],
          PageUp: [Math.min(low + step, high), high], PageDown: [Math.max(low - step, 0), high] })[event.key];
        if (event.key === "Delete" || event.key === "Escape") release();
        else if (moved) this.brushes[axis] = moved;
        else return;
        event.preventDefault();
        this.draw();
        this.lines.querySelectorAll(".hit")[axes.indexOf(axis)]?.focus();
      } });
    return svg("g", { class: "coordinate" },
      svg("line", { class: "axis", x1: x, x2: x, y1: y(0), y2: y(1) }),
      svg("text", { x, y: 14, "text-anchor": "middle" }, axis.replace("parallelism.", "").replace("training.", "")),
      marks.map(({ at: height, text }, i) => (i % every ? null : svg("text", { class: "mark", x: x + 6, y: y(height) + 4 }, text.length > 12 ? `${text.slice(0, 11)}…` : text))),
      brush ? svg("rect", { class: "brush", x: x - 8, width: 16, y: y(brush[1]), height: Math.max(y(brush[0]) - y(brush[1]), 2) }) : null,
      hit);
  }
}

/** Fields that have words of their own below, or that say nothing of a layout by themselves. */
const KNOWN = /^(parallelism\.|schedule$|training\.(micro_batch|recompute)$|cluster\.gpus$)/;

/** A layout in a few words. @param {Record<string, any>} fields */
export function short(fields) {
  const of = (/** @type {string} */ path) => fields[path];
  const words = ["tp", "cp", "pp", "ep", "vpp"].filter((one) => of(`parallelism.${one}`) > 1).map((one) => `${one}${of(`parallelism.${one}`)}`);
  if (of("parallelism.sequence_parallel")) words.push("sp");
  if (of("parallelism.zero")) words.push(`zero${of("parallelism.zero")}`);
  if (of("training.micro_batch")) words.push(`mbs${of("training.micro_batch")}`);
  if (of("schedule") && of("schedule") !== "none") words.push(of("schedule"));
  const recompute = of("training.recompute");
  const others = Object.keys(fields).filter((path) => !KNOWN.test(path) && fields[path] !== undefined);
  if (recompute && recompute !== "none") words.push(`recompute ${typeof recompute === "object" ? recompute.kind : recompute}`);
  if (of("cluster.gpus")) words.push(`${of("cluster.gpus")} GPUs`);
  for (const path of others) words.push(`${path.split(".").pop()} ${typeof of(path) === "object" ? "…" : of(path)}`);
  return words.join(" ") || "data parallel";
}

/** @param {string} text */
const plain = (text) => (text === "true" ? true : text === "false" ? false : text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text);
