// @ts-check
/** Faults: strike a GPU, a host or a link and see who waits; weeks of the run, and what of them is left. */

import { bar } from "./answer.js";
import { Latest } from "./api.js";
import { digits, h, percent, seconds, svg, table } from "./dom.js";
import { get, set } from "./state.js";
import { shareTicks, ticks } from "./ticks.js";

const MOST_HOSTS = 64;

const SWEEPS = /** @type {Record<string, string>} */ ({ "checkpoint.storage.every": "5min..2h", "recovery.spares.warm": "0..6", "recovery.spares.cold": "0..6" });

const STRIKES = /** @type {Record<string, [string, string, string]>} */ ({
  gpu_throttle: ["GPU slow", "gpu", "slow_factor=1.3"],
  nic_lost: ["NIC lost", "nic", ""],
  link_degraded: ["NIC at half rate", "nic", "bandwidth_factor=0.5"],
  host_slow: ["Host slow", "node", "slow_factor=1.1"],
});
const KIND = /** @type {Record<string, string>} */ ({ nic_lost: "nic_down", host_slow: "gpu_throttle" });

/** Colours of GPUs by what joins them to the nearest one that is struck. */
const RELATIONS = /** @type {Record<string, string>} */ ({ "same TP group": "tp", "same CP group": "cp", "same replica and stage": "ep",
  "same replica, other stages": "B", "same stage, other replicas": "dp", "other replicas and stages": "pp" });

export class Faults {
  /**
   * @param {any} place
   * @param {() => {document: any, faults: string[], layout: any}} asked
   * @param {(faults: string[]) => void} strike
   * @param {(document: any) => void} changed
   */
  constructor(place, asked, strike, changed) {
    this.asked = asked;
    this.strike = strike;
    this.changed = changed;
    /** @type {Latest} */
    this.step = new Latest();
    this.weeks = new Latest();
    this.kind = h("select", { id: "strike-kind" }, Object.entries(STRIKES).map(([kind, [word]]) => h("option", { value: kind }, word)));
    this.own = h("input", { id: "strike-line", type: "text", placeholder: "gpu_throttle gpu/37 slow_factor=1.3", spellcheck: "false" });
    this.grid = h("div", { class: "hosts", role: "group", "aria-label": "The cluster: choose what is struck" });
    this.lines = h("ul", { class: "strikes" });
    this.error = h("p", { class: "error", role: "alert" });
    this.told = h("div", {});
    this.goodput = h("div", {});
    this.weekError = h("p", { class: "error", role: "alert" });
    this.go = h("button", { type: "submit", class: "main" }, "Simulate weeks");
    this.inputs = this.weekFields();
    this.sweeps = new Latest();
    this.sweepField = h("select", { id: "sweep-field", onchange: () => (this.sweepRange.value = SWEEPS[this.sweepField.value]) },
      Object.keys(SWEEPS).map((field) => h("option", { value: field }, field)));
    this.sweepRange = h("input", { id: "sweep-range", type: "text", value: Object.values(SWEEPS)[0], spellcheck: "false" });
    this.sweepGo = h("button", { type: "submit" }, "Sweep");
    this.sweepError = h("p", { class: "error", role: "alert" });
    this.swept = h("div", { class: "chart" });
    place.replaceChildren(
      h("section", { "aria-labelledby": "h-strike" }, h("h2", { id: "h-strike" }, "Strike the cluster"),
        h("p", { class: "note" }, "Each square is a GPU, each box a host. Choose what goes wrong and click what it strikes; again heals it. A host that dies ends the step: what that costs is asked below, over weeks."),
        h("form", { class: "row-form", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.add(this.own.value.trim()); this.own.value = ""; } },
          h("div", { class: "field" }, h("label", { for: "strike-kind" }, "What goes wrong"), this.kind),
          h("div", { class: "field" }, h("label", { for: "strike-line" }, "Or as a line"), this.own),
          h("div", { class: "buttons" }, h("button", { type: "submit" }, "Strike"), h("button", { type: "button", onclick: () => this.strike([]) }, "Heal all"))),
        this.grid, this.lines, this.error, this.told),
      h("section", { "aria-labelledby": "h-weeks" }, h("h2", { id: "h-weeks" }, "Weeks of this run"),
        h("form", { class: "row-form", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.simulate(); } },
          this.inputs.map(({ label, input }) => h("div", { class: "field" }, h("label", { for: input.id }, label), input)),
          h("div", { class: "buttons" }, this.go, h("button", { type: "button", onclick: () => this.weeks.stop() }, "Stop"))),
        this.weekError, this.goodput),
      h("section", { "aria-labelledby": "h-sweep" }, h("h2", { id: "h-sweep" }, "Spares and intervals"),
        h("form", { class: "row-form", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.sweep(); } },
          h("div", { class: "field" }, h("label", { for: "sweep-field" }, "Sweep"), this.sweepField),
          h("div", { class: "field" }, h("label", { for: "sweep-range" }, "Over"), this.sweepRange),
          h("div", { class: "buttons" }, this.sweepGo, h("button", { type: "button", onclick: () => this.sweeps.stop() }, "Stop"))),
        this.sweepError, this.swept));
  }

  weekFields() {
    const text = (/** @type {string} */ path, /** @type {string} */ label, /** @type {string} */ value) =>
      ({ path, label, input: h("input", { id: `w-${path.replaceAll(".", "-")}`, type: "text", value, placeholder: path ? "none" : "never; e.g. 3h" }) });
    return [
      text("faults.presets", "Failure rates", "llama3-2024"),
      text("run.work", "Work", "14 d"),
      text("checkpoint.storage.every", "Checkpoint every", "30 min"),
      text("recovery.spares.warm", "Warm spares", "2"),
      text("run.replications", "Replications", "20"),
      text("", "A host dies at", ""),
    ];
  }

  /** @param {string} line */
  add(line) {
    if (!line) return;
    const { faults } = this.asked();
    this.strike(faults.includes(line) ? faults.filter((one) => one !== line) : [...faults, line]);
  }

  /** Draw the cluster and what is struck, and ask for the step. */
  show() {
    const { document, faults, layout } = this.asked();
    this.drawCluster(layout, faults);
    this.lines.replaceChildren(...faults.map((line) => h("li", {}, h("code", {}, line),
      h("button", { type: "button", "aria-label": `Heal ${line}`, onclick: () => this.add(line) }, "×"))));
    for (const { path, input } of this.inputs.filter((one) => one.path)) {
      const value = get(document, path);
      if (value !== undefined) input.value = Array.isArray(value) ? value.join(" ") : String(value);
    }
    this.error.textContent = "";
    if (!faults.length) {
      this.step.stop();
      this.told.replaceChildren();
      return;
    }
    this.step.ask("predict", { document, faults, schedule: false }, (message) => {
      if (message.event === "result") {
        this.tell(message.result);
        this.colour(message.result.faults, message.who);
      }
    }).catch((error) => {
      this.error.textContent = error.message;
      this.told.replaceChildren();
    });
  }

  /** @param {any} layout @param {string[]} faults */
  drawCluster(layout, faults) {
    const { gpus, gpus_per_node: each } = layout;
    const hosts = Math.ceil(gpus / each);
    const struck = (/** @type {string} */ target) => faults.some((line) => line.split(/\s+/)[1] === target);
    const line = (/** @type {string} */ gpu, /** @type {string} */ host, /** @type {string} */ nic) => {
      const [, what, rest] = STRIKES[this.kind.value];
      return `${KIND[this.kind.value] ?? this.kind.value} ${what === "gpu" ? gpu : what === "node" ? host : nic} ${rest}`.trim();
    };
    const host = (/** @type {number} */ n) => h("div", { class: `host ${struck(`node/${n}`) ? "struck" : ""}` },
      h("span", {}, `host ${n}`),
      h("div", { class: "gpus" }, Array.from({ length: Math.min(each, gpus - n * each) }, (_, i) => {
        const [gpu, nic] = [`gpu/${n * each + i}`, `nic/${i}@node/${n}`];
        return h("button", { type: "button", class: struck(gpu) || struck(nic) ? "gpu struck" : "gpu", "data-gpu": n * each + i, "aria-label": `GPU ${n * each + i} of host ${n}`,
          "aria-pressed": String(struck(gpu) || struck(nic)), onclick: () => this.add(line(gpu, `node/${n}`, nic)) });
      })));
    this.grid.replaceChildren(...Array.from({ length: Math.min(hosts, MOST_HOSTS) }, (_, n) => host(n)),
      hosts > MOST_HOSTS ? h("p", { class: "note" }, `and ${hosts - MOST_HOSTS} more hosts: write a line to strike them`) : "");
  }

  /** Show on each GPU what joins it to what is struck, and how much longer it waits. @param {any} found @param {number[] | null} who */
  colour(found, who) {
    if (!found || !who) return;
    const total = (/** @type {any} */ side) => Object.values(side.waiting_s).reduce((/** @type {number} */ sum, one) => sum + /** @type {number} */ (one), 0);
    const more = found.who_waits.map((/** @type {any} */ one) => Math.max(total(one.after) - total(one.before), 0));
    for (const gpu of this.grid.querySelectorAll(".gpu")) {
      const row = who[gpu.dataset.gpu];
      const one = found.who_waits[row];
      if (!one || gpu.classList.contains("struck")) continue;
      gpu.style.setProperty("--gpu", `var(--c-${RELATIONS[one.relation] ?? "F"})`);
      gpu.title = `${one.relation}: waits ${seconds(more[row])} longer`;
    }
  }

  /** @param {any} result */
  tell(result) {
    const found = result.faults;
    if (!found) {
      this.told.replaceChildren(h("p", {}, "This strikes no single step; simulate weeks below."));
      return;
    }
    const total = (/** @type {any} */ side) => Object.values(side.waiting_s).reduce((/** @type {number} */ sum, one) => sum + /** @type {number} */ (one), 0);
    const waits = (found.who_waits ?? []).map((/** @type {any} */ one) => [
      h("span", {}, h("span", { class: `key ${one.relation === "struck" ? "struck" : `c-${RELATIONS[one.relation] ?? "F"}`}` }), one.relation), one.ranks, seconds(one.before.work_s), seconds(one.after.work_s),
      seconds(total(one.before)), seconds(total(one.after))]);
    const blame = (found.without ?? []).map((/** @type {any} */ one) => [one.fault, seconds(one.step_time_s), `−${seconds(Math.max(found.step_time_s.after - one.step_time_s, 0))}`]);
    this.told.replaceChildren(
      h("p", { class: "big" }, `The step takes ${seconds(found.step_time_s.after)} in place of ${seconds(found.step_time_s.before)}: × ${found.slowdown?.toFixed(3) ?? "∞"}`),
      waits.length ? table("Who waits", ["ranks", "how many", "work before", "work now", "waiting before", "waiting now"], waits) : "",
      blame.length > 1 ? table("Without each fault", ["without", "step time", "gains"], blame) : "");
  }

  /** The scenario with the weeks that are asked for. */
  campaign() {
    let { document } = this.asked();
    for (const { path, input } of this.inputs.filter((one) => one.path)) {
      const text = input.value.trim();
      const value = !text ? undefined : path === "faults.presets" ? text.split(/[\s,]+/) : /^\d+$/.test(text) ? Number(text) : text;
      document = set(document, path, value);
    }
    this.changed(document);
    return document;
  }

  /** The scenario with the host that dies at a known time. @param {any} document */
  withDeath(document) {
    const at = this.inputs[this.inputs.length - 1].input.value.trim();
    if (!at) return document;
    return set(document, "faults.events", [...(get(document, "faults.events") ?? []), `node_down node/0 at=${at.replace(/\s+/g, "")}`]);
  }

  async sweep() {
    const axis = `${this.sweepField.value}=${this.sweepRange.value}`;
    this.sweepError.textContent = "";
    this.sweepGo.disabled = true;
    try {
      await this.sweeps.ask("sweep", { document: this.campaign(), axes: [axis] }, (message) => {
        if (message.event === "sweep") this.tellSweep(message.sweep);
      });
    } catch (error) {
      this.sweepError.textContent = /** @type {Error} */ (error).message;
    } finally {
      this.sweepGo.disabled = false;
    }
  }

  /** @param {any} found */
  tellSweep(found) {
    const [{ field }] = found.axes;
    const by = found.best_by;
    const points = found.points.map((/** @type {any} */ one) => ({ ...one[by], at: one.values[field], ettr: one.ettr, held: one.ettr_held, wall: one.wall_s.mean }));
    const [W, H, L, B] = [760, 240, 70, 34];
    const low = Math.min(...points.map((/** @type {any} */ one) => one.low ?? one.mean));
    const high = Math.max(...points.map((/** @type {any} */ one) => one.high ?? one.mean));
    const x = (/** @type {number} */ i) => L + 20 + (i * (W - L - 50)) / Math.max(points.length - 1, 1);
    const y = (/** @type {number} */ share) => H - B - ((share - low) / Math.max(high - low, 1e-9)) * (H - B - 16);
    const equal = new Set(found.equal.map((/** @type {any} */ one) => one[field]));
    const title = by === "ettr_held" ? "useful share of all GPUs held, spares included" : "useful share of the time";
    this.swept.replaceChildren(
      svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title} over ${field}` },
        shareTicks(ticks(low, high, 8)).map(({ at, text }) => [svg("line", { class: "grid", x1: L, x2: W, y1: y(at), y2: y(at) }),
          svg("text", { class: "tick-y", x: L - 8, y: y(at) + 4, "text-anchor": "end" }, text)]).flat(),
        svg("path", { class: "front", d: points.map((/** @type {any} */ one, /** @type {number} */ i) => `${i ? "L" : "M"}${x(i)} ${y(one.mean).toFixed(1)}`).join("") }),
        points.map((/** @type {any} */ one, /** @type {number} */ i) => [
          one.low === null ? null : svg("line", { class: "axis", x1: x(i), x2: x(i), y1: y(one.low), y2: y(one.high) }),
          svg("circle", { class: equal.has(one.at) ? "fit" : "large", cx: x(i), cy: y(one.mean), r: 5 }),
          svg("text", { x: x(i), y: H - 10, "text-anchor": "middle" }, one.at)]).flat()),
      h("p", { class: "note" }, `${title}; blue points are as good as the best${found.no_difference ? ": all of them" : ""}. ${found.held_fixed}`),
      table("The sweep", [field, "useful time", "of GPUs held", "takes", "as good as the best"], points.map((/** @type {any} */ one) =>
        [one.at, percent(one.ettr.mean), percent(one.held?.mean), seconds(one.wall), equal.has(one.at) ? "yes" : "no"])));
  }

  async simulate() {
    const document = this.campaign();
    this.weekError.textContent = "";
    this.go.disabled = true;
    try {
      await this.weeks.ask("faults", { document: this.withDeath(document) }, (message) => {
        if (message.event === "faults") this.tellWeeks(message.faults);
      });
    } catch (error) {
      this.weekError.textContent = /** @type {Error} */ (error).message;
    } finally {
      this.go.disabled = false;
    }
  }

  /** @param {any} found */
  tellWeeks(found) {
    const parts = Object.entries(found.waterfall).filter(([, share]) => /** @type {number} */ (share) > 1e-6);
    const lost = parts.filter(([name]) => name !== "useful");
    const most = Math.max(...lost.map(([, share]) => /** @type {number} */ (share)), 1e-9);
    const range = found.waterfall_intervals ?? {};
    this.goodput.replaceChildren(
      h("p", { class: "big" }, `${percent(found.ettr.mean)} of the time is useful (${percent(found.ettr.low)} to ${percent(found.ettr.high)}); ${seconds(found.wall_s.mean)} for the work`),
      h("p", { class: "note" }, `${digits(found.interruptions.mean)} interruptions${found.mtbf_s ? `, one in ${seconds(found.mtbf_s)}` : ""}; lost in all: ${seconds((1 - found.ettr.mean) * found.wall_s.mean)}; ${digits(found.goodput_tokens_per_s)} useful tokens/s`),
      h("h3", {}, "Where the rest goes"),
      h("div", { class: "bars long", role: "table", "aria-label": "Goodput lost, by cause" }, lost.sort((a, b) => /** @type {number} */ (b[1]) - /** @type {number} */ (a[1])).map(([name, share]) =>
        bar(name, /** @type {number} */ (share) / most, seconds(/** @type {number} */ (share) * found.wall_s.mean), range[name] ? `${percent(range[name].low)} to ${percent(range[name].high)}` : "", "dp"))),
      table("Failures", ["failure", "in the run"], Object.entries(found.failures).map(([name, count]) => [name, digits(/** @type {number} */ (count))])));
  }
}
