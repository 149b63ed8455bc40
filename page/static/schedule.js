// @ts-check
/** The schedule as a picture that can be zoomed: a row for each class of ranks, a box for each action. */

import { asTable } from "./answer.js";
import { h, seconds } from "./dom.js";
import { ticks, timeTicks } from "./ticks.js";

const ROW = 26;
const GAP = 6;
const AXIS = 24;
const MOST_LANES = 96;
const KINDS = /** @type {Record<string, string>} */ ({ F: "forward", B: "backward", I: "backward, input", W: "backward, weights" });

/** Kernels of streams in the colours of the bars above. */
const COLOURS = /** @type {Record<string, string>} */ ({ gemm: "F", attention: "W", "memory-bound": "B", fixed: "host" });

/** @param {{row: any, box: any}} found */
const what = ({ row, box }) =>
  row.thin ? `${box[2]} (${box[0]})` : `${KINDS[box[0]] ?? box[0]} of microbatch ${box[2]}${row.chunks > 1 ? `, chunk ${box[1]}` : ""}`;

export class Schedule {
  /** @param {any} place @param {(from: number, to: number) => Promise<any>} streams what runs on each stream in a window */
  constructor(place, streams) {
    this.streams = streams;
    /** Rows of streams, by the class of ranks. @type {Map<string, any[]>} */
    this.below = new Map();
    this.timer = 0;
    this.shows = h("input", { type: "checkbox", id: "show-streams", onchange: () => this.askStreams(0) });
    this.canvas = h("canvas", {
      tabindex: 0, role: "img", "aria-label": "Schedule of the step; arrow keys move, plus and minus zoom",
      onwheel: (/** @type {WheelEvent} */ event) => this.wheel(event),
      onpointerdown: (/** @type {PointerEvent} */ event) => this.grab(event),
      onpointermove: (/** @type {PointerEvent} */ event) => this.move(event),
      onpointerup: () => (this.grabbed = null),
      onpointerleave: () => this.tell(null),
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
    });
    this.tip = h("p", { class: "tip", "aria-live": "off" });
    this.note = h("p", { class: "note" });
    this.list = h("div", {});
    const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ onclick) =>
      h("button", { type: "button", "aria-label": label, title: label, onclick }, text);
    const buttons = h("div", { class: "buttons" },
      button("+", "Zoom in", () => this.zoom(0.5)), button("−", "Zoom out", () => this.zoom(2)),
      button("⟷", "The whole step", () => this.window(0, this.end)),
      h("label", { class: "check" }, this.shows, "Streams of the enlarged part"), this.tip);
    const legend = h("ul", { class: "legend" }, ["F", "B", "W"].map((kind) => h("li", {}, h("span", { class: `key c-${kind}` }), KINDS[kind])),
      h("li", {}, h("span", { class: "key idle" }), "idle"), h("li", {}, "paler: a later chunk"));
    place.replaceChildren(buttons, legend, h("div", { class: "canvas-box" }, this.canvas), this.note, this.list);
    /** @type {any[]} */
    this.rows = [];
    this.end = 1;
    this.from = 0;
    this.to = 1;
    /** @type {{x: number, from: number} | null} */
    this.grabbed = null;
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** @param {any} schedule */
  show(schedule) {
    const same = Math.abs(this.end - schedule.makespan_s) < 1e-12;
    this.rows = schedule.rows;
    this.end = schedule.makespan_s;
    if (!same) [this.from, this.to] = [0, this.end];
    this.below = new Map();
    this.askStreams(0);
    this.note.textContent = schedule.until_s === null ? "" : `Boxes are shown for the first ${seconds(schedule.until_s)}.`;
    this.draw();
    this.tabulate();
  }

  /** @param {number} from @param {number} to */
  window(from, to) {
    const width = Math.min(Math.max(to - from, this.end * 1e-4), this.end);
    this.from = Math.min(Math.max(from, 0), this.end - width);
    this.to = this.from + width;
    this.askStreams(300);
    this.draw();
    this.tabulate();
  }

  /** The streams of the window, once it has stood still for a while. @param {number} wait milliseconds */
  askStreams(wait) {
    clearTimeout(this.timer);
    if (!this.shows.checked) {
      this.below = new Map();
      return this.draw();
    }
    this.timer = setTimeout(async () => {
      const found = await this.streams(this.from, this.to);
      if (!found) return;
      this.below = new Map();
      for (const row of found.rows) this.below.set(row.class, [...(this.below.get(row.class) ?? []), { ...row, thin: true }]);
      if (!found.whole) this.note.textContent = "Only the first streams are shown: zoom in for all of them.";
      this.draw();
    }, wait);
  }

  /** What is drawn: each class of ranks, with its streams below it. */
  get lanes() {
    return this.rows.flatMap((row) => [row, ...(this.below.get(row.name) ?? [])]).slice(0, MOST_LANES);
  }

  /** @param {number} factor @param {number} [at] */
  zoom(factor, at = (this.from + this.to) / 2) {
    this.window(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  get left() {
    return Math.min(150, this.canvas.clientWidth * 0.22);
  }

  /** @param {number} x pixels */
  second(x) {
    return this.from + ((x - this.left) / Math.max(this.canvas.clientWidth - this.left, 1)) * (this.to - this.from);
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaY) > Math.abs(event.deltaX)) return; // the page scrolls
    event.preventDefault();
    if (event.ctrlKey) this.zoom(Math.exp(event.deltaY / 300), this.second(event.offsetX));
    else {
      const by = ((event.deltaX || event.deltaY) / this.canvas.clientWidth) * (this.to - this.from);
      this.window(this.from + by, this.to + by);
    }
  }

  /** @param {PointerEvent} event */
  grab(event) {
    this.grabbed = { x: event.offsetX, from: this.from };
    this.canvas.setPointerCapture(event.pointerId);
  }

  /** @param {PointerEvent} event */
  move(event) {
    if (this.grabbed) {
      const width = this.to - this.from;
      const from = this.grabbed.from - ((event.offsetX - this.grabbed.x) / (this.canvas.clientWidth - this.left)) * width;
      this.window(from, from + width);
    }
    this.tell(this.at(event.offsetX, event.offsetY));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = (this.to - this.from) / 8;
    const actions = /** @type {Record<string, () => void>} */ ({
      ArrowLeft: () => this.window(this.from - step, this.to - step), ArrowRight: () => this.window(this.from + step, this.to + step),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), Home: () => this.window(0, this.end),
    });
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  /** The box under a pixel. @param {number} x @param {number} y */
  at(x, y) {
    const row = this.lanes[Math.floor((y - AXIS) / (ROW + GAP))];
    const s = this.second(x);
    const box = row?.boxes.find((/** @type {any} */ one) => one[3] <= s && s < one[4]);
    return box ? { row, box } : null;
  }

  /** @param {{row: any, box: any} | null} found */
  tell(found) {
    this.tip.textContent = found
      ? `${found.row.name}: ${what(found)}, ${seconds(found.box[3])} to ${seconds(found.box[4])} (${seconds(found.box[4] - found.box[3])})`
      : "Ctrl and wheel zooms, dragging moves";
  }

  draw() {
    const width = this.canvas.parentElement?.clientWidth ?? 600;
    const lanes = this.lanes;
    const height = AXIS + lanes.length * (ROW + GAP);
    const ratio = devicePixelRatio || 1;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const pen = this.canvas.getContext("2d");
    if (!pen || !this.rows.length) return;
    pen.scale(ratio, ratio);
    const style = getComputedStyle(this.canvas);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    const ink = colour("--ink");
    const scale = (width - this.left) / (this.to - this.from);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    this.ticks(pen, width, scale, colour("--faint"), colour("--grid"), height);
    for (const [i, row] of lanes.entries()) {
      const y = AXIS + i * (ROW + GAP);
      pen.fillStyle = ink;
      pen.fillText(row.thin ? `   ${row.name.split(" · ").pop()}` : row.name, 4, y + ROW / 2, this.left - 10);
      pen.save();
      pen.beginPath();
      pen.rect(this.left, y, width - this.left, ROW);
      pen.clip();
      pen.fillStyle = colour("--idle");
      pen.fillRect(this.left, y, width - this.left, ROW);
      for (const [kind, chunk, microbatch, first, last] of row.boxes) {
        if (last < this.from || first > this.to) continue;
        const x = this.left + (first - this.from) * scale;
        const w = Math.max((last - first) * scale, 0.6);
        pen.globalAlpha = row.chunks > 1 ? 1 - (0.6 * chunk) / (row.chunks - 1) : 1;
        pen.fillStyle = colour(`--c-${COLOURS[kind] ?? kind}`) || ink;
        pen.fillRect(x, y, w > 3 ? w - 0.7 : w, ROW);
        pen.globalAlpha = 1;
        if (w > 16) {
          pen.fillStyle = "#111";
          pen.fillText(String(microbatch), Math.max(x + 3, this.left + 2), y + ROW / 2, w - 4);
        }
      }
      pen.restore();
    }
    const missing = this.rows.length - lanes.filter((one) => !one.thin).length;
    if (missing) this.note.textContent = `${missing} more classes of ranks are not drawn.`;
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} width @param {number} scale @param {string} ink @param {string} grid @param {number} height */
  ticks(pen, width, scale, ink, grid, height) {
    for (const { at, text } of timeTicks(ticks(this.from, this.to, (width - this.left) / 110))) {
      const x = this.left + (at - this.from) * scale;
      pen.fillStyle = grid;
      pen.fillRect(x, AXIS - 6, 1, height);
      pen.fillStyle = ink;
      pen.fillText(text, x + 3, 9);
    }
  }

  /** The boxes of the window as a table: the first hundred. */
  tabulate() {
    const rows = [];
    for (const row of this.rows)
      for (const one of row.boxes)
        if (one[4] >= this.from && one[3] <= this.to && rows.length < 100)
          rows.push([row.name, KINDS[one[0]] ?? one[0], one[2], one[1], seconds(one[3]), seconds(one[4])]);
    const open = this.list.querySelector("details")?.open;
    this.list.replaceChildren(asTable("Actions in view, the first hundred", ["ranks", "action", "microbatch", "chunk", "begins", "ends"], rows));
    if (open) this.list.querySelector("details").open = true;
  }
}
